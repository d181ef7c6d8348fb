"""For how long a program ran without anything kept of it: part of the fold. Steps are counted elsewhere.

A program that says nothing of its steps, or that keeps none, does the seconds again that it ran since its
newest checkpoint. They count when it begins again, since only then are they done twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from spotctl.control.state import Program, State


def begun(state: State, instance: str) -> State:
    """The program starts on ``instance``; what an earlier start of it did and nothing kept is done again."""
    return replace(
        state,
        program=Program(instance, state.now),
        program_starts=state.program_starts + 1,
        seconds_redone=state.seconds_redone + unkept_s(state),
    )


def kept(state: State) -> State:
    """All that the program did by now is in a checkpoint."""
    if state.program is None:
        return state
    return replace(state, program=replace(state.program, kept_at=state.now))


def told_to_stop(state: State, instances: Iterable[str]) -> State:
    """A checkpoint that comes after this has all that was done, unless steps follow."""
    program = state.program
    if program is None or program.instance not in instances or program.told_at is not None:
        return state
    return replace(state, program=replace(program, told_at=state.now))


def stopped(state: State, instances: Iterable[str]) -> State:
    """No process of the program is left, or its machine is gone."""
    program = state.program
    if program is None or program.instance not in instances or program.stopped_at is not None:
        return state
    last = program.kept_at if _kept_all(state, program) else state.now
    return replace(state, program=replace(program, stopped_at=last))


def unkept_s(state: State) -> int:
    """Seconds that the program ran since its newest checkpoint, or its start."""
    program = state.program
    if program is None:
        return 0
    until = state.now if program.stopped_at is None else program.stopped_at
    return max(0, until - program.kept_at)


def _kept_all(state: State, program: Program) -> bool:
    """Whether its last checkpoint came when it was told to stop, and it reached no further step since."""
    told_and_kept = program.told_at is not None and program.kept_at >= program.told_at
    return told_and_kept and state.clock <= state.consistent
