"""Decides which machine runs the program: a pure state machine, told everything in order.

One machine runs the program at a time, the one that joined first of those that are prepared and stay.
Machines that are warned stop it and store its newest complete checkpoint; then, or when they are lost, the
next machine begins where the newest complete checkpoint ends.

It knows no processes, files, clocks or money. Folding the same events again gives the same orders and the
same news, so a restart is a replay of the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from agileml.node.programs import messages as m

# ---- news: upwards ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MachineReady:
    machine: str


@dataclass(frozen=True, slots=True)
class MachineSafeToKill:
    machine: str


@dataclass(frozen=True, slots=True)
class ProgramBegun:
    """The program runs on ``machine``, from ``step`` on."""

    machine: str
    step: int


@dataclass(frozen=True, slots=True)
class ProgramProgress:
    """The program's progress. ``saved``: the steps of the newest complete checkpoint in the store, at most
    ``step``.
    """

    step: int
    saved: int


@dataclass(frozen=True, slots=True)
class NewestStored:
    """The newest checkpoint is ``machine``'s. It is reported when its machine or its size has changed."""

    machine: str
    step: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FetchedFromStore:
    """A transfer from the store: ``machine`` fetched the checkpoint that ``stored_by`` wrote."""

    machine: str
    stored_by: str
    step: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NoticeHeard:
    """The machine itself hears that its provider takes it in ``seconds`` real ones."""

    machine: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ProgramObjective:
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class WentBack:
    to: int
    redone: int


@dataclass(frozen=True, slots=True)
class ProgramFinished:
    """The work is done, or a graceful stop is: ``step`` steps are kept."""

    step: int


@dataclass(frozen=True, slots=True)
class ProgramFailed:
    why: str


News: TypeAlias = (
    MachineReady
    | MachineSafeToKill
    | ProgramBegun
    | ProgramProgress
    | NewestStored
    | FetchedFromStore
    | NoticeHeard
    | ProgramObjective
    | WentBack
    | ProgramFinished
    | ProgramFailed
)


@dataclass(frozen=True, slots=True)
class SentOrder:
    """An order on its way to a machine."""

    machine: str
    order: m.Order


Effect: TypeAlias = SentOrder | News
Effects: TypeAlias = tuple[Effect, ...]

# ---- the state ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProgramMachine:
    ready: bool = False
    leaving: bool = False
    safe: bool = False


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """All that the supervisor knows.

    ``steps``: of the whole job, None where nobody knows; ``retries``: failures that may be tried again.
    """

    program: m.ProgramDescription
    steps: int | None
    retries: int
    machines: Mapping[str, ProgramMachine] = field(default_factory=dict)
    """Machines by name, in the order they joined."""
    active: str | None = None
    """The machine that runs the program, or is about to."""
    attempts: int = 0
    failures: int = 0
    step: int = 0
    reported: int | None = None
    """The furthest step that the program itself reported; None where it never does."""
    saved: int = 0
    stored: tuple[str, int] = ("", 0)
    """The machine that wrote the newest checkpoint, and its bytes."""
    stopping: bool = False
    over: bool = False


def step(state: SupervisorState, event: m.Event) -> tuple[SupervisorState, Effects]:
    """Returns the state after ``event``, and its effects, in order. There are none once it is over."""
    if state.over:
        return state, ()
    if isinstance(event, m.Said):
        handler, subject = _WORDS[type(event.word)], event.word
        if event.machine not in state.machines:
            return state, ()  # it is gone; what it still said changes nothing
        moved, effects = handler(state, event.machine, subject)
    else:
        moved, effects = _TOLD[type(event)](state, event)
    assigned, more = _assign_program(moved)
    return assigned, (*effects, *more)


def _assign_program(state: SupervisorState) -> tuple[SupervisorState, Effects]:
    """Assigns the program to the first machine that can run it, where none does."""
    if state.over or state.stopping or state.active is not None:
        return state, ()
    for name, machine in state.machines.items():
        if machine.ready and not machine.leaving:
            moved = replace(state, active=name, attempts=state.attempts + 1)
            return moved, (SentOrder(name, m.Begin(moved.attempts)),)
    return state, ()


def _with_machine(state: SupervisorState, name: str, **changes: bool) -> SupervisorState:
    return replace(state, machines={**state.machines, name: replace(state.machines[name], **changes)})


