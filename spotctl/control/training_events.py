"""Folds the reports of training, and the commands to it, into the state: a part of ``evolve``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from bidbrain.relocation.egress import egress_owed, leaves_region
from pricing_data.model.market import Market
from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.control import redone_work
from spotctl.control.checkpoint_transfer import egress_prices
from spotctl.control.restart import (
    begin_restart,
    end_training,
    has_lost_reliable,
    restart_or_fail,
    resume_from,
)
from spotctl.control.state import State
from spotctl.control.state_values import CheckpointTransfer, Phase


def _tell_join(state: State, entry: e.TellJoin) -> State:
    return state.with_instances(*(replace(state.instances[name], told_join=True) for name in entry.instances))


def _tell_warning(state: State, entry: e.TellWarning) -> State:
    state = redone_work.mark_told_to_stop(state, entry.instances)
    return state.with_instances(
        *(replace(state.instances[n], told_warning=True, ends_at=entry.ends_at) for n in entry.instances),
    )


def _tell_gone(state: State, entry: e.TellLost | e.TellReleased) -> State:
    return state.with_instances(*(replace(state.instances[name], told_gone=True) for name in entry.instances))


def _tell_stop(state: State, _: e.TellStop) -> State:
    return replace(state, phase=Phase.STOPPING, training=replace(state.training, ending_at=state.now))


def _give_up_stop(state: State, _: e.StopGivenUp) -> State:
    ended = end_training(state, None)
    return replace(ended, training=replace(ended.training, stop_given_up=True))


def _tell_restart(state: State, _: e.TellRestart) -> State:
    return begin_restart(state)


def _mark_joined(state: State, entry: e.MachineJoined) -> State:
    instance = state.instances[entry.instance]
    state = state.with_instances(replace(instance, joined=True, joined_at=entry.at))
    if state.phase is not Phase.STARTING or not instance.is_live:
        return state
    first = state.now if state.training.training_started_at is None else state.training.training_started_at
    state = replace(state, phase=Phase.TRAINING, training=replace(state.training, training_started_at=first))
    return (
        replace(state, deciding=replace(state.deciding, decide_from=state.now))
        if state.terms.reliable_count
        else state
    )


def _mark_given_up(state: State, entry: e.MachineGivenUp | e.ControllerSilent) -> State:
    # It counts as lost only once it has ended, like a machine that dies by itself.
    instance = state.instances[entry.instance]
    return state.with_instances(replace(instance, given_up=True)) if instance.is_live else state


def _mark_safe(state: State, entry: e.SafeToKill) -> State:
    state = redone_work.mark_stopped(state, (entry.instance,))
    return state.with_instances(replace(state.instances[entry.instance], safe=True))


def _program_began(state: State, entry: e.ProgramBegan) -> State:
    return redone_work.start_program(state, entry.instance)


def _advance_clock(state: State, entry: e.Progressed) -> State:
    state = redone_work.mark_checkpointed(state) if entry.consistent > state.training.consistent else state
    state = replace(
        state,
        training=replace(
            state.training,
            clock=max(state.training.clock, entry.clock),
            consistent=max(state.training.consistent, entry.consistent),
        ),
    )
    # A command job has no reliable machines: it ends when its program does, whatever its last step was.
    ends = state.work_left == 0 and state.terms.reliable_count > 0
    if not ends or state.training.ending_at is not None:
        return state
    return replace(state, training=replace(state.training, ending_at=state.now))


def _locate_checkpoint(state: State, entry: e.CheckpointStored) -> State:
    market = _market_of(state, entry.instance)
    return replace(
        state, programs=replace(state.programs, checkpoint_at=market, checkpoint_bytes=entry.size_bytes)
    )


def _set_checkpoint(state: State, entry: e.Checkpointed) -> State:
    return replace(state, recovery=replace(state.recovery, checkpoint=(entry.clock, entry.folder)))


def _resume_training(state: State, entry: e.TrainingResumed) -> State:
    if state.recovery.restarts:
        return resume_from(state, entry.clock, entry.folder)
    # ``resumed_from`` keeps an earlier run's clocks apart: they are not this run's work.
    return replace(
        state,
        training=replace(state.training, clock=entry.clock, consistent=entry.clock),
        recovery=replace(state.recovery, resumed_from=entry.clock, checkpoint=(entry.clock, entry.folder)),
    )


def _add_egress(state: State, entry: e.CheckpointFetched) -> State:
    """Adds the egress owed to the cloud whose region a checkpoint left; within a region none is."""
    luggage = state.terms.recovery.luggage
    here, there = _market_of(state, entry.stored_by), _market_of(state, entry.instance)
    if luggage is None or not leaves_region(here, there):
        return state
    owed = egress_owed(entry.size_bytes, egress_prices(luggage).find_price(here, there))
    fetched = CheckpointTransfer(state.now, entry.instance, entry.size_bytes, here, there, owed)
    return replace(state, programs=replace(state.programs, fetched=(*state.programs.fetched, fetched)))


def _market_of(state: State, instance: str) -> Market:
    return state.allocations[state.instances[instance].allocation].market


def _set_objective(state: State, entry: e.ObjectiveReported) -> State:
    delta = state.terms.work.stop.objective_delta
    settled = (
        delta is not None
        and state.training.objective is not None
        and abs(state.training.objective - entry.value) <= delta
    )
    return replace(
        state,
        training=replace(
            state.training,
            objective=entry.value,
            objective_clock=entry.clock,
            objective_settled=state.training.objective_settled or settled,
        ),
    )


def _enter_stage(state: State, entry: e.StageEntered) -> State:
    if entry.stage == state.training.stage:
        return state
    return replace(
        state,
        training=replace(
            state.training, stage=entry.stage, stage_transitions=state.training.stage_transitions + 1
        ),
    )


def _roll_back(state: State, entry: e.RolledBack) -> State:
    ending_at = state.training.ending_at if state.phase is Phase.STOPPING else None
    again = state.training.clocks_redone + entry.redone
    return replace(
        state, training=replace(state.training, clock=entry.to, clocks_redone=again, ending_at=ending_at)
    )


def _finish_training(state: State, entry: e.TrainingFinished) -> State:
    over = training_end(state, entry)
    return replace(
        state,
        phase=Phase.CLOSING,
        training=replace(
            state.training, clock=entry.clock, training_over_at=over, worked=worked_until(state, over)
        ),
        ending=replace(state.ending, model=entry.model),
    )


def _fail_training(state: State, entry: e.TrainingFailed) -> State:
    """Ends training, or restarts it where reliable machines were lost."""
    if state.phase is Phase.RESTARTING or state.training.stop_given_up:
        return state  # the loss or the timeout on record has caused it
    # If a user ended the run and its machines are released, training fails for want of them: no failure.
    given_back = state.ending.asked is not None and not any(state.live_instances())
    began = state.phase in (Phase.TRAINING, Phase.STOPPING) or state.recovery.restarts > 0
    if not given_back and began and state.phase is not Phase.CLOSING and has_lost_reliable(state):
        return restart_or_fail(state, entry.why)
    return end_training(state, None if given_back else entry.why)


TRAINING: Final[Mapping[type, Callable[[State, Any], State]]] = {
    e.TellJoin: _tell_join,
    e.TellWarning: _tell_warning,
    e.TellLost: _tell_gone,
    e.TellReleased: _tell_gone,
    e.TellStop: _tell_stop,
    e.StopGivenUp: _give_up_stop,
    e.TellRestart: _tell_restart,
    e.MachineJoined: _mark_joined,
    e.MachineGivenUp: _mark_given_up,
    e.ControllerSilent: _mark_given_up,
    e.SafeToKill: _mark_safe,
    e.Progressed: _advance_clock,
    e.ProgramBegan: _program_began,
    e.CheckpointStored: _locate_checkpoint,
    e.CheckpointFetched: _add_egress,
    e.Checkpointed: _set_checkpoint,
    e.TrainingResumed: _resume_training,
    e.ObjectiveReported: _set_objective,
    e.StageEntered: _enter_stage,
    e.RolledBack: _roll_back,
    e.TrainingFinished: _finish_training,
    e.TrainingFailed: _fail_training,
}
"""Maps the facts and commands of training to their handlers."""


def training_end(state: State, entry: e.TrainingFinished) -> Instant:
    """Returns when training ended; ``state.now`` may be later, after a downtime."""
    if state.interruptions.away is None:
        return state.now
    known = entry.at if state.interruptions.away.over_at is None else state.interruptions.away.over_at
    return Instant(min(max(state.interruptions.away.since, known), state.now))


def worked_until(state: State, over: Instant) -> Mapping[str, int]:
    """Returns ``TrainingProgress.worked`` without what was added after ``over``, when training ended."""
    away, worked = state.interruptions.away, state.training.worked
    if away is None or over >= state.now:
        return worked
    # No machine comes or goes during a downtime, so its work is spread evenly over it.
    part = (over - away.since) / (state.now - away.since)
    before = {kind: away.worked.get(kind, 0) for kind in worked}
    return {kind: before[kind] + round(part * (seconds - before[kind])) for kind, seconds in worked.items()}
