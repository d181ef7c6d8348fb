"""The contract of ``spotctl.engines.base``, on every engine: its model, and its processes (played).

A training promises:

    commands   numbered from 1; repeated under its number, a command has no further effect
    facts      each once, in order, and none later than now; when the next will come is told beforehand
               where it is known, and nothing comes before
    machines   a machine joins once, and is safe to kill once, after it was warned; one that is gone is
               heard of no more, and nobody waits for it
    progress   counts up to the last unit; what would survive a loss is never more than what is done
    the end    comes once, after the last unit or a stop, and nothing after it
    a restart  a training opened again, with what the ledger has, reports the rest and nothing twice

A training enters with a line in ``BENCHES``: what opens it, given the entries that are on record, and who
plays its machines. An engine enters the last tests by being registered, and with a job in ``JOBS``.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, get_args

import pytest

from agileml.apps.planted import planted_ratings, write_ratings
from agileml.client import TrainingClient
from agileml.job import JobFolder, TrainingJob
from agileml.node.programs import messages as m
from agileml.node.programs.job_folder import ProgramFolder
from agileml.node.run_folder import RunFolder
from agileml.protocol import commands as c
from agileml.protocol.events import Setup
from agileml.protocol.telemetry import Upward
from agileml.protocol.wire import control_to_json
from bidbrain.model import Limits
from bidbrain.strategies.recovery import Checkpointing
from pricing_data.model.units import Instant, Seconds
from spotctl.control import entries as e
from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM
from spotctl.control.run_spec import CheckpointPolicy
from spotctl.engines.agileml import REPORTED_FACTS, AgileMLTraining
from spotctl.engines.agileml_model import SimulatedTraining
from spotctl.engines.base import Training, repeat_commands
from spotctl.engines.command import CommandTraining
from spotctl.engines.command_model import SimulatedProgram
from spotctl.engines.registry import ADAPTERS, EngineAdapter, adapt_engine
from spotctl.engines.shadowed import ReplayedFacts, ShadowedTraining
from spotctl.engines.simulated import MODELS
from spotctl.job.checks import JOB_CHECKS
from spotctl.job.file import JOB_TABLES, load_job
from spotctl.job.settings import LaunchOptions, Settings
from spotctl.records.run import Run
from tests.agileml.processes.program_agents import PlayedAgent, described
from tests.spotctl.build import START, changed, terms
from tests.spotctl.engines.test_third_engine import SWEEP, ModelledSweep

PATIENCE_S = 30.0
SPEED = 600.0
UNITS = 50


class Machines(Protocol):
    """Plays the machines of a training."""

    @property
    def is_working(self) -> bool: ...

    def obey(self, command: e.Tell) -> None:
        """Does what machines do after a command: they join, leave, or save the model."""
        ...

    def work(self) -> None:
        """Completes the next unit."""
        ...

    def take_turn(self) -> None:
        """Sends what is due, and answers what has come."""
        ...


class Modelled:
    """The machines of a model, which are arithmetic."""

    is_working = True

    def obey(self, command: e.Tell) -> None: ...

    def work(self) -> None: ...

    def take_turn(self) -> None: ...


@dataclass
class PlayedController:
    """Stands for AgileML's controller and its machines, which leave word in the job's folder."""

    folder: JobFolder
    unit: int = 0
    words: list[Upward] = field(default_factory=list)
    is_working: bool = True

    def obey(self, command: e.Tell) -> None:
        match command:
            case e.TellJoin():
                self._say(*(c.JoinedTraining(name) for name in command.instances))
            case e.TellWarning():
                self._say(*(c.SafeToKill(name) for name in command.instances))
            case e.TellLost():
                self.unit -= 1
                self._say(c.RolledBack(self.unit, 1))
            case e.TellStop():
                self._say(c.Finished(self.unit, "model.npz"))
            case _:
                pass

    def work(self) -> None:
        self.unit += 1
        self._say(c.Progressed(self.unit, self.unit - 1))

    def take_turn(self) -> None: ...

    def _say(self, *words: Upward) -> None:
        self.words += words
        lines = [{"number": n, "message": control_to_json(word)} for n, word in enumerate(self.words, 1)]
        self.folder.last_words.write_text(json.dumps(lines))


@dataclass
class PlayedAgents:
    """Stands for the agents of a program's machines, which speak the real link."""

    folder: ProgramFolder
    agents: dict[str, PlayedAgent] = field(default_factory=dict)
    active: str = ""
    unit: int = 0
    saved: int = 0

    @property
    def is_working(self) -> bool:
        return self.active != ""

    def obey(self, command: e.Tell) -> None:
        match command:
            case e.TellJoin():
                for name in command.instances:
                    self.agents[name] = PlayedAgent(self.folder, name)
                    self.agents[name].say(m.Ready())
            case e.TellLost() | e.TellReleased():
                for name in command.instances:
                    self.agents.pop(name).close()
                    self.active = "" if self.active == name else self.active
            case _:
                pass

    def work(self) -> None:
        self.unit += 1
        self.agents[self.active].say(m.Reached(self.unit))

    def take_turn(self) -> None:
        for name, agent in self.agents.items():
            agent.turn()
            while agent.orders:
                order = agent.orders.popleft()
                if isinstance(order, m.Begin):
                    self.active, self.unit = name, self.saved
                    agent.say(m.Began(order.attempt, self.saved))
                elif isinstance(order, m.Leave):
                    self.saved = self.unit
                    agent.say(m.Saved(self.saved, name, 1000), m.Left())


