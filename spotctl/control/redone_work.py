"""Measures the seconds of a program's work that no checkpoint holds: part of the fold.

A program that reports no steps, or stores none, repeats the seconds that it ran since its newest
checkpoint. ``training_events`` counts repeated steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from spotctl.control.state import State
from spotctl.control.state_values import ProgramRun


def start_program(state: State, instance: str) -> State:
    """Starts the program on ``instance``."""
    # Unsaved seconds count only now: until a program starts again nothing is done twice.
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
    """Marks all work of the program up to now as saved in a checkpoint."""
    if state.programs.program is None:
        return state
    return replace(
        state, programs=replace(state.programs, program=replace(state.programs.program, kept_at=state.now))
    )


def mark_told_to_stop(state: State, instances: Iterable[str]) -> State:
    """Notes that the program received the order to stop."""
    program = state.programs.program
    if program is None or program.instance not in instances or program.told_at is not None:
        return state
    return replace(state, programs=replace(state.programs, program=replace(program, told_at=state.now)))


def mark_stopped(state: State, instances: Iterable[str]) -> State:
    """Notes that the program's processes have ended, or its machine has."""
    program = state.programs.program
    if program is None or program.instance not in instances or program.stopped_at is not None:
        return state
    last = program.kept_at if _saved_everything(state, program) else state.now
    return replace(state, programs=replace(state.programs, program=replace(program, stopped_at=last)))


def unsaved_s(state: State) -> int:
    """Returns the seconds that the program ran since its newest checkpoint, or since its start."""
    program = state.programs.program
    if program is None:
        return 0
    until = state.now if program.stopped_at is None else program.stopped_at
    return max(0, until - program.kept_at)


def _saved_everything(state: State, program: ProgramRun) -> bool:
    """Tells whether its last checkpoint came after the order to stop, and no further step since."""
    told_and_kept = program.told_at is not None and program.kept_at >= program.told_at
    return told_and_kept and state.training.clock <= state.training.consistent