def _prepare(state: SupervisorState, name: str) -> SentOrder:
    return SentOrder(name, m.Prepare(state.program))


def _end_job(
    state: SupervisorState, news: ProgramFinished | ProgramFailed
) -> tuple[SupervisorState, Effects]:
    return replace(state, over=True), (news,)


# ---- what the supervisor is told ----------------------------------------------------------------


def _machines_joined(state: SupervisorState, event: m.Joined) -> tuple[SupervisorState, Effects]:
    new = [name for name in event.machines if name not in state.machines]
    machines = {**state.machines, **{name: ProgramMachine() for name in new}}
    return replace(state, machines=machines), tuple(_prepare(state, name) for name in new)


def _machines_warned(state: SupervisorState, event: m.Warned) -> tuple[SupervisorState, Effects]:
    """Has warned machines leave. A machine that does not run the program has nothing to lose."""
    effects: list[Effect] = []
    for name in event.machines:
        if name not in state.machines or state.machines[name].leaving:
            continue
        runs = name == state.active
        state = _with_machine(state, name, leaving=True, safe=not runs)
        effects.append(SentOrder(name, m.Leave(event.seconds)) if runs else MachineSafeToKill(name))
    return state, tuple(effects)


def _machine_noticed(state: SupervisorState, name: str, said: m.Noticed) -> tuple[SupervisorState, Effects]:
    """Has a machine leave that hears of its eviction itself; the provider's word may come later, or never."""
    state, effects = _machines_warned(state, m.Warned((name,), said.seconds))
    return state, (NoticeHeard(name, said.seconds), *effects)


def _machines_gone(state: SupervisorState, event: m.Gone) -> tuple[SupervisorState, Effects]:
    machines = {name: machine for name, machine in state.machines.items() if name not in event.machines}
    active = state.active if state.active in machines else None
    # A machine that was only cut off may come back: it is still paid for, and must not go on.
    ends = tuple(SentOrder(name, m.ShutDown()) for name in event.machines if name in state.machines)
    state = replace(state, machines=machines, active=active)
    if state.stopping and active is None:
        over, ended = _end_job(state, ProgramFinished(state.saved))
        return over, (*ends, *ended)
    return state, ends


def _stop_gracefully(state: SupervisorState, event: m.Stop) -> tuple[SupervisorState, Effects]:
    state = replace(state, stopping=True)
    if state.active is None:
        return _end_job(state, ProgramFinished(state.saved))
    if state.machines[state.active].leaving:
        return state, ()  # it stops as it is
    return _with_machine(state, state.active, leaving=True), (
        SentOrder(state.active, m.Leave(event.seconds)),
    )


# ---- what machines say --------------------------------------------------------------------------


def _machine_ready(state: SupervisorState, name: str, _: m.Ready) -> tuple[SupervisorState, Effects]:
    return _with_machine(state, name, ready=True), (MachineReady(name),)


def _program_began(state: SupervisorState, name: str, said: m.Began) -> tuple[SupervisorState, Effects]:
    """Records the start. Where the program is retried on its machine, its checkpoint
    need not be stored yet.
    """
    begins = _countable_step(state, said.step)
    back = state.step - begins
    moved = replace(state, step=begins, saved=min(state.saved, begins))
    news = (WentBack(begins, back),) if back > 0 else tuple(_report_progress(state, moved))
    return moved, (ProgramBegun(name, begins), *news)


def _step_reached(state: SupervisorState, _: str, said: m.Reached) -> tuple[SupervisorState, Effects]:
    counted = _countable_step(state, said.step)
    moved = replace(state, step=max(state.step, counted), reported=max(state.reported or 0, counted))
    effects: list[Effect] = list(_report_progress(state, moved))
    if said.objective is not None:
        effects.append(ProgramObjective(moved.step, said.objective))
    return moved, tuple(effects)


def _checkpoint_saved(state: SupervisorState, _: str, said: m.Saved) -> tuple[SupervisorState, Effects]:
    counted, stored = _countable_step(state, said.step), (said.machine, said.size_bytes)
    moved = replace(state, saved=max(state.saved, counted), step=max(state.step, counted), stored=stored)
    effects: list[Effect] = list(_report_progress(state, moved))
    if said.machine and stored != state.stored:
        effects.append(NewestStored(said.machine, counted, said.size_bytes))
    return moved, tuple(effects)