# ---- one for each training -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    """A training under test. ``open``: returns it as of the entries on record, commands not yet repeated."""

    open: Callable[[Sequence[e.Entry]], Training]
    machines: Machines
    has_processes: bool = False
    reliable: bool = True
    reports_safe: bool = True


ELASTIC = terms(clocks=UNITS)
PROGRAM = changed(
    ELASTIC,
    engine=CHECKPOINTING_PROGRAM,
    reliable_count=0,
    limits=Limits(1, 1),
    checkpoints=Checkpointing(Seconds(1200.0), 0.0, Seconds(60.0)),
)


def modelled_agileml(_: Path) -> Bench:
    return Bench(lambda on_record: ReplayedFacts(SimulatedTraining(ELASTIC), on_record), Modelled())


def modelled_command(_: Path) -> Bench:
    def simulate() -> Training:
        return SimulatedProgram(PROGRAM, PROGRAM.checkpointing)

    return Bench(lambda on_record: ReplayedFacts(simulate(), on_record), Modelled(), reliable=False)


def modelled_sweep(_: Path) -> Bench:
    """An engine that the program has never heard of; nothing of a trial is saved."""
    spec = replace(changed(ELASTIC, reliable_count=0), engine=SWEEP)
    return Bench(
        lambda on_record: ReplayedFacts(ModelledSweep(spec), on_record),
        Modelled(),
        reliable=False,
        reports_safe=False,
    )


def agileml(folder: Path) -> Bench:
    source = folder / "ratings.csv"
    write_ratings(planted_ratings(20, 10, 2, 0.1, 0.5, seed=0), source)
    job = TrainingJob(
        "agileml.apps.mf:MatrixFactorization", {"rank": 2}, Setup(partitions=1, shards=2, clocks=UNITS)
    )
    prepared = JobFolder.prepare(folder / "training", job, source)

    def open_it(on_record: Sequence[e.Entry]) -> Training:
        heard = [entry for entry in on_record if isinstance(entry, REPORTED_FACTS)]
        client = TrainingClient(prepared.path, told=0, heard=len(heard))
        return AgileMLTraining(client, ELASTIC, SPEED, str, heard)

    return Bench(open_it, PlayedController(prepared), has_processes=True)


def command(folder: Path) -> Bench:
    prepared = ProgramFolder.prepare(folder / "training", described("true", folder))

    def open_it(on_record: Sequence[e.Entry]) -> Training:
        heard = sum(isinstance(entry, REPORTED_FACTS) for entry in on_record)
        return CommandTraining(prepared, PROGRAM, SPEED, 0, lambda: "", lambda _: None, heard)

    return Bench(open_it, PlayedAgents(prepared), has_processes=True, reliable=False)


