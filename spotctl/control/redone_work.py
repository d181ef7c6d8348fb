"""Measures how long a program ran without a checkpoint of it: part of the fold. Steps are counted elsewhere.

A program that reports no steps, or stores none, repeats the seconds that it ran since its newest
checkpoint. They count when it begins again, since only then are they done twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from spotctl.control.state import State
from spotctl.control.state_values import ProgramRun


def start_program(state: State, instance: str) -> State:
    """Starts the program on ``instance``; what an earlier start did and nothing saved is done again."""
    return replace(
        state,
        programs=replace(
            state.programs,
            program=ProgramRun(instance, state.now),
            program_starts=state.programs.program_starts + 1,
            seconds_redone=state.programs.seconds_redone + unsaved_s(state),
        ),
    )


def mark_checkpointed(state: State) -> State:
    """Marks all that the program did by now as saved in a checkpoint."""
    if state.programs.program is None:
        return state
    return replace(
        state, programs=replace(state.programs, program=replace(state.programs.program, kept_at=state.now))
    )


def mark_told_to_stop(state: State, instances: Iterable[str]) -> State:
    """Notes that the program was told to stop; a later checkpoint has all its work, unless steps follow."""
    program = state.programs.program
    if program is None or program.instance not in instances or program.told_at is not None:
        return state
    return replace(state, programs=replace(state.programs, program=replace(program, told_at=state.now)))


def mark_stopped(state: State, instances: Iterable[str]) -> State:
    """Notes that no process of the program is left, or its machine is gone."""
    program = state.programs.program
    if program is None or program.instance not in instances or program.stopped_at is not None:
        return state
    last = program.kept_at if _saved_everything(state, program) else state.now
    return replace(state, programs=replace(state.programs, program=replace(program, stopped_at=last)))


def unsaved_s(state: State) -> int:
    """Returns seconds that the program ran since its newest checkpoint, or its start."""
    program = state.programs.program
    if program is None:
        return 0
    until = state.now if program.stopped_at is None else program.stopped_at
    return max(0, until - program.kept_at)


def _saved_everything(state: State, program: ProgramRun) -> bool:
    """Tells whether its last checkpoint followed the order to stop, with no further step since."""
    told_and_kept = program.told_at is not None and program.kept_at >= program.told_at
    return told_and_kept and state.training.clock <= state.training.consistent