def _checkpoint_fetched(
    state: SupervisorState, name: str, said: m.Fetched
) -> tuple[SupervisorState, Effects]:
    """Reports a transfer. The machine that wrote the checkpoint need not live any more."""
    if not said.stored_by:
        return state, ()
    return state, (FetchedFromStore(name, said.stored_by, said.step, said.size_bytes),)


def _countable_step(state: SupervisorState, step: int) -> int:
    """Limits a step to the last but one: the last is counted when the program has ended, as the machine is
    needed until then.
    """
    return step if state.steps is None else min(step, state.steps - 1)


def _report_progress(before: SupervisorState, after: SupervisorState) -> Iterator[ProgramProgress]:
    if (before.step, before.saved) != (after.step, after.saved):
        yield ProgramProgress(after.step, min(after.saved, after.step))


def _machine_left(state: SupervisorState, name: str, _: m.Left) -> tuple[SupervisorState, Effects]:
    if state.machines[name].safe:
        return state, ()
    state = _with_machine(state, name, safe=True)
    state = replace(state, active=None if state.active == name else state.active)
    if state.stopping:
        over, ended = _end_job(state, ProgramFinished(state.saved))
        return over, (MachineSafeToKill(name), *ended)
    return state, (MachineSafeToKill(name),)


def _command_ended(state: SupervisorState, name: str, said: m.Ended) -> tuple[SupervisorState, Effects]:
    """Ends the work when a program that nobody asked to stop ends with status 0. Others are tried again."""
    if said.what == "run" and said.status == 0:
        return _end_job(state, ProgramFinished(_steps_done(state)))
    if state.machines[name].leaving:
        # It is not tried again here, and elsewhere it is anyway; a stop must not wait for ever.
        return (
            _end_job(state, ProgramFailed(_describe_failure(state, said))) if state.stopping else (state, ())
        )
    state = replace(state, failures=state.failures + 1)
    if state.failures > state.retries:
        return _end_job(state, ProgramFailed(_describe_failure(state, said)))
    if state.active == name:
        return replace(state, active=None), ()
    return state, (_prepare(state, name),)


def _steps_done(state: SupervisorState) -> int:
    """Returns the steps of a program that has ended with its work done.

    A program that reports its steps may stop early, and has done no more than that; it may also count from 0.
    One that does not report has done all.
    """
    if state.steps is None:
        return state.step
    early = state.reported is not None and state.step < state.steps - 1
    return state.step if early else state.steps


def _describe_failure(state: SupervisorState, said: m.Ended) -> str:
    what = {"run": "the program", "setup": "setup"}.get(said.what, said.what)
    failed = f"failed {state.failures} times, at last" if state.failures > 1 else "ended"
    ended = f"{what} {failed} with status {said.status}"
    return f"{ended}; its last words:\n{said.trouble}" if said.trouble else f"{ended} and said nothing"


_TOLD: Final[Mapping[type, Callable[[SupervisorState, Any], tuple[SupervisorState, Effects]]]] = {
    # The world has machines for the job: reliable or not, what they run is the same.
    m.Joined: _machines_joined,
    # The provider takes them, or they are not renewed.
    m.Warned: _machines_warned,
    # They went, safe to kill or not.
    m.Gone: _machines_gone,
    # Somebody cancelled the job, or its budget is spent.
    m.Stop: _stop_gracefully,
}
_WORDS: Final[Mapping[type, Callable[[SupervisorState, str, Any], tuple[SupervisorState, Effects]]]] = {
    # Files are in place and setup ended with status 0.
    m.Ready: _machine_ready,
    # The program was started.
    m.Began: _program_began,
    # A line of the progress file.
    m.Reached: _step_reached,
    # A manifest was written.
    m.Saved: _checkpoint_saved,
    # A checkpoint came from the store.
    m.Fetched: _checkpoint_fetched,
    # No process of the program is left, and the store has what it wrote.
    m.Left: _machine_left,
    # Setup or the program ended by itself, or a checkpoint could not be stored or restored.
    m.Ended: _command_ended,
    # The machine itself hears that it is taken.
    m.Noticed: _machine_noticed,
}
