"""An engine that the program has never heard of plugs in: plan, launch, status and report serve it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from pricing_data.model.units import Instant, seconds_after
from spotctl.control import entries as e
from spotctl.control.engine_traits import EngineTraits
from spotctl.control.run_spec import RunSpec
from spotctl.engines import registry
from spotctl.engines.registry import Engine, EngineAdapter, register_engine
from spotctl.engines.simulated import MODELS
from spotctl.job.checks import JOB_CHECKS
from spotctl.job.file import JOB_TABLES, job_schema
from spotctl.job.settings import Settings
from spotctl.job.spec import JobSpec, LocalSpec, ObjectiveSpec, ScalingSpec, SpotSpec, StopSpec, TrainingSpec
from spotctl.records.run import Run
from spotctl.schema.kinds import whole_number
from spotctl.schema.table import FROM_EMPTY, Key, KeyTable, Section, Values, keep_values
from spotctl.timesource import Effect
from tests.spotctl.cli.commandline import TRACE_START, spotctl

SWEEP = EngineTraits("sweep", "trial", "leaderboard")
JOB = """\
engine: sweep
trials: 30
resources: {spot: {max_instances: 4}}
"""
TRIAL_CORE_S = 3600.0


class ModelledSweep:
    """Tries one setting after the other on all machines together; a trial under way survives nothing."""

    def __init__(self, terms: RunSpec) -> None:
        self._terms = terms
        self._cores: dict[str, int] = {}
        self._trial = 0
        self._begun: Instant | None = None
        self._told = 0
        self._news: deque[e.Fact] = deque()
        self._over = False

    def send_command(self, number: int, command: e.Tell) -> None:
        if number <= self._told or self._over:
            return
        self._told = number
        self._advance(command.at)
        match command:
            case e.TellJoin():
                self._cores |= dict.fromkeys(command.instances, command.cores)
                self._news.extend(e.MachineJoined(command.at, name) for name in command.instances)
            case e.TellWarning() | e.TellLost() | e.TellReleased():
                for name in command.instances:
                    self._cores.pop(name, None)
            case e.TellStop():
                self._finish(command.at)
            case e.TellRestart():
                raise ValueError("a sweep has no state to begin again from")
        self._begun = command.at if self._cores else None

    def take_facts(self, now: Instant) -> tuple[e.Fact, ...]:
        self._advance(now)
        news, self._news = tuple(self._news), deque()
        return news

    def next_change(self, after: Instant) -> Instant | None:
        if self._news or self._over or self._begun is None:
            return after if self._news else None
        return seconds_after(self._begun, TRIAL_CORE_S / sum(self._cores.values()))

    def pending_effects(self) -> tuple[Effect, ...]:
        return ()

    def poll(self, timeout_s: float) -> bool:
        raise RuntimeError("virtual time jumps")

    def close(self) -> None:
        """Holds nothing."""

    def _advance(self, now: Instant) -> None:
        while not self._over and self._begun is not None:
            ends = seconds_after(self._begun, TRIAL_CORE_S / sum(self._cores.values()))
            if ends > now:
                return
            self._trial, self._begun = self._trial + 1, ends
            self._news.append(e.Progressed(ends, self._trial, self._trial))
            if self._trial == self._terms.work.stop.clocks:
                self._finish(ends)

    def _finish(self, at: Instant) -> None:
        self._over = True
        self._news.append(e.TrainingFinished(at, self._trial, "leaderboard.csv"))


def make_sweep(section: Section, values: Values) -> JobSpec:
    most = values["resources"]["spot"]["max_instances"]
    return JobSpec(
        name=values["name"],
        engine=SWEEP,
        app="",
        args={},
        data="",
        stop=StopSpec(values["trials"]),
        reliable=None,
        spot=SpotSpec(most, most, instance_types=("c4.xlarge",)),
        objective=ObjectiveSpec(strategy="proteus"),
        scaling=ScalingSpec(),
        training=TrainingSpec(staleness=0, partitions=1, shards=1),
        drain=False,
        seed=0,
        output=str(section.document.folder / "leaderboards"),
        local=LocalSpec(core_seconds_per_clock=TRIAL_CORE_S),
        envs={},
    )


_MOST = Key(
    "max_instances", whole_number(1), "machines at once", 1, needs="the most machines to hold, like 8"
)
_SPOT = KeyTable(keep_values, (_MOST,))
_RESOURCES = KeyTable(keep_values, (Key("spot", _SPOT, "", FROM_EMPTY),))
SWEEP_JOB = KeyTable(
    make_sweep,
    (
        Key("trials", whole_number(1), "how many settings are tried", 1, needs="how many settings are tried"),
        Key("resources", _RESOURCES, "", FROM_EMPTY),
    ),
)


def _check_nothing(settings: Settings, terms: RunSpec) -> None:
    """Accepts every job: there is no input to look at."""


def _no_processes(settings: Settings, terms: RunSpec, run: Run) -> EngineAdapter:
    raise NotImplementedError("this engine is replayed only")


@pytest.fixture
def sweep() -> Iterator[Engine]:
    engine = Engine(SWEEP, SWEEP_JOB, _check_nothing, ModelledSweep, _no_processes)
    register_engine(engine)
    yield engine
    for table in (JOB_TABLES, JOB_CHECKS, MODELS, registry.ADAPTERS):
        table.pop(SWEEP.kind)


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "tuning.yaml"
    path.write_text(JOB)
    return str(path)


@pytest.mark.usefixtures("sweep")
def test_it_is_planned_launched_shown_and_billed_by_its_own_words(job: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    start = ("--trace-start", TRACE_START)
    planned = spotctl("plan", job, *start, "--json", home=home)
    assert planned.exit_code == 0, planned.output
    launched = spotctl("launch", job, *start, "--world", "replay", "--yes", home=home)
    assert launched.exit_code == 0, launched.output
    assert "trained: 30 trials done, leaderboard in leaderboard.csv" in launched.stderr
    home = home / "replays"  # as a launch over past prices says
    (run,) = json.loads(spotctl("status", "--json", home=home).stdout)["runs"]
    assert (run["state"], run["exit_code"]) == ("done", 0)
    assert "trial 30 of 30" in spotctl("status", "tuning", home=home).stdout
    reported = json.loads(spotctl("report", "--by", "job", "--format", "json", home=home).stdout)
    (row,) = reported["rows"]
    assert (row["job"], row["spot"]) == ("tuning", run["cost"]["spot"])
    assert float(row["spot"]) > 0


@pytest.mark.usefixtures("sweep")
def test_its_final_object_names_it(job: str, tmp_path: Path) -> None:
    options = ("--world", "replay", "--trace-start", TRACE_START, "--yes", "--json")
    final = json.loads(spotctl("launch", job, *options, home=tmp_path / "home").stdout.splitlines()[-1])
    assert (final["engine"], final["clocks"], final["state"]) == ("sweep", 30, "done")


@pytest.mark.usefixtures("sweep")
def test_its_section_is_checked_with_line_and_remedy(job: str) -> None:
    Path(job).write_text(JOB.replace("trials: 30", "trials: none"))
    refused = spotctl("plan", job)
    assert refused.exit_code == 2
    assert "trials" in refused.stderr
    assert ":2:" in refused.stderr or "line 2" in refused.stderr


@pytest.mark.usefixtures("sweep")
def test_its_section_is_in_the_schema_of_job_files() -> None:
    schema = job_schema()
    assert "trials" in schema["properties"]
    assert SWEEP.kind in schema["properties"]["engine"]["enum"]
    own = schema["$defs"][SWEEP.kind]
    assert own["required"] == ("trials",)
    assert own["properties"]["trials"]["minimum"] == 1


def test_a_name_is_taken_once(sweep: Engine) -> None:
    with pytest.raises(ValueError, match="there is an engine 'sweep' already"):
        register_engine(sweep)
