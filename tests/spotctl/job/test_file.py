"""Job files: what a good one becomes, and what each of many bad ones is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.model.units import MicroUsd, Seconds
from spotctl.control.engine_traits import ELASTIC_TRAINING
from spotctl.errors import JobFileError, UsageError
from spotctl.job.file import load_job, parse_job
from spotctl.job.spec import (
    Amount,
    Convergence,
    JobSpec,
    LocalSpec,
    ModelCheckpoints,
    ObjectiveSpec,
    ReliableSpec,
    ScalingSpec,
    SpotSpec,
    StopSpec,
    TrainingSpec,
)

COMPLETE = """\
name: movies
engine: agileml
app: agileml.apps.mf:MatrixFactorization
args: {rank: 64, learning_rate: 2e-2, shuffle: true, label: "7", layers: [8, 4]}
data: ratings.csv
stop: {clocks: 40, converged: {metric: rmse, delta: 1e-3}}
resources:
  reliable: {instances: 2, instance_type: c5.xlarge, cloud: aws, region: us-east-1}
  spot: {cpus: 4+, memory: 16, max_instances: 8, max_per_allocation: 4, clouds: [aws]}
objective: {minimize: cost, strategy: tierml, deadline: 6h, budget: "5.00"}
scaling: {phi: 0.9, sigma: 90s, lambda: 2m, stage3_above: 20, measure: true}
training: {staleness: 1, partitions: 3, stages: measured, input_memory: 2GB, link_mbit_s: 500}
local: {throttle: off, boot: 30s, progress: modelled}
drain: true
seed: 7
output: s3://bucket/models
envs: {TOKEN: "abc"}
"""

MINIMAL = """\
app: agileml.apps.mf:MatrixFactorization
data: ratings.csv
stop: {clocks: 40}
resources:
  reliable: {instance_type: c5.xlarge}
  spot: {max_instances: 8}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ratings.csv").write_text("1,1,3.0\n")
    return tmp_path


def parse(text: str, folder: Path) -> JobSpec:
    return parse_job(text, "job.yaml", folder)


def problems(text: str, folder: Path) -> list[str]:
    with pytest.raises(JobFileError) as caught:
        parse(text, folder)
    assert caught.value.exit_code == 2
    return str(caught.value).splitlines()


def test_every_key_of_a_complete_file_is_in_the_spec(folder: Path) -> None:
    assert parse(COMPLETE, folder) == JobSpec(
        name="movies",
        engine=ELASTIC_TRAINING,
        app="agileml.apps.mf:MatrixFactorization",
        args={"rank": 64, "learning_rate": 0.02, "shuffle": True, "label": "7", "layers": (8, 4)},
        data=str(folder / "ratings.csv"),
        stop=StopSpec(clocks=40, converged=Convergence("rmse", 1e-3)),
        reliable=ReliableSpec(2, "c5.xlarge", cloud="aws", region="us-east-1"),
        spot=SpotSpec(8, 4, cpus=Amount(4, True), memory_gib=Amount(16, False), clouds=("aws",)),
        objective=ObjectiveSpec("cost", "tierml", deadline=Seconds(6 * 3600), budget=MicroUsd(5_000_000)),
        scaling=ScalingSpec(0.9, Seconds(90), Seconds(120), stage3_above=20, measure=True),
        training=TrainingSpec(
            staleness=1,
            partitions=3,
            shards=40,
            link_mbit_s=500,
            measured_stages=True,
            input_bytes=2_000_000_000,
        ),
        drain=True,
        seed=7,
        output="s3://bucket/models",
        local=LocalSpec(throttle=False, boot=Seconds(30), progress="modelled"),
        envs={"TOKEN": "abc"},
    )


def test_defaults_follow_from_what_is_written(folder: Path) -> None:
    spec = parse(MINIMAL, folder)
    assert spec.name == "job", "the file's own name"
    assert spec.reliable is not None
    assert spec.reliable.instances == 1
    assert spec.spot.max_per_allocation == 8, "nothing is split unless asked for"
    assert spec.training == TrainingSpec(staleness=0, partitions=4, shards=36), "of nine machines"
    assert spec.output == str(folder / "models" / "job")
    assert (spec.drain, spec.seed, spec.objective.deadline) == (False, 0, None)