def shadowed(folder: Path) -> Bench:
    """The model's facts, AgileML's processes: only their end is waited for."""
    real = agileml(folder)

    def open_it(on_record: Sequence[e.Entry]) -> Training:
        return ShadowedTraining(ReplayedFacts(SimulatedTraining(ELASTIC), on_record), real.open(()))

    return Bench(open_it, real.machines, has_processes=True)


MODELS_ALONE = [modelled_agileml, modelled_command, modelled_sweep]
BENCHES = [*MODELS_ALONE, agileml, command, shadowed]


# ---- what a world does with it ---------------------------------------------------------------------


class Drive:
    """Drives a training as a world does, with a ledger."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.training = bench.open(())
        self.entries: list[e.Entry] = []
        self.now = START
        self.told = 0

    @property
    def facts(self) -> list[e.Fact]:
        return [entry for entry in self.entries if isinstance(entry, get_args(e.Fact))]

    def tell(self, command: e.Tell, *, obeyed: bool = True) -> None:
        self.entries.append(command)
        self.told += 1
        self.training.send_command(self.told, command)
        if obeyed:
            self.bench.machines.obey(command)

    def take(self) -> None:
        """Records what is known by now."""
        facts = self.training.take_facts(self.now)
        known = [fact.at for fact in self.facts[-1:]]
        assert [*known, *(fact.at for fact in facts)] == sorted([*known, *(fact.at for fact in facts)])
        assert all(fact.at <= self.now for fact in facts)
        self.entries += facts
        assert self.training.take_facts(self.now) == (), "each fact is returned once"

    def step(self) -> None:
        """Goes on to the next moment at which there may be news."""
        self.bench.machines.take_turn()
        self.take()
        coming = self.training.next_change(self.now)
        if coming is not None:
            self.now = max(self.now, coming)
        elif self.bench.has_processes:
            self.training.poll(0.01)
        self.take()

    def await_facts(self, kind: type[e.Fact], count: int) -> None:
        """Goes on until ``count`` facts of a kind are on record."""
        until = time.monotonic() + PATIENCE_S
        while sum(isinstance(fact, kind) for fact in self.facts) < count:
            assert time.monotonic() < until, f"{kind.__name__} does not come: {self.facts}"
            self.step()

    def restart(self) -> None:
        """Closes the training, and opens it again with what is on record."""
        self.training.close()
        self.training = self.bench.open(tuple(self.entries))
        repeat_commands(self.training, self.entries)
        self.take()

    # ---- a story -----------------------------------------------------------------------------

    def join(self, *names: str, reliable: bool = False) -> None:
        joined = sum(isinstance(fact, e.MachineJoined) for fact in self.facts)
        self.tell(e.TellJoin(self.now, names, reliable, 4))
        self.await_facts(e.MachineJoined, joined + len(names))

    def work(self) -> None:
        done = [fact.clock for fact in self.facts if isinstance(fact, e.Progressed)]
        until = time.monotonic() + PATIENCE_S
        while not self.bench.machines.is_working:
            assert time.monotonic() < until
            self.step()
        self.bench.machines.work()
        self.await_facts(e.Progressed, len(done) + 1)

    def warn(self, name: str) -> None:
        safe = sum(isinstance(fact, e.SafeToKill) for fact in self.facts)
        self.tell(e.TellWarning(self.now, (name,), Instant(self.now + 120)))
        if self.bench.reports_safe:
            self.await_facts(e.SafeToKill, safe + 1)


ENDS, MOVES = e.TrainingFinished | e.TrainingFailed, e.Progressed | e.RolledBack | e.MachineJoined


def _begin(drive: Drive) -> None:
    if drive.bench.reliable:
        drive.join("r1", reliable=True)
    drive.join("s1", "s2")


def _lose_another(drive: Drive) -> None:
    drive.tell(e.TellLost(drive.now, ("s2",)))
    drive.join("s3")


def _stop(drive: Drive) -> None:
    drive.tell(e.TellStop(drive.now))
    drive.await_facts(e.TrainingFinished, 1)


STORY: tuple[Callable[[Drive], None], ...] = (
    _begin,
    Drive.work,
    Drive.work,
    lambda drive: drive.warn("s1"),
    lambda drive: drive.tell(e.TellReleased(drive.now, ("s1",))),
    Drive.work,
    _lose_another,
    Drive.work,
    _stop,
)


def _tell_story(drive: Drive, restart_after: int | None = None) -> list[e.Fact]:
    for number, chapter in enumerate(STORY):
        chapter(drive)
        if number == restart_after:
            drive.restart()
    return drive.facts


def _name(make: Callable[[Path], Bench]) -> str:
    return make.__name__


@pytest.fixture(autouse=True)
def _remove_sockets(tmp_path: Path) -> Iterator[None]:
    yield
    for sockets in tmp_path.rglob("sockets"):
        RunFolder(sockets.parent).remove_sockets()


@pytest.fixture(params=BENCHES, ids=_name)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made: Bench = request.param(tmp_path)
    yield made
    if isinstance(made.machines, PlayedAgents):
        for agent in made.machines.agents.values():
            agent.close()


@pytest.fixture
def drive(bench: Bench) -> Iterator[Drive]:
    made = Drive(bench)
    yield made
    made.training.close()


# ---- facts -----------------------------------------------------------------------------------------


def test_machines_join_once_and_are_safe_once_after_they_were_warned(drive: Drive) -> None:
    facts = _tell_story(drive)
    joined = Counter(fact.instance for fact in facts if isinstance(fact, e.MachineJoined))
    assert joined == dict.fromkeys(["s1", "s2", "s3", *(["r1"] if drive.bench.reliable else [])], 1)
    safe = [fact.instance for fact in facts if isinstance(fact, e.SafeToKill)]
    assert Counter(safe)["s1"] == (1 if drive.bench.reports_safe else 0)
    (warned,) = (entry for entry in drive.entries if isinstance(entry, e.TellWarning))
    for fact in facts:
        if isinstance(fact, e.SafeToKill) and fact.instance == "s1":
            assert warned.at <= fact.at < warned.ends_at


def test_progress_counts_up_and_only_what_is_done_would_survive_a_loss(drive: Drive) -> None:
    _tell_story(drive)
    check_progress(drive)
    assert sum(isinstance(fact, e.Progressed) for fact in drive.facts) >= 4


def check_progress(drive: Drive) -> None:
    at, saved = 0, 0
    for fact in drive.facts:
        if isinstance(fact, e.Progressed):
            assert at < fact.clock == at + 1 or fact.consistent > saved, "news are new"
            assert 0 <= fact.consistent <= fact.clock
            at, saved = fact.clock, fact.consistent
        elif isinstance(fact, e.RolledBack):
            assert 0 <= fact.to == at - fact.redone
            at, saved = fact.to, min(saved, fact.to)
        elif isinstance(fact, e.TrainingFinished):
            assert fact.clock <= at


def test_the_end_comes_once_and_nothing_after_it(drive: Drive) -> None:
    _tell_story(drive)
    assert isinstance(drive.facts[-1], e.TrainingFinished)
    assert drive.training.pending_effects() == ()
    before = len(drive.facts)
    drive.training.send_command(drive.told + 1, e.TellStop(drive.now))
    drive.training.send_command(drive.told + 2, e.TellJoin(drive.now, ("s9",), False, 4))
    assert drive.training.pending_effects() == ()
    for _ in range(3):
        drive.now = Instant(drive.now + 7200)
        drive.step()
    assert [fact for fact in drive.facts[before:] if isinstance(fact, ENDS | MOVES)] == []


def test_a_training_without_machines_stops_too(drive: Drive) -> None:
    drive.tell(e.TellStop(drive.now))
    drive.await_facts(e.TrainingFinished, 1)
    (end,) = drive.facts
    assert isinstance(end, e.TrainingFinished)
    assert end.clock == 0


@pytest.mark.parametrize("bench", MODELS_ALONE, indirect=True, ids=_name)
def test_work_ends_by_itself_with_its_last_unit(drive: Drive) -> None:
    _begin(drive)
    drive.await_facts(e.TrainingFinished, 1)
    done = [fact.clock for fact in drive.facts if isinstance(fact, e.Progressed)]
    assert max(done) in (UNITS - 1, UNITS)
    end = drive.facts[-1]
    assert isinstance(end, e.TrainingFinished)
    assert end.clock == UNITS


@pytest.mark.parametrize("bench", MODELS_ALONE, indirect=True, ids=_name)
def test_nothing_comes_before_it_was_announced(drive: Drive) -> None:
    """A model knows its next news beforehand: virtual time jumps to it."""
    _begin(drive)
    for _ in range(20):
        coming = drive.training.next_change(drive.now)
        assert coming is not None
        assert drive.training.take_facts(Instant(coming - 1)) == ()
        drive.now = coming
        before = len(drive.facts)
        drive.take()
        assert len(drive.facts) > before


@pytest.mark.parametrize("bench", MODELS_ALONE, indirect=True, ids=_name)
def test_facts_do_not_depend_on_when_they_are_taken(bench: Bench) -> None:
    seldom, often = Drive(bench), Drive(bench)
    for drive in (seldom, often):
        _begin(drive)
        drive.tell(e.TellWarning(Instant(START + 2000), ("s1",), Instant(START + 2120)))
    for at in range(START + 2000, START + 20_000, 13):
        often.now = Instant(at)
        often.take()
    seldom.now = Instant(often.now)
    seldom.take()
    assert seldom.facts == often.facts
    assert len(often.facts) > 5


# ---- commands --------------------------------------------------------------------------------------


def test_a_command_repeated_under_its_number_has_no_further_effect(drive: Drive) -> None:
    _begin(drive)
    drive.work()
    drive.warn("s1")
    before, awaited = len(drive.facts), drive.training.pending_effects()
    repeat_commands(drive.training, drive.entries)
    assert drive.training.pending_effects() in ((), awaited)
    drive.bench.machines.take_turn()
    drive.take()
    assert not [fact for fact in drive.facts[before:] if isinstance(fact, ENDS | MOVES | e.SafeToKill)]


def test_what_is_waited_for_is_what_has_not_come(drive: Drive) -> None:
    """Nominal time stands still for it. A model is never late: nothing of it is waited for."""
    if drive.bench.reliable:
        drive.join("r1", reliable=True)
    join = e.TellJoin(drive.now, ("s1",), False, 4)
    drive.tell(join, obeyed=False)
    awaited = [effect.name for effect in drive.training.pending_effects() if "s1" in effect.name]
    assert awaited == (["s1 joins"] if drive.bench.has_processes else [])
    drive.bench.machines.obey(join)
    drive.await_facts(e.MachineJoined, 2 if drive.bench.reliable else 1)
    while drive.training.pending_effects():  # a model may be ahead of the processes beside it
        drive.training.poll(PATIENCE_S)
        drive.take()


def test_a_machine_that_went_before_it_joined_is_not_waited_for(drive: Drive) -> None:
    if drive.bench.reliable:
        drive.join("r1", reliable=True)
    for leave, name in ((e.TellReleased, "s1"), (e.TellLost, "s2")):
        drive.tell(e.TellJoin(drive.now, (name,), False, 4), obeyed=False)
        drive.tell(leave(drive.now, (name,)), obeyed=False)
        assert not [effect for effect in drive.training.pending_effects() if name in effect.name]
        if drive.bench.reports_safe:  # a sweep's machines join at once
            drive.now = Instant(drive.now + 600)
            drive.step()
            assert not [f for f in drive.facts if isinstance(f, e.MachineJoined) and f.instance == name]


# ---- a restart -------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", range(len(STORY)))
def test_a_restart_changes_nothing_that_is_reported(bench: Bench, drive: Drive, after: int) -> None:
    facts = _tell_story(drive, restart_after=after)
    once = [fact for fact in facts if isinstance(fact, e.MachineJoined | e.SafeToKill | e.TrainingFinished)]
    assert max(Counter((type(fact), getattr(fact, "instance", None)) for fact in once).values()) == 1
    check_progress(drive)
    if not bench.has_processes:
        assert facts == _tell_story(Drive(bench))


@pytest.mark.parametrize("make", [modelled_agileml, shadowed])
def test_a_failure_is_reported_once(make: Callable[[Path], Bench], tmp_path: Path) -> None:
    """The only copy of the model goes with its machine, and no checkpoint is kept."""
    bench = make(tmp_path)
    drive = Drive(bench)
    drive.join("r1", reliable=True)
    bench.machines.obey(e.TellStop(START))
    drive.tell(e.TellLost(drive.now, ("r1",)))
    drive.await_facts(e.TrainingFailed, 1)
    before = len(drive.facts)
    drive.restart()
    drive.now = Instant(drive.now + 3600)
    drive.take()
    assert len(drive.facts) == before
    drive.training.close()


@pytest.mark.parametrize("after", range(6))
def test_a_training_that_begins_again_from_its_checkpoint_says_so_once(after: int) -> None:
    keeping = changed(ELASTIC, keeps=CheckpointPolicy(clocks=1, seconds=Seconds(0.0)))
    bench = Bench(lambda on_record: ReplayedFacts(SimulatedTraining(keeping), on_record), Modelled())
    drive = Drive(bench)
    story: tuple[Callable[[Drive], None], ...] = (
        _begin,
        lambda drive: drive.await_facts(e.Checkpointed, 2),
        lambda drive: drive.tell(e.TellRestart(drive.now, 1)),
        lambda drive: drive.join("r2", reliable=True),
        lambda drive: drive.await_facts(e.Checkpointed, 4),
        _stop,
    )
    for number, chapter in enumerate(story):
        chapter(drive)
        if number == after:
            drive.restart()
    (resumed,) = (fact for fact in drive.facts if isinstance(fact, e.TrainingResumed))
    kept = [fact.clock for fact in drive.facts if isinstance(fact, e.Checkpointed)]
    assert kept == sorted(set(kept))
    assert resumed.clock == kept[1]


# ---- an engine as a whole --------------------------------------------------------------------------

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = {"agileml": EXAMPLES / "quickstart.yaml", "command": EXAMPLES / "command_numpy.yaml"}


@pytest.fixture(params=JOBS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], EngineAdapter]:
    """Connects one run to its engine, anew each time."""
    spec = replace(load_job(JOBS[request.param]), checkpoint=None, output=str(tmp_path / "output"))
    folder = tmp_path / "runs" / "job" / "run"
    folder.mkdir(parents=True)
    run_spec = PROGRAM if request.param == "command" else replace(ELASTIC, engine=spec.engine)
    settings = Settings.from_options(spec, LaunchOptions())
    return lambda: adapt_engine(settings, run_spec, Run(folder))


class Nobody:
    """There are no machines."""

    def is_alive(self, machine: str) -> bool:
        return False

    def kill(self, machine: str) -> None: ...


def test_every_engine_has_all_its_parts() -> None:
    assert JOBS.keys() == ADAPTERS.keys() == MODELS.keys() == JOB_CHECKS.keys() == JOB_TABLES.keys()
    for kind, path in JOBS.items():
        assert load_job(path).engine.kind == kind


def test_a_run_is_prepared_when_the_preparation_got_to_its_end(opened: Callable[[], EngineAdapter]) -> None:
    """Its process may be killed before, or asked to stop."""

    def stop() -> None:
        raise KeyboardInterrupt

    assert not opened().is_prepared
    with suppress(KeyboardInterrupt):
        opened().prepare(stop)
        return  # it does not take long enough to ask
    assert not opened().is_prepared
    opened().prepare()
    assert opened().is_prepared


def test_a_run_that_has_not_begun_has_not_finished_and_has_nothing_to_report(
    opened: Callable[[], EngineAdapter],
) -> None:
    opened().prepare()
    assert opened().is_prepared
    for _ in range(2):
        assert opened().finished_at() is None
        training = opened().build_training(Nobody(), ())
        assert not training.poll(0.0)
        assert training.take_facts(START) == ()
        assert training.pending_effects() == ()
        training.close()
