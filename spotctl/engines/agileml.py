"""Connects a world to a real AgileML training, which gets nominal time and is awaited in real time.

What the training is told is in the ledger, so a restarted process repeats it all under the same numbers.
What it reported is in the ledger too, one fact for each message, so none is lost or counted twice. A world
calls ``poll`` only when everything that ``take_facts`` gave is recorded: that confirms it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, assert_never

from agileml.client import TrainingClient
from agileml.node.checkpoint_store import CheckpointError
from agileml.node.tier import Tier
from agileml.protocol import commands as c
from agileml.protocol import events as a
from agileml.protocol.telemetry import ConvergenceCheck, EvictionNoticed, MachineGivenUp, ObjectiveAt, Upward
from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.control.run_spec import RunSpec
from spotctl.engines.base import (
    commands_to_training,
    end_effect,
    join_effect,
    notice_s,
    noticed_eviction,
    safe_effect,
)
from spotctl.records.outputs import OutputNotStored
from spotctl.timesource import Effect

JOIN_FLOOR_S: Final = 30.0
"""Real seconds that a machine may take to start its processes and load the input, however fast time runs."""

REPORTED_FACTS: Final = (
    e.MachineJoined,
    e.MachineGivenUp,
    e.EvictionNoticed,
    e.SafeToKill,
    e.ProgramBegan,
    e.Progressed,
    e.CheckpointStored,
    e.CheckpointFetched,
    e.Checkpointed,
    e.CheckpointFailed,
    e.ObjectiveReported,
    e.StageEntered,
    e.RolledBack,
    e.TrainingFinished,
    e.TrainingFailed,
)
"""The facts that each stand for one message of a training, whatever its engine."""


_STOP, _LAST_CLOCK = "/stop", "/last clock"
"""Reasons why the training should end: names of that effect, beside those of machines."""

RestartPoint: TypeAlias = tuple[TrainingClient, tuple[int, str]]
"""The client of the training that begins again, and the clock and folder of its checkpoint."""


def _refuse_restart(_: int) -> RestartPoint:
    raise CheckpointError("it keeps no checkpoints")


def attempt_record(entries: Sequence[e.Entry], number: int) -> tuple[int, tuple[e.Fact, ...]]:
    """Returns the record of the attempt after restart ``number`` (0: the first attempt).

    The first part is how many commands came before it, the restart included; the second, its recorded facts.
    """
    told = next(
        (n for n, tell in enumerate(commands_to_training(entries), start=1) if _is_restart(tell, number)), 0
    )
    current, facts = 0, []
    for entry in entries:
        if isinstance(entry, e.TellRestart):
            current = entry.number
        elif current == number and isinstance(entry, (*REPORTED_FACTS, e.TrainingResumed)):
            facts.append(entry)
    return told, tuple(facts)


def _is_restart(command: e.Entry, number: int) -> bool:
    return isinstance(command, e.TellRestart) and command.number == number


def _reports_not_awaited(heard: Iterable[e.Fact]) -> Iterator[tuple[type[e.Fact], str]]:
    """Yields reports not to wait for: those made, and those that a given-up machine will never make."""
    for fact in heard:
        if isinstance(fact, e.MachineJoined | e.SafeToKill):
            yield type(fact), fact.instance
        elif isinstance(fact, e.MachineGivenUp):
            yield from ((kind, fact.instance) for kind in (e.MachineJoined, e.SafeToKill))


class AgileMLTraining:
    """Runs one AgileML training.

    ``keep(saved) -> kept`` puts the model that training saved where the job wants it, or raises NotKept:
    then the job has failed.
    ``heard``: the recorded facts, which ``client`` must not report again; nothing they report is waited for.
    ``end_checkpoints()`` runs when the job's work is done, at its last clock or once its objective has
    settled; it returns why checkpoints stay although they should not.
    ``resumed``: clock and folder of the checkpoint that training begins with, unless that is on record.
    ``again(number)`` prepares the job's folder for the restart of that number and returns what to go on with;
    raises CheckpointError. ``told``: how many commands were for attempts that are over.
    """

    def __init__(
        self,
        client: TrainingClient,
        terms: RunSpec,
        speed: float,
        keep: Callable[[str], str],
        heard: Iterable[e.Fact] = (),
        end_checkpoints: Callable[[], str] = lambda: "",
        resumed: tuple[int, str] | None = None,
        again: Callable[[int], RestartPoint] = _refuse_restart,
        told: int = 0,
    ) -> None:
        self._client = client
        self._terms = terms
        self._speed = speed
        self._keep = keep
        self._news: deque[Upward] = deque()
        self._effects: dict[str, Effect] = {}
        heard = tuple(heard)
        self._over = any(isinstance(fact, e.TrainingFinished | e.TrainingFailed) for fact in heard)
        self._done = frozenset(_reports_not_awaited(heard))
        self._told = told
        self._again = again
        self._end_checkpoints = end_checkpoints
        self._settling = ConvergenceCheck(terms.work.stop.objective_delta)
        self._settled = False
        self._resumed = resumed
        self._silent: str | None = None
        """The controller's machine, if it hangs and that has not been reported yet."""
        self._called_silent: set[str] = set()
        # Effects that the recorded facts left open are awaited again.
        for fact in heard:
            self._note_objective(fact)
            if isinstance(fact, e.Progressed) and fact.clock == terms.work.stop.clocks:
                self._await_end(_LAST_CLOCK, fact.at)
            elif isinstance(fact, e.RolledBack):
                self._effects.pop(_LAST_CLOCK, None)

    def send_command(self, number: int, command: e.Tell) -> None:
        if number <= self._told:
            return
        self._told = number
        if isinstance(command, e.TellRestart):
            self._begin_again(command.number)
        else:
            self._client.send_events(*self._to_events(command))

    def take_facts(self, now: Instant) -> tuple[e.Fact, ...]:
        """Returns what was heard since the last call, each once, as of ``now``; a resumption first."""
        facts = [self._to_fact(now, message) for message in self._news]
        self._news.clear()
        if self._resumed is not None:
            facts.insert(0, e.TrainingResumed(now, *self._resumed))
            self._resumed = None
        if self._silent is not None:
            facts.append(e.ControllerSilent(now, self._silent))
            self._silent = None
        # A copy, since the loop appends.
        for fact in tuple(facts):
            self._note_objective(fact)
            if isinstance(fact, e.TrainingFinished) and self._is_work_done(fact.clock):
                why = self._end_checkpoints()
                facts += [e.CheckpointFailed(now, fact.clock, why)] if why else []
        return tuple(facts)

    def _note_objective(self, fact: e.Fact) -> None:
        if isinstance(fact, e.ObjectiveReported):
            self._settled = self._settling.has_converged(fact.value) or self._settled

    def _is_work_done(self, clock: int) -> bool:
        return self._settled or clock == self._terms.work.stop.clocks

    def next_change(self, after: Instant) -> Instant | None:
        return None

    def pending_effects(self) -> tuple[Effect, ...]:
        return tuple(self._effects.values())

    def poll(self, timeout_s: float) -> bool:
        self._news.extend(self._client.poll(timeout_s))
        self._notice_silence()
        return bool(self._news) or self._resumed is not None or self._silent is not None

    def close(self) -> None:
        self._client.close()

    def _notice_silence(self) -> None:
        """Notices a hanging machine that runs the controller: no other part would."""
        machine = self._client.hanging_controller
        if machine is not None and not self._over and machine not in self._called_silent:
            self._called_silent.add(machine)
            self._silent = machine

    def _begin_again(self, number: int) -> None:
        """Restarts the training; messages of its former controller are dropped."""
        self._news.clear()
        self._effects.clear()
        self._over, self._silent = False, None
        self._settling, self._settled = ConvergenceCheck(self._terms.work.stop.objective_delta), False
        try:
            client, self._resumed = self._again(number)
        except CheckpointError as error:
            self._news.append(c.Failed(f"it cannot begin again: {error}"))
            return
        # Closed only now: without a checkpoint to go on from, the old client stays in place.
        self._client.close()
        self._client = client

    # ---- what it is told --------------------------------------------------------------------

    def _to_events(
        self, command: e.TellJoin | e.TellWarning | e.TellLost | e.TellReleased | e.TellStop
    ) -> Iterator[a.Event]:
        match command:
            case e.TellJoin():
                tier = Tier.RELIABLE if command.reliable else Tier.TRANSIENT
                for name in command.instances:
                    effect = join_effect(name, command, self._terms.work.scaling.sigma_s, JOIN_FLOOR_S)
                    self._await_effect(name, e.MachineJoined, effect)
                    yield a.MachineJoined(name, tier, command.cores)
            case e.TellWarning():
                for name in command.instances:
                    self._await_effect(name, e.SafeToKill, safe_effect(name, command))
                yield a.EvictionWarned(command.instances, notice_s(command, self._speed))
            case e.TellLost():
                yield from (a.MachineLost(name) for name in self._forget_effects(command.instances))
            case e.TellReleased():
                yield from (a.MachineReleased(name) for name in self._forget_effects(command.instances))
            case e.TellStop():
                self._await_end(_STOP, command.at)
                yield a.StopRequested()
            case _:
                assert_never(command)

    def _await_effect(self, name: str, reported_by: type[e.Fact], effect: Effect) -> None:
        """Awaits an effect, unless it has happened or will not: a finished training reports no machine any
        more.
        """
        if self._over or (reported_by, name) in self._done:
            self._effects.pop(name, None)
        else:
            self._effects[name] = effect

    def _await_end(self, why: str, since: Instant) -> None:
        if not self._over:
            self._effects[why] = end_effect(since, self._terms)

    def _forget_effects(self, names: Sequence[str]) -> Sequence[str]:
        for name in names:
            self._effects.pop(name, None)
        return names

    # ---- what it says -----------------------------------------------------------------------

    def _mark_over(self) -> None:
        self._over = True
        self._effects.clear()

    def _to_fact(self, now: Instant, message: Upward) -> e.Fact:
        match message:
            case c.JoinedTraining():
                self._effects.pop(message.machine, None)
                return e.MachineJoined(now, message.machine)
            case c.SafeToKill():
                self._effects.pop(message.machine, None)
                return e.SafeToKill(now, message.machine)
            case MachineGivenUp():
                self._effects.pop(message.machine, None)
                return e.MachineGivenUp(now, message.machine)
            case EvictionNoticed():
                return noticed_eviction(now, message.machine, message.notice_s, self._speed)
            case c.Progressed():
                if message.clock == self._terms.work.stop.clocks:
                    self._await_end(_LAST_CLOCK, now)
                return e.Progressed(now, message.clock, message.consistent)
            case ObjectiveAt():
                return e.ObjectiveReported(now, message.clock, message.value)
            case c.StageChanged():
                return e.StageEntered(now, int(message.stage))
            case c.RolledBack():
                self._effects.pop(_LAST_CLOCK, None)
                return e.RolledBack(now, message.to, message.redone)
            case c.Finished():
                self._mark_over()
                try:
                    return e.TrainingFinished(now, message.clock, self._keep(message.path))
                except OutputNotStored as error:
                    return e.TrainingFailed(now, str(error))
            case c.Checkpointed():
                return e.Checkpointed(now, message.clock, message.folder)
            case c.CheckpointFailed():
                return e.CheckpointFailed(now, message.clock, message.why)
            case c.Failed():
                self._mark_over()
                return e.TrainingFailed(now, message.why)
            case _:
                assert_never(message)