@pytest.mark.parametrize(
    ("said", "lease"), [("", 43200), ("local: {lease: 1m}\n", 60), ("local: {lease: 30d}\n", 30 * 86400)]
)
def test_machines_that_nobody_drives_have_a_lease(folder: Path, said: str, lease: int) -> None:
    assert parse(MINIMAL + said, folder).local.lease == Seconds(lease)


@pytest.mark.parametrize("said", ["0s", "59s", "31d"])
def test_no_lease_is_without_an_end(folder: Path, said: str) -> None:
    with pytest.raises(JobFileError, match=rf"local.lease: found '{said}', expected a time from 1m to 30d"):
        parse(MINIMAL + f"local: {{lease: {said}}}\n", folder)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("{store: states, every: 20}", ("states", 20, 0.0, False)),
        ("{store: states, every: 10m, resume: true}", ("states", 0, 600.0, True)),
    ],
)
def test_checkpoints_are_due_by_clocks_or_by_time(
    folder: Path, said: str, kept: tuple[str, int, float, bool]
) -> None:
    place, clocks, seconds, resume = kept
    expected = ModelCheckpoints(str(folder / place), clocks, Seconds(seconds), resume)
    assert parse(MINIMAL + f"checkpoint: {said}\n", folder).checkpoint == expected


def test_paths_are_relative_to_the_job_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "nightly.yaml").write_text(MINIMAL)
    monkeypatch.chdir("/")
    spec = load_job(folder / "nightly.yaml")
    assert spec.name == "nightly"
    assert spec.data == str(folder / "ratings.csv")


@pytest.mark.parametrize(("amount", "admitted"), [("4", [4]), ("4+", [4, 5, 64]), ("0.5", [0.5])])
def test_amounts_are_exact_unless_they_end_in_a_plus(
    folder: Path, amount: str, admitted: list[float]
) -> None:
    spec = parse(MINIMAL.replace("max_instances: 8", f"max_instances: 8, cpus: {amount}"), folder)
    assert spec.spot.cpus is not None
    assert [n for n in (0.5, 2, 4, 5, 64) if spec.spot.cpus.admits(n)] == admitted


