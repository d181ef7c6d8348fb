"""Which machine runs the program, and what came of it: a pure state machine, told everything in order.

One machine runs the program at a time, the one that joined first of those that are prepared and stay.
Machines that are warned stop it and store its newest whole checkpoint; then, or when they are lost, the
next machine begins where the newest whole checkpoint ends.

Refuses to know processes, files, clocks and money. Folding the same events again gives the same orders
and the same news, so a restart is a replay of the journal.
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
class SafeToKill:
    machine: str


@dataclass(frozen=True, slots=True)
class Begun:
    """``machine`` started the program, from ``step`` on."""

    machine: str
    step: int


@dataclass(frozen=True, slots=True)
class Progress:
    """``saved``: the steps of the newest whole checkpoint in the store; never more than ``step``."""

    step: int
    saved: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The newest checkpoint is ``machine``'s; said when its machine or its size has changed."""

    machine: str
    step: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """``machine`` has got the checkpoint that ``stored_by`` wrote."""

    machine: str
    stored_by: str
    step: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Objective:
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class WentBack:
    to: int
    redone: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The work is done, or a graceful stop is: ``step`` steps are kept."""

    step: int


@dataclass(frozen=True, slots=True)
class Failed:
    why: str


News: TypeAlias = (
    MachineReady | SafeToKill | Begun | Progress | Stored | Fetched | Objective | WentBack | Finished | Failed
)


@dataclass(frozen=True, slots=True)
class Sent:
    """An order on its way to a machine."""

    machine: str
    order: m.Order


Effect: TypeAlias = Sent | News
Effects: TypeAlias = tuple[Effect, ...]

# ---- the state ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Machine:
    ready: bool = False
    leaving: bool = False
    safe: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """``steps``: of the whole job, None where nobody knows; ``retries``: failures that may be tried again."""

    steps: int | None
    retries: int
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """In the order they joined."""
    active: str | None = None
    """The machine that runs the program, or is about to."""
    attempts: int = 0
    failures: int = 0
    step: int = 0
    reported: int | None = None
    """The furthest step that the program itself said it had reached; None where it never says."""
    saved: int = 0
    stored: tuple[str, int] = ("", 0)
    """Who wrote the newest checkpoint, and its bytes."""
    stopping: bool = False
    over: bool = False


def step(state: State, event: m.Event) -> tuple[State, Effects]:
    """What ``event`` means: the new state, and what follows, in order. Nothing follows once it is over."""
    if state.over:
        return state, ()
    if isinstance(event, m.Said):
        handler, subject = _WORDS[type(event.word)], event.word
        if event.machine not in state.machines:
            return state, ()  # it is gone; what it still said changes nothing
        moved, effects = handler(state, event.machine, subject)
    else:
        moved, effects = _TOLD[type(event)](state, event)
    assigned, more = _assign(moved)
    return assigned, (*effects, *more)


def _assign(state: State) -> tuple[State, Effects]:
    """Where nothing runs the program, the first machine that can takes it up."""
    if state.over or state.stopping or state.active is not None:
        return state, ()
    for name, machine in state.machines.items():
        if machine.ready and not machine.leaving:
            moved = replace(state, active=name, attempts=state.attempts + 1)
            return moved, (Sent(name, m.Begin(moved.attempts)),)
    return state, ()


def _with(state: State, name: str, **changes: bool) -> State:
    return replace(state, machines={**state.machines, name: replace(state.machines[name], **changes)})


def _end(state: State, news: Finished | Failed) -> tuple[State, Effects]:
    return replace(state, over=True), (news,)


# ---- what the supervisor is told ----------------------------------------------------------------


def _joined(state: State, told: m.Joined) -> tuple[State, Effects]:
    new = [name for name in told.machines if name not in state.machines]
    machines = {**state.machines, **{name: Machine() for name in new}}
    return replace(state, machines=machines), tuple(Sent(name, m.Prepare()) for name in new)


def _warned(state: State, told: m.Warned) -> tuple[State, Effects]:
    """A machine that does not run the program has nothing to lose."""
    effects: list[Effect] = []
    for name in told.machines:
        if name not in state.machines or state.machines[name].leaving:
            continue
        runs = name == state.active
        state = _with(state, name, leaving=True, safe=not runs)
        effects.append(Sent(name, m.Leave(told.seconds)) if runs else SafeToKill(name))
    return state, tuple(effects)


def _gone(state: State, told: m.Gone) -> tuple[State, Effects]:
    machines = {name: machine for name, machine in state.machines.items() if name not in told.machines}
    active = state.active if state.active in machines else None
    state = replace(state, machines=machines, active=active)
    return _end(state, Finished(state.saved)) if state.stopping and active is None else (state, ())


def _stop(state: State, told: m.Stop) -> tuple[State, Effects]:
    state = replace(state, stopping=True)
    if state.active is None:
        return _end(state, Finished(state.saved))
    if state.machines[state.active].leaving:
        return state, ()  # it stops as it is
    return _with(state, state.active, leaving=True), (Sent(state.active, m.Leave(told.seconds)),)


# ---- what machines say --------------------------------------------------------------------------


def _ready(state: State, name: str, _: m.Ready) -> tuple[State, Effects]:
    return _with(state, name, ready=True), (MachineReady(name),)


def _began(state: State, name: str, said: m.Began) -> tuple[State, Effects]:
    """What it begins from need not be in the store yet, where the program is tried again on its machine."""
    begins = _counted(state, said.step)
    back = state.step - begins
    moved = replace(state, step=begins, saved=min(state.saved, begins))
    news = (WentBack(begins, back),) if back > 0 else tuple(_progress(state, moved))
    return moved, (Begun(name, begins), *news)


def _reached(state: State, _: str, said: m.Reached) -> tuple[State, Effects]:
    counted = _counted(state, said.step)
    moved = replace(state, step=max(state.step, counted), reported=max(state.reported or 0, counted))
    effects: list[Effect] = list(_progress(state, moved))
    if said.objective is not None:
        effects.append(Objective(moved.step, said.objective))
    return moved, tuple(effects)


def _saved(state: State, _: str, said: m.Saved) -> tuple[State, Effects]:
    counted, stored = _counted(state, said.step), (said.machine, said.size_bytes)
    moved = replace(state, saved=max(state.saved, counted), step=max(state.step, counted), stored=stored)
    effects: list[Effect] = list(_progress(state, moved))
    if said.machine and stored != state.stored:
        effects.append(Stored(said.machine, counted, said.size_bytes))
    return moved, tuple(effects)


def _fetched(state: State, name: str, said: m.Fetched) -> tuple[State, Effects]:
    """What it was written by need not live any more."""
    if not said.stored_by:
        return state, ()
    return state, (Fetched(name, said.stored_by, said.step, said.size_bytes),)


def _counted(state: State, step: int) -> int:
    """The last step is counted when the program has ended: until then the machine is needed."""
    return step if state.steps is None else min(step, state.steps - 1)


def _progress(before: State, after: State) -> Iterator[Progress]:
    if (before.step, before.saved) != (after.step, after.saved):
        yield Progress(after.step, min(after.saved, after.step))


def _left(state: State, name: str, _: m.Left) -> tuple[State, Effects]:
    if state.machines[name].safe:
        return state, ()
    state = _with(state, name, safe=True)
    state = replace(state, active=None if state.active == name else state.active)
    if state.stopping:
        over, ended = _end(state, Finished(state.saved))
        return over, (SafeToKill(name), *ended)
    return state, (SafeToKill(name),)


def _ended(state: State, name: str, said: m.Ended) -> tuple[State, Effects]:
    """Status 0 of a program that nobody asked to stop is the end of the work; others are tried again."""
    if said.what == "run" and said.status == 0:
        return _end(state, Finished(_done(state)))
    if state.machines[name].leaving:
        # It is not tried again here, and elsewhere it is anyway; a stop must not wait for ever.
        return _end(state, Failed(_reason(state, said))) if state.stopping else (state, ())
    state = replace(state, failures=state.failures + 1)
    if state.failures > state.retries:
        return _end(state, Failed(_reason(state, said)))
    if state.active == name:
        return replace(state, active=None), ()
    return state, (Sent(name, m.Prepare()),)


def _done(state: State) -> int:
    """The steps of a program that has ended with its work done.

    One that says how far it is may stop early, and has done no more than that; it may also count from 0. One
    that does not say has done all.
    """
    if state.steps is None:
        return state.step
    early = state.reported is not None and state.step < state.steps - 1
    return state.step if early else state.steps


def _reason(state: State, said: m.Ended) -> str:
    what = {"run": "the program", "setup": "setup"}.get(said.what, said.what)
    failed = f"failed {state.failures} times, at last" if state.failures > 1 else "ended"
    ended = f"{what} {failed} with status {said.status}"
    return f"{ended}; its last words:\n{said.trouble}" if said.trouble else f"{ended} and said nothing"


_TOLD: Final[Mapping[type, Callable[[State, Any], tuple[State, Effects]]]] = {
    # The world has machines for the job: reliable or not, what they run is the same.
    m.Joined: _joined,
    # The provider takes them, or they are not renewed.
    m.Warned: _warned,
    # They went, safe to kill or not.
    m.Gone: _gone,
    # Somebody cancelled the job, or its budget is spent.
    m.Stop: _stop,
}
_WORDS: Final[Mapping[type, Callable[[State, str, Any], tuple[State, Effects]]]] = {
    # Files are in place and setup ended with status 0.
    m.Ready: _ready,
    # The program was started.
    m.Began: _began,
    # A line of the progress file.
    m.Reached: _reached,
    # A manifest was written.
    m.Saved: _saved,
    # A checkpoint came from the store.
    m.Fetched: _fetched,
    # No process of the program is left, and the store has what it wrote.
    m.Left: _left,
    # Setup or the program ended by itself, or a checkpoint could not be stored or restored.
    m.Ended: _ended,
}
