"""Decides which machine runs the program: a pure state machine over an ordered list of events.

One machine runs the program at a time: of the prepared machines that stay, the one that joined first. A
warned machine stops the program and stores its newest complete checkpoint. After that, or when the machine is
lost, the next machine resumes from the newest complete checkpoint in the store.

It knows no processes, files, clocks or money. Folding the same events again gives the same orders and the
same news, so a restart is a replay of the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from agileml.node.programs import messages as m

# ---- news for the job's driver ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MachineReady:
    machine: str


@dataclass(frozen=True, slots=True)
class MachineSafeToKill:
    machine: str


@dataclass(frozen=True, slots=True)
class ProgramBegun:
    """The program runs on ``machine``, and began at ``step``."""

    machine: str
    step: int


@dataclass(frozen=True, slots=True)
class ProgramProgress:
    """The program has done ``step`` steps.

    ``saved``: the steps of the newest complete checkpoint in the store, at most ``step``.
    """

    step: int
    saved: int


@dataclass(frozen=True, slots=True)
class NewestStored:
    """``machine`` wrote the newest checkpoint. Reported when the machine or the size changes."""

    machine: str
    step: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FetchedFromStore:
    """``machine`` fetched the checkpoint that ``stored_by`` wrote, a transfer from the store."""

    machine: str
    stored_by: str
    step: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NoticeHeard:
    """The machine itself received an eviction notice of ``seconds`` real seconds."""

    machine: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ProgramObjective:
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class WentBack:
    """The program resumed at step ``to`` and does ``redone`` steps again."""

    to: int
    redone: int


@dataclass(frozen=True, slots=True)
class ProgramFinished:
    """The work is done, or the job stopped gracefully, with ``step`` steps in the store."""

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
    """An order to send to a machine."""

    machine: str
    order: m.Order


Effect: TypeAlias = SentOrder | News
Effects: TypeAlias = tuple[Effect, ...]

# ---- the state ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProgramMachine:
    """A machine of the job. ``leaving``: warned, or stopping; ``safe``: it has nothing to lose any more."""

    ready: bool = False
    leaving: bool = False
    safe: bool = False


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """Holds all that the supervisor knows.

    ``steps``: of the whole job, None if unknown; ``retries``: the number of failures before the job fails.
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
    """The highest step that the program itself reported; None while it has reported none."""
    saved: int = 0
    stored: tuple[str, int] = ("", 0)
    """The machine that wrote the newest checkpoint, and the checkpoint's bytes."""
    stopping: bool = False
    over: bool = False


def step(state: SupervisorState, event: m.Event) -> tuple[SupervisorState, Effects]:
    """Returns the state after ``event``, and the effects in order. Once the job is over there are none."""
    if state.over:
        return state, ()
    if isinstance(event, m.Said):
        handler, subject = _WORDS[type(event.word)], event.word
        if event.machine not in state.machines:
            return state, ()  # a late report of a machine that is gone
        moved, effects = handler(state, event.machine, subject)
    else:
        moved, effects = _TOLD[type(event)](state, event)
    assigned, more = _assign_program(moved)
    return assigned, (*effects, *more)


def _assign_program(state: SupervisorState) -> tuple[SupervisorState, Effects]:
    """Assigns the program to the first machine that can run it, unless one has it."""
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


# ---- events from the job's driver ---------------------------------------------------------------


def _machines_joined(state: SupervisorState, event: m.Joined) -> tuple[SupervisorState, Effects]:
    new = [name for name in event.machines if name not in state.machines]
    machines = {**state.machines, **{name: ProgramMachine() for name in new}}
    return replace(state, machines=machines), tuple(_prepare(state, name) for name in new)


def _machines_warned(state: SupervisorState, event: m.Warned) -> tuple[SupervisorState, Effects]:
    """Sends a warned machine away. A machine that does not run the program is safe to kill at once."""
    effects: list[Effect] = []
    for name in event.machines:
        if name not in state.machines or state.machines[name].leaving:
            continue
        runs = name == state.active
        state = _with_machine(state, name, leaving=True, safe=not runs)
        effects.append(SentOrder(name, m.Leave(event.seconds)) if runs else MachineSafeToKill(name))
    return state, tuple(effects)