MALFORMED = {
    # what is replaced in the minimal file, by what, and the one line that answers
    "unknown key": ("app:", "apq:", "1:1: apq: unknown key", "(did you mean app?)"),
    "unknown key below": ("max_instances", "max_instnaces", "unknown key", "(did you mean max_instances?)"),
    "empty file": (MINIMAL, "", "1:1: found an empty file", "expected keys and values"),
    "a list": (MINIMAL, "- 1\n- 2\n", "1:1: found a list", "expected keys and values"),
    "a word": (MINIMAL, "hello", "1:1: found 'hello'", "expected keys and values"),
    "no YAML": ("{clocks: 40}", "{clocks: 40", "4:10: not YAML", "while parsing a flow mapping"),
    "tab": ("stop: {", "stop:\t\t{a: b: c", "not YAML", ""),
    "open quote": ("ratings.csv", "'ratings.csv", "not YAML", "quoted scalar"),
    "undefined alias": ("ratings.csv", "*nothing", "2:7: not YAML", "undefined alias"),
    "two documents": ("stop:", "---\nstop:", "not YAML", "single document"),
    "control character": ("app:", "\x00app:", "1:1: not YAML", "control character '\\x00'"),
    "deep nesting": ("{clocks: 40}", "[" * 20_000, "1:1: nested too deeply", ""),
    "duplicate key": ("data:", "data: ratings.csv\ndata:", "3:1: data: found a second time", "line 2"),
    "list as key": ("app:", "? [a]\n: 1\napp:", "1:3: found a list as a key", "expected a word"),
    "list as a key of one's own": ("app:", "args: {[a]: 1}\napp:", "1:8: args: found a list as a key", ""),
    "tag": ("ratings.csv", "!!python/name:os.system x", "data: found the tag", "without a tag"),
    "null": ("ratings.csv", "", "2:6: data: found nothing", "expected a file or a URL"),
    "app is no class": (
        "agileml.apps.mf:",
        "agileml/apps/mf:",
        "1:6: app: found",
        "expected a class like",
    ),
    "no such application file": ("agileml.apps.mf:", "mine.py:", "1:6: app: found", "there is no file"),
    "no such data": ("ratings.csv", "rating.csv", "2:7: data: found 'rating.csv', but there is no file", ""),
    "data missing": ("data: ratings.csv\n", "", "data: missing", "a file or a URL"),
    "stop missing": ("stop: {clocks: 40}\n", "", "stop: missing", "clocks, seconds or converged"),
    "stop empty": ("{clocks: 40}", "{}", "3:7: stop: missing", "clocks, seconds or converged"),
    "stop is a number": ("{clocks: 40}", "40", "3:7: stop: found '40'", "expected a mapping"),
    "clocks zero": ("clocks: 40", "clocks: 0", "3:16: stop.clocks: found '0'", "at least 1"),
    "clocks a fraction": ("clocks: 40", "clocks: 4.5", "found '4.5'", "a whole number of at least 1"),
    "clocks a word": ("clocks: 40", "clocks: forty", "found 'forty'", "a whole number of at least 1"),
    "clocks huge": ("clocks: 40", "clocks: " + "9" * 5000, "stop.clocks: found '999", "a whole number"),
    "sexagesimal": ("clocks: 40", "clocks: 1:30", "found '1:30'", "a whole number of at least 1"),
    "convergence half said": ("clocks: 40", "converged: {metric: rmse}", "stop.converged.delta: missing", ""),
    "no instance type": ("{instance_type: c5.xlarge}", "{}", "resources.reliable.instance_type: missing", ""),
    "no spot": ("  spot: {max_instances: 8}\n", "", "5:3: resources.spot: missing", "max_instances"),
    "negative count": ("max_instances: 8", "max_instances: -1", "found '-1'", "at least 0"),
    "allocation too large": (
        "instances: 8",
        "instances: 8, max_per_allocation: 9",
        "6:48: resources.spot.max_per_allocation: found 9",
        "at most max_instances (8)",
    ),
    "cpus in words": ("instances: 8", "instances: 8, cpus: many", "resources.spot.cpus: found 'many'", "4+"),
    "unknown cloud": ("instances: 8", "instances: 8, clouds: [awz]", "found 'awz'", "(did you mean aws?)"),
    "clouds no list": ("instances: 8", "instances: 8, clouds: aws", "found 'aws'", "a list of clouds"),
    "cloud twice": (
        "instances: 8",
        "instances: 8, clouds: [aws, aws]",
        "6:42: ",
        "found 'aws' a second time",
    ),
    "several regions": (
        "instances: 8",
        "instances: 8, regions: [us-east-1, us-west-2]",
        "expected one: elastic training cannot span several",
        "name one",
    ),
    "no regions": ("instances: 8", "instances: 8, regions: []", "found an empty list", "a list of regions"),
    "command engine": (
        "app:",
        "engine: command\napp:",
        "app: belongs to engine: agileml",
        "this is a job of",
    ),
    "setup": (
        "app:",
        "setup: pip install x\napp:",
        "1:8: setup: belongs to a command",
        "this job has an app",
    ),
    "checkpoints nowhere": ("app:", "checkpoint: {every: 5}\napp:", "checkpoint.store: missing", "a URL"),
    "checkpoints never": ("app:", "checkpoint: {store: here}\napp:", "checkpoint.every: missing", "10m"),
    "checkpoints too soon": ("app:", "checkpoint: {store: a, every: 0}\napp:", "found '0'", "at least 1"),
    "checkpoints at some time": (
        "app:",
        "checkpoint: {store: a, every: often}\napp:",
        "checkpoint.every: found 'often'",
        "clocks, like 20, or a time with its unit",
    ),
    "checkpoints in memory": (
        "app:",
        "checkpoint: {store: memory://x, every: 5}\napp:",
        "checkpoint.store: found memory://",
        "outlives a machine",
    ),
    "a command's checkpoints": (
        "app:",
        "checkpoint: {store: a, every: 5, restart: 60s}\napp:",
        "checkpoint.restart: unknown key",
        "",
    ),
    "checkpoints of what is modelled": (
        "app:",
        "checkpoint: {store: a, every: 5}\nlocal: {progress: modelled}\napp:",
        "checkpoint: needs local: {progress: measured}",
        "",
    ),
    "bad name": ("app:", "name: ../up\napp:", "1:7: name: found '../up'", "a name of letters"),
    "bad variable": ("app:", "envs: {A-B: 1}\napp:", "found the key 'A-B'", "the name of a variable"),
    "nested argument": ("app:", "args: {a: {b: 1}}\napp:", "args.a: found a mapping", "a number, a word"),
    "bare deadline": ("app:", "objective: {deadline: 60}\napp:", "found '60'", "a duration with its unit"),
    "deadline zero": ("app:", "objective: {deadline: 0s}\napp:", "found '0s'", "above zero"),
    "deadline endless": (
        "app:",
        "objective: {deadline: 99999d}\napp:",
        "found '99999d'",
        "at most ten years",
    ),
    "budget zero": ("app:", "objective: {budget: 0}\napp:", "objective.budget: found '0'", "dollars above 0"),
    "budget not a number": ("app:", "objective: {budget: .nan}\napp:", "found '.nan'", "dollars above 0"),
    "other objective": ("app:", "objective: {minimize: time}\napp:", "found 'time'", "one of cost"),
    "phi above one": ("app:", "scaling: {phi: 1.5}\napp:", "scaling.phi: found '1.5'", "at most 1"),
    "stages crossed": (
        "app:",
        "scaling: {stage3_above: 0.5}\napp:",
        "found 0.5",
        "at least stage2_above (1)",
    ),
    "stages by hand": ("app:", "training: {stages: 2}\napp:", "training.stages: found '2'", "by-ratio"),
    "memory without unit": ("app:", "training: {input_memory: 2}\napp:", "found '2'", "a size with its unit"),
    "no memory": ("app:", "training: {input_memory: 0MB}\napp:", "found '0MB'", "a size above zero"),
    "throttle": ("app:", "local: {throttle: yes}\napp:", "found 'yes'", "on or off"),
    "drain": ("app:", "drain: 1\napp:", "1:8: drain: found '1'", "true or false"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_answered_with_one_clear_line(folder: Path, case: str) -> None:
    old, new, *expected = MALFORMED[case]
    assert old in MINIMAL
    before = sorted(folder.iterdir())
    lines = problems(MINIMAL.replace(old, new, 1), folder)
    answer = next((line for line in lines if expected[0] in line), "")
    assert all(part in answer for part in expected), "\n".join(lines)
    assert answer.startswith("job.yaml:")
    assert sorted(folder.iterdir()) == before, "nothing may be written"


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(folder: Path) -> None:
    text = MINIMAL.replace("ratings.csv", "gone.csv").replace("40", "none").replace("8}", "8, zone: a}")
    lines = problems(text, folder)
    assert [line.split(":")[1] for line in lines] == ["2", "3", "6"]
    assert [line.split(": ")[1] for line in lines] == ["data", "stop.clocks", "resources.spot.zone"]


def test_an_unknown_engine_is_reported_once(folder: Path) -> None:
    lines = problems("engine: comand\n" + MINIMAL, folder)
    expected = "found 'comand', expected one of agileml, command (did you mean command?)"
    assert lines == [f"job.yaml:1:9: engine: {expected}"]


def test_a_missing_mapping_is_reported_once_and_not_key_by_key(folder: Path) -> None:
    lines = problems("app: a.b:C\ndata: ratings.csv\nstop: {clocks: 1}\n", folder)
    assert lines == ["job.yaml:1:1: resources: missing, expected reliable and spot machines"]


def test_a_queues_file_is_told_from_a_jobs(folder: Path) -> None:
    lines = problems("policy: cost\njobs: [{job: a.yaml}]\n", folder)
    assert lines == ["job.yaml:1:1: found a queue's file, expected a job's; `spotctl queue run` takes queues"]


@pytest.mark.parametrize("path", ["missing.yaml", "."])
def test_an_unreadable_file_is_a_usage_error(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_job(tmp_path / path)


def test_a_binary_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(UsageError, match="0xff at offset 6, expected text in UTF-8"):
        load_job(tmp_path / "job.yaml")


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, len(COMPLETE)), junk=st.text(alphabet="{}[]:,-#&*!|>'\"%@` \n\tab0", max_size=6))
def test_whatever_happens_to_a_file_the_answer_is_a_spec_or_its_problems(cut: int, junk: str) -> None:
    """Never another exception: a damaged file is the user's, not a bug."""
    text = COMPLETE[:cut] + junk + COMPLETE[cut + len(junk) :]
    try:
        data = parse(text, Path("/nowhere")).data
    except JobFileError as error:
        lines, data = [problem.line for problem in error.problems], ""
    else:
        lines = []
    assert lines or "://" in data, "no file of /nowhere can have been found"
    assert all(1 <= line <= text.count("\n") + 1 for line in lines)


SKYPILOT = """\
name: train
resources: {cloud: aws, accelerators: "A100:8", use_spot: true, disk_size: 500}
num_nodes: 2
envs: {A: b}
setup: pip install torch
run: python train.py
"""
DSTACK = """\
type: task
commands: [python train.py]
spot_policy: auto
max_duration: 6h
resources: {gpu: 24GB}
"""
BATCH = """\
jobDefinitionName: t
containerProperties: {image: x, vcpus: 4}
retryStrategy: {attempts: 2}
"""
FOREIGN: dict[str, tuple[str, str, dict[str, str]]] = {
    "SkyPilot": (
        SKYPILOT,
        "a SkyPilot task",
        {
            "resources.cloud: aws": "resources: {spot: {clouds: [aws]}}",
            "resources.accelerators: A100:8": "no counterpart: this version asks for no machines with GPUs",
            "num_nodes: 2": "no counterpart above 1",
            "as they are": "name, envs, setup, run",
        },
    ),
    "dstack": (
        DSTACK,
        "a dstack configuration",
        {
            "commands": "run: |",
            "max_duration: 6h": "objective: {deadline: 6h}",
            "resources.gpu: 24GB": "no counterpart",
        },
    ),
    "AWS Batch": (
        BATCH,
        "an AWS Batch job",
        {
            "containerProperties.vcpus: 4": "resources: {spot: {cpus: 4+}}",
            "retryStrategy": "retries",
        },
    ),
}


@pytest.mark.parametrize("tool", FOREIGN)
def test_another_tool_s_file_gets_one_message_that_translates_it(tool: str, folder: Path) -> None:
    text, name, pairs = FOREIGN[tool]
    with pytest.raises(JobFileError) as caught:
        parse(text, folder)
    assert len(caught.value.problems) == 1
    first, *lines = str(caught.value).splitlines()
    assert f"this is {name}" in first
    for key, becomes in pairs.items():
        (line,) = [line for line in lines if line.strip().startswith(key)]
        assert becomes in line


def test_a_file_with_run_is_a_command_without_saying_so(folder: Path) -> None:
    spec = parse("run: python train.py\nworkdir: .\n", folder)
    assert (spec.engine.kind, spec.command is not None) == ("command", True)


def test_columns_of_the_data_are_named_by_the_application_s_names(folder: Path) -> None:
    spec = parse(MINIMAL + "columns: {user: userId, item: 1, others: [x, y]}\n", folder)
    assert spec.columns == {"user": "userId", "item": "1", "others": ("x", "y")}
