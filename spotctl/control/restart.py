"""Handles the loss of an elastic training: it begins again from its checkpoint, or it is over.

    TRAINING, STOPPING   --the last reliable machine is lost-->   RESTARTING   its machines are released
    RESTARTING           --they are gone: TellRestart-->          STARTING     reliable ones are had again
    STARTING             --one takes part-->                      TRAINING     from the checkpoint

Rule 1: without a place for checkpoints nothing begins again: starting over from nothing spends a user's
money, and only that user may decide so.
Rule 2: training may begin again as long as it makes progress. ``MOST_IN_VAIN`` restarts in a row that reach
no newer checkpoint count as a fault that no restart cures.
Rule 3: a reliable machine on spot that the provider takes is no fault. After ``MAX_FAILED_RESTARTS`` of them
in a row that reached no newer checkpoint the next ones are on demand (``bidding.place_reliable``).

A command has no reliable machine: its supervisor does the same among its machines, without the core.
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
    """Restarts or ends a training that lost its reliable machines and cannot go on because of it."""
    if state.terms.recovery.keeps is None or state.ending.asked is not None:
        return end_training(state, add_resume_hint(state, why))
    if state.budget is not None and certain_cost(state) >= state.budget:
        return end_training(state, add_resume_hint(state, f"{why}, and its budget is spent"))
    known = state.checkpoint_clock
    further = not state.recovery.restarts or known > state.recovery.restarted_from
    taken = _provider_took_reliable(state)
    # An eviction is no fault: it counts in ``taken_in_vain`` alone (rule 3).
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
    """Ends the training; ``why`` says why the run has failed, None where it has not."""
    return replace(
        state,
        phase=Phase.CLOSING,
        training=replace(state.training, training_over_at=state.now),
        ending=replace(state.ending, failure=why),
    )


def has_lost_reliable(state: State) -> bool:
    """Tells whether a reliable machine that took part since training last began has gone by itself."""
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
    """Resets what the training knew of machines, since it was told to begin again."""
    # All old machines count as reported gone, so that the new training hears of none of them.
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
            restarted_from=state.checkpoint_clock,
        ),
        interruptions=replace(state.interruptions, away=None),
    )


def resume_from(state: State, clock: int, folder: str) -> State:
    """Continues after ``clock``: later clocks are computed again."""
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
    """Adds to ``why`` it ended what a later launch can go on from."""
    if state.recovery.checkpoint is None:
        return why
    return f"{why}; a launch that resumes goes on after clock {state.recovery.checkpoint[0]} or later"