def _machine_noticed(state: SupervisorState, name: str, said: m.Noticed) -> tuple[SupervisorState, Effects]:
    """Sends away a machine that received a notice itself. The provider's notice may come later, or never."""
    state, effects = _machines_warned(state, m.Warned((name,), said.seconds))
    return state, (NoticeHeard(name, said.seconds), *effects)


def _machines_gone(state: SupervisorState, event: m.Gone) -> tuple[SupervisorState, Effects]:
    machines = {name: machine for name, machine in state.machines.items() if name not in event.machines}
    active = state.active if state.active in machines else None
    # A machine that was only cut off may come back. Another runs the program by then: two that write
    # checkpoints would overtake each other.
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
        return state, ()  # a warning has stopped it already
    return _with_machine(state, state.active, leaving=True), (
        SentOrder(state.active, m.Leave(event.seconds)),
    )


# ---- reports of machines ------------------------------------------------------------------------


def _machine_ready(state: SupervisorState, name: str, _: m.Ready) -> tuple[SupervisorState, Effects]:
    return _with_machine(state, name, ready=True), (MachineReady(name),)


def _program_began(state: SupervisorState, name: str, said: m.Began) -> tuple[SupervisorState, Effects]:
    """Records the start, and how many steps the program does again."""
    begins = _countable_step(state, said.step)
    back = state.step - begins
    # Not ``saved=begins``: a program that is retried on its machine may begin from its own disk, with a
    # checkpoint that is not in the store yet.
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
    """Reports a transfer from the store, which may be billed."""
    if not said.stored_by:
        return state, ()
    return state, (FetchedFromStore(name, said.stored_by, said.step, said.size_bytes),)


def _countable_step(state: SupervisorState, step: int) -> int:
    """Limits a step to the last but one: the job counts as done only when the program has ended."""
    # A job whose last step counts needs no machine any more, and the program may still be writing.
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
    """Ends the job if the program ended by itself with status 0. After a failure the job retries."""
    if said.what == "run" and said.status == 0:
        return _end_job(state, ProgramFinished(_steps_done(state)))
    if state.machines[name].leaving:
        # The next machine retries it anyway, so this failure does not count. A stop has no next machine.
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

    A program that reports its steps may stop early, and then only those count. Without reports, all count.
    """
    if state.steps is None:
        return state.step
    # The last but one is not early: a program may count its steps from 0.
    early = state.reported is not None and state.step < state.steps - 1
    return state.step if early else state.steps


def _describe_failure(state: SupervisorState, said: m.Ended) -> str:
    what = {"run": "the program", "setup": "setup"}.get(said.what, said.what)
    failed = f"failed {state.failures} times, at last" if state.failures > 1 else "ended"
    ended = f"{what} {failed} with status {said.status}"
    return f"{ended}; its last output:\n{said.trouble}" if said.trouble else f"{ended} and printed nothing"


_TOLD: Final[Mapping[type, Callable[[SupervisorState, Any], tuple[SupervisorState, Effects]]]] = {
    # The provider granted machines; reliable and spot machines run the same program.
    m.Joined: _machines_joined,
    # The provider takes machines, or the driver does not renew them.
    m.Warned: _machines_warned,
    # The machines are gone, whether they were safe to kill or not.
    m.Gone: _machines_gone,
    # The user cancelled the job, or its budget is spent.
    m.Stop: _stop_gracefully,
}
_WORDS: Final[Mapping[type, Callable[[SupervisorState, str, Any], tuple[SupervisorState, Effects]]]] = {
    # The files are in place and setup ended with status 0.
    m.Ready: _machine_ready,
    # The agent started the program.
    m.Began: _program_began,
    # The program appended a line to its progress file.
    m.Reached: _step_reached,
    # The agent wrote a manifest.
    m.Saved: _checkpoint_saved,
    # The agent fetched a checkpoint from the store.
    m.Fetched: _checkpoint_fetched,
    # No process of the program is left, and its last checkpoint is in the store.
    m.Left: _machine_left,
    # Setup or the program ended by itself, or a checkpoint could not be stored or restored.
    m.Ended: _command_ended,
    # The machine itself received an eviction notice.
    m.Noticed: _machine_noticed,
}
