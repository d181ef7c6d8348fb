"""Restarts elastic training from its checkpoint when its last reliable machine is lost, or ends it.

    TRAINING, STOPPING   --the last reliable machine is lost-->   RESTARTING   its machines are released
    RESTARTING           --they are gone: TellRestart-->          STARTING     new reliable ones are acquired
    STARTING             --one joins-->                           TRAINING     from the checkpoint

Rule 1: without a place for checkpoints nothing restarts. To start over from nothing would spend the user's
money, and only the user may decide that.
Rule 2: training may restart as long as it makes progress. ``MOST_IN_VAIN`` restarts in a row that reach no
newer checkpoint count as a fault that no restart cures.
Rule 3: it is no fault if the provider takes a reliable machine on spot. After ``MAX_FAILED_RESTARTS`` such
restarts in a row that reach no newer checkpoint, ``bidding.place_reliable`` chooses machines on demand.

A command job has no reliable machine. Its supervisor restarts the program, without the core.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from pricing_data.model.billing import EndReason
from spotctl.control.billing import certain_cost
from spotctl.control.state import State
from spotctl.control.state_values import Instance, Phase

MOST_IN_VAIN: Final = 3


def restart_or_fail(state: State, why: str) -> State:
    """Restarts training that lost its reliable machines, or ends it with the reason ``why``."""
    if state.terms.recovery.keeps is None or state.ending.asked is not None:
        return end_training(state, add_resume_hint(state, why))
    if state.budget is not None and certain_cost(state) >= state.budget:
        return end_training(state, add_resume_hint(state, f"{why}, and its budget is spent"))
    known = state.recovery.checkpoint_clock
    further = not state.recovery.restarts or known > state.recovery.restarted_from
    taken = _provider_took_reliable(state)
    # An eviction counts in ``taken_in_vain`` alone (rule 3).
    in_vain = 0 if further else state.recovery.in_vain + (not taken)
    if in_vain >= MOST_IN_VAIN:
        tried = f"it began {in_vain} times from clock {known} and reached no newer checkpoint"
        return end_training(state, add_resume_hint(state, f"{why}; {tried}"))
    taken_in_vain = 0 if further else state.recovery.taken_in_vain + taken
    return replace(
        state,
        phase=Phase.RESTARTING,
        deciding=replace(state.deciding, decide_from=None),
        recovery=replace(state.recovery, in_vain=in_vain, taken_in_vain=taken_in_vain),
    )


def end_training(state: State, why: str | None) -> State:
    """Ends training. ``why``: the reason why the run failed; None where it did not."""
    return replace(
        state,
        phase=Phase.CLOSING,
        training=replace(state.training, training_over_at=state.now),
        ending=replace(state.ending, failure=why),
    )


def has_lost_reliable(state: State) -> bool:
    """Tells whether a reliable machine has gone, unsafe to kill, since training last began."""
    since = state.terms.start if state.recovery.restarted_at is None else state.recovery.restarted_at
    return any(
        _was_lost(state, instance) and (instance.ended_at or since) > since
        for instance in state.ended_instances()
    )


def _provider_took_reliable(state: State) -> bool:
    """Tells whether the provider took a reliable machine since the training last began."""
    since = state.terms.start if state.recovery.restarted_at is None else state.recovery.restarted_at
    mine = (i for i in state.ended_instances() if state.is_reliable(i) and i.end is EndReason.EVICTED)
    return any((i.ended_at or since) > since for i in mine)


def begin_restart(state: State) -> State:
    """Resets the state of training to its beginning, without any machines."""
    # The old machines count as reported gone, or the new training would hear that it lost them.
    forgotten = {name: replace(i, told_gone=i.told_join) for name, i in state.instances.items()}
    return replace(
        state,
        phase=Phase.STARTING,
        instances=forgotten,
        training=replace(state.training, stage=1, ending_at=None, objective_settled=False, objective=None),
        recovery=replace(
            state.recovery,
            restarts=state.recovery.restarts + 1,
            restarted_at=state.now,
            restarted_from=state.recovery.checkpoint_clock,
        ),
        interruptions=replace(state.interruptions, away=None),
    )


def resume_from(state: State, clock: int, folder: str) -> State:
    """Sets training back to ``clock``, from the checkpoint in ``folder`` ("": from nothing)."""
    further = clock > state.recovery.restarted_from
    return replace(
        state,
        training=replace(
            state.training,
            clock=clock,
            consistent=clock,
            clocks_redone=state.training.clocks_redone + max(0, state.training.clock - clock),
        ),
        recovery=replace(
            state.recovery,
            restarted_from=clock,
            in_vain=0 if further else state.recovery.in_vain,
            taken_in_vain=0 if further else state.recovery.taken_in_vain,
            checkpoint=(clock, folder) if folder else state.recovery.checkpoint,
        ),
    )


def _was_lost(state: State, instance: Instance) -> bool:
    return state.is_reliable(instance) and instance.told_join and not instance.safe


def add_resume_hint(state: State, why: str) -> str:
    """Returns ``why``, and from which clock a later launch can resume if there is a checkpoint."""
    if state.recovery.checkpoint is None:
        return why
    return f"{why}; a launch that resumes goes on after clock {state.recovery.checkpoint[0]} or later"
