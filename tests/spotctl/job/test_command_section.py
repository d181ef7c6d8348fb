"""Job files of ``engine: command``: what a good one becomes, and what bad ones are answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.model.units import Seconds
from spotctl.backtest.prepare import BacktestOptions, prepare_backtest
from spotctl.errors import JobFileError, UsageError
from spotctl.job.file import parse_job
from spotctl.job.spec import CommandCheckpoints, CommandSpec, JobSpec, WorkSpec

COMPLETE = """\
name: train
engine: command
num_nodes: 1
workdir: code
file_mounts: {data/train.csv: table.csv, data/more: s3://bucket/more}
setup: pip install -r requirements.txt
run: |
  cd src
  python train.py
secrets: {HF_TOKEN: , WANDB_KEY: null}
envs: {SIZE: "3"}
checkpoint:
  {store: s3://bucket/checkpoints, every: 20m, restart: 90s, on_warning: false, size: 1.5GiB,
   link_mbit_s: 250}
work: {steps: 5000, takes: 3h, on: c5.xlarge}
retries: 3
resources: {spot: {cpus: 4+, clouds: [aws], max_instances: 1}}
objective: {strategy: greedy, deadline: 8h}
scaling: {sigma: 90s}
local: {boot: 30s, lease: 2h, progress: modelled}
output: results
"""
MINIMAL = "engine: command\nrun: python train.py\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "table.csv").write_text("1,2\n")
    return tmp_path


def parse(text: str, folder: Path) -> JobSpec:
    return parse_job(text, "job.yaml", folder)


def test_every_key_of_a_complete_file_is_in_the_spec(folder: Path) -> None:
    spec = parse(COMPLETE, folder)
    assert spec.command == CommandSpec(
        run="cd src\npython train.py\n",
        setup="pip install -r requirements.txt",
        workdir=str(folder / "code"),
        file_mounts={"data/train.csv": str(folder / "table.csv"), "data/more": "s3://bucket/more"},
        secrets=("HF_TOKEN", "WANDB_KEY"),
        checkpoint=CommandCheckpoints(
            "s3://bucket/checkpoints", Seconds(1200.0), Seconds(90.0), False, 1_610_612_736, 250.0, True
        ),
        work=WorkSpec(5000, Seconds(10_800.0), "c5.xlarge"),
        retries=3,
    )
    assert (spec.engine.kind, spec.reliable, spec.stop.clocks, spec.output) == (
        "command",
        None,
        5000,
        str(folder / "results"),
    )
    assert (spec.spot.max_instances, spec.spot.max_per_allocation) == (1, 1)
    assert spec.local.lease == Seconds(7200.0)


def test_a_command_is_all_that_must_be_said(folder: Path) -> None:
    spec = parse(MINIMAL, folder)
    assert spec.command == CommandSpec(run="python train.py")
    assert (spec.name, spec.stop.clocks, spec.output) == ("job", None, "")


def test_a_program_that_keeps_nothing_says_so_in_a_word(folder: Path) -> None:
    said = parse(MINIMAL + "checkpoint: off\n", folder).command
    assert said is not None
    assert (said.checkpoint.keeps, said.checkpoint.on_warning) == (False, False)
    unsaid, described = parse(MINIMAL, folder).command, parse(COMPLETE, folder).command
    assert unsaid is not None
    assert described is not None
    assert (unsaid.checkpoint.keeps, described.checkpoint.keeps) == (None, True)


def test_a_backtest_of_a_command_is_refused(folder: Path) -> None:
    """What was backtested is what runs; of commands that is not so yet."""
    with pytest.raises(UsageError, match="--world replay instead"):
        prepare_backtest(parse(MINIMAL, folder), BacktestOptions())


MALFORMED = {
    "no command": (MINIMAL, "engine: command\n", "1:1: run: missing, expected the command to run"),
    "nodes": ("run:", "num_nodes: 2\nrun:", "2:12: num_nodes: found '2', expected 1"),
    "a secret": (
        "run:",
        "secrets: {KEY: hunter2}\nrun:",
        "found a value for the secret KEY, expected nothing",
    ),
    "no name": ("run:", "secrets: {a-b: }\nrun:", "found 'a-b', expected the name of a variable"),
    "a secret in a list": ("run:", "secrets: [a=b]\nrun:", "found 'a=b', expected the name of a variable"),
    "no folder": ("run:", "workdir: nowhere\nrun:", "workdir: found 'nowhere', but there is no folder"),
    "no source": ("run:", "file_mounts: {a: nowhere}\nrun:", "but there is nothing at"),
    "mounted at the root": ("run:", "file_mounts: {/data: code}\nrun:", "a path below the working folder"),
    "mounted above": ("run:", "file_mounts: {a/../../b: code}\nrun:", "a path below the working folder"),
    "memory": ("run:", "checkpoint: {store: memory://x}\nrun:", "a place that outlives a machine"),
    "a bare size": ("run:", "checkpoint: {size: 2}\nrun:", "found '2', expected a size with its unit"),
    "a huge size": ("run:", "checkpoint: {size: 2000TB}\nrun:", "expected at most 1000TB"),
    "no link": ("run:", "checkpoint: {link_mbit_s: 0}\nrun:", "expected a number above 0"),
    "no interval": ("run:", "checkpoint: never\nrun:", "found 'never', expected on or off"),
    "no steps": ("run:", "work: {takes: 3h}\nrun:", "work.steps: missing"),
    "no time": ("run:", "work: {steps: 3}\nrun:", "work.takes: missing"),
    "reliable": ("run:", "resources: {reliable: {}}\nrun:", "resources.reliable: a command needs no machine"),
    "machines": (
        "run:",
        "resources: {spot: {max_instances: 4}}\nrun:",
        "max_instances: found '4', expected 1",
    ),
    "an application": ("run:", "app: a:B\nrun:", "app: belongs to engine: agileml"),
    "lambda": ("run:", "scaling: {lambda: 2m}\nrun:", "scaling.lambda: means nothing to engine: command"),
    "throttle": ("run:", "local: {throttle: off}\nrun:", "local.throttle: means nothing"),
    "a strategy": ("run:", "objective: {strategy: tierml}\nrun:", "objective.strategy: found 'tierml'"),
    "a typo": ("run:", "chekpoint: {}\nrun:", "(did you mean checkpoint?)"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_answered_with_a_clear_line(case: str, folder: Path) -> None:
    old, new, expected = MALFORMED[case]
    with pytest.raises(JobFileError) as caught:
        parse(MINIMAL.replace(old, new, 1), folder)
    assert expected in str(caught.value)
    assert "hunter2" not in str(caught.value)
