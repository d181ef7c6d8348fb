"""Derives the next commands: ``plan(state)`` applies rules in order, each seeing those before it.

Rule 1: ``plan`` of a state in which its own commands are folded is empty: nothing is asked for twice.
Rule 2: nothing here waits. A rule that needs a later moment lets ``_set_alarm`` ask for it.
Rule 3: nothing is planned at the moment of an alarm before it rings. It is the last news of its moment, so
what the moment brings is known by then, and no other news of that moment, of whatever world, decides
when a decision is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import groupby
from typing import Final

from bidbrain.bidding.decision_times import due_for_renewal
from bidbrain.model import Action
from pricing_data.model.units import HOUR_S, Instant, seconds_after
from spotctl.control import entries as e
from spotctl.control.bidding import (
    deadline_pledge,
    decide_acquisition,
    decide_renewal,
    decide_return,
    may_be_on_spot,
    place_reliable,
    still_in_time,
)
from spotctl.control.billing import certain_cost
from spotctl.control.evolve import RELEASE_LEAD_S, evolve
from spotctl.control.lifecycle import InstanceState
from spotctl.control.restart import add_resume_hint
from spotctl.control.state import REFUSED_REST_S, State
from spotctl.control.state_values import Instance, Phase

Commands = Iterator[e.Command]

_TAKEN_WITHIN_S: Final = 300
"""How many seconds after the end of its notice a warned instance may still be there."""


def plan(state: State) -> tuple[e.Command, ...]:
    """Returns the commands that follow from ``state``, in the order of execution."""
    if state.deciding.alarm is not None and state.deciding.alarm <= state.now:
        return ()
    commands: list[e.Command] = []
    for rule in _RULES:
        # A rule runs until it has nothing more to say, as its own commands may give it more to do.
        while state.phase is not Phase.CLOSED and (batch := tuple(rule(state))):
            commands.extend(batch)
            state = reduce(evolve, batch, state)
    return tuple(commands)


def plan_after(fact: e.Fact, state: State) -> tuple[e.Command, ...]:
    """Returns ``plan(state)``, where ``fact`` was folded last and nothing was left to do before it.

    Most facts of a run are prices and completed clocks. While a job trains and nobody has asked for anything,
    these change no machine: except for a stop, all that follows from them waits for the alarm.
    """
    quiet = isinstance(fact, (e.PriceChanged, e.Progressed)) and state.phase is Phase.TRAINING
    waits = (
        state.ending.asked is None and state.deciding.alarm is not None and state.now < state.deciding.alarm
    )
    if quiet and waits and not any(True for _ in _stop_training(state)):
        return ()
    return plan(state)


# ---- the reliable machines ----------------------------------------------------------------------


def _restart_training(state: State) -> Commands:
    """Tells the training to begin again from its checkpoint, once all its old machines are gone."""
    if (
        state.phase is not Phase.RESTARTING
        or any(True for _ in state.live_instances())
        or _has_open_requests(state)
    ):
        return
    if not _will_not_train(state):
        yield e.TellRestart(
            state.now, state.recovery.restarts + 1, still_in_time(state, state.checkpoint_clock)
        )


def _acquire_reliable(state: State) -> Commands:
    """Acquires the missing reliable machines; they come first and are never given up (Harlap 4.3.2)."""
    begins = state.phase is Phase.STARTING and not state.is_parked and not _will_not_train(state)
    wanted = state.ending.asked is None and (begins or state.phase is Phase.TRAINING)
    # Facts from the time that spotctl was down come first; only after them is it known what is missing.
    blind = state.interruptions.blind_until is not None and state.now < state.interruptions.blind_until
    missing = state.reliable_missing() if wanted and not blind else 0
    where = place_reliable(state) if missing and _reliable_rest_ends(state) is None else None
    if where is not None:
        number = 1 + sum(1 for allocation in state.allocations.values() if allocation.reliable)
        yield e.Acquire(state.now, f"r{number}", where.market, missing, where.bid, reliable=True)


def _reliable_rest_ends(state: State) -> Instant | None:
    """Returns until when refused reliable machines are not requested again; None where they may be."""
    mine = (a for a in state.allocations.values() if a.reliable and a.on_demand)
    refused = [a.requested_at for a in mine if a.refused is not None]
    until = max(refused, default=state.now - REFUSED_REST_S) + REFUSED_REST_S
    return Instant(until) if state.now < until else None


def _next_spot_retry(state: State) -> Instant | None:
    """Returns when a spot market that refused has rested, so that reliable machines may be requested
    there.
    """
    refused = (a for a in state.allocations.values() if a.refused is not None and not a.on_demand)
    rested = (Instant(a.requested_at + REFUSED_REST_S) for a in refused)
    return min((until for until in rested if until > state.now), default=None)


# ---- what the training has to know --------------------------------------------------------------


def _notify_training(state: State) -> Commands:
    if state.phase in (Phase.CLOSING, Phase.RESTARTING):
        return
    yield from _tell_joins(state)
    yield from _tell_warnings(state)
    gone = [i for i in state.instances.values() if not i.is_live and i.told_join and not i.told_gone]
    lost = tuple(i.name for i in gone if not i.safe)
    released = tuple(i.name for i in gone if i.safe)
    if lost:
        yield e.TellLost(state.now, lost)
    if released:
        yield e.TellReleased(state.now, released)


def _tell_joins(state: State) -> Commands:
    new = [
        i
        for i in state.live_instances()
        if i.life is InstanceState.RUNNING and i.ends_at is None and not i.told_join
    ]
    # ``groupby`` needs no sorting: instances stand in the order of their allocations.
    for name, group in groupby(new, key=lambda i: i.allocation):
        allocation = state.allocations[name]
        members = tuple(group)
        names = tuple(i.name for i in members)
        cores = state.cores_of(members[0])
        yield e.TellJoin(state.now, names, allocation.reliable, cores, allocation.market)


def _tell_warnings(state: State) -> Commands:
    # What reliable machines keep cannot be moved within a notice: their loss is what it is told of.
    staying = [
        i for i in state.live_instances() if i.told_join and not i.given_up and not state.is_reliable(i)
    ]
    warned = [i for i in staying if i.ends_at is not None and not i.told_warning]
    for (_, ends_at), group in groupby(warned, key=lambda i: (i.allocation, i.ends_at)):
        assert ends_at is not None
        if state.interruptions.blind_until is not None and ends_at <= state.interruptions.blind_until:
            continue  # it came and went while spotctl was down: an effective failure
        yield e.TellWarning(state.now, tuple(i.name for i in group), ends_at)


# ---- decisions ----------------------------------------------------------------------------------


def _return_surplus(state: State) -> Commands:
    """Decides to give back what the lease does not cover: at the paid hour's end, or once safe to end."""
    holding = state.surplus_allocation() if _may_act(state) else None
    if holding is not None:
        yield decide_return(state, holding)


def _decide_renewal(state: State) -> Commands:
    """Decides, shortly before an allocation's hour ends, about another one (Harlap 4.3.2). One at a time."""
    due = due_for_renewal(state.now, state.current_footprint()) if _may_decide(state) else ()
    if due:
        yield decide_renewal(state, due[0])


def _decide_acquisition(state: State) -> Commands:
    if not _may_decide(state) or state.deciding.decide_from is None or state.now < state.deciding.decide_from:
        return
    made = decide_acquisition(state)
    yield made
    decision = made.decision
    if decision.action is Action.ACQUIRE:
        assert decision.market is not None
        number = 1 + sum(1 for a in state.allocations.values() if not a.reliable)
        kind = "d" if decision.bid is None else "s"
        yield e.Acquire(state.now, f"{kind}{number}", decision.market, decision.count, decision.bid)


def _may_decide(state: State) -> bool:
    return _may_act(state) and not state.is_parked


def _may_act(state: State) -> bool:
    blind = state.interruptions.blind_until is not None and state.now < state.interruptions.blind_until
    begun = state.phase is Phase.TRAINING or (
        state.phase is Phase.STARTING and state.deciding.decide_from is not None
    )
    return begun and state.ending.asked is None and not blind and not _will_not_train(state)


# ---- ends ---------------------------------------------------------------------------------------


def _stop_training(state: State) -> Commands:
    """Stops training gracefully: a user asked, money or time is spent, or the objective has settled."""
    if state.phase is Phase.TRAINING and _stop_reason(state) is not None:
        yield e.TellStop(state.now)


def _give_up_stop(state: State) -> Commands:
    """Gives up a training that should have ended: if a process of it hangs, its machines would cost for
    ever.
    """
    if state.end_by is not None and state.now >= state.end_by:
        yield e.StopGivenUp(state.now)


def _stop_reason(state: State) -> str | None:
    stop, started = state.terms.work.stop, state.training.training_started_at
    if state.ending.asked is e.UserRequest.CANCEL:
        return "it was cancelled"
    if state.training.objective_settled:
        return "the objective has settled"
    if stop.seconds is not None and started is not None and state.now - started >= stop.seconds:
        return "its training time is up"
    return "the budget is spent" if _over_budget(state) else None


def _over_budget(state: State) -> bool:
    """Tells whether the budget is spent.

    A promise may take all of its budget: it owes the last hours that it pays for before using them.
    """
    if state.budget is None:
        return False
    owed = certain_cost(state)
    if owed == state.budget and state.terms.rules.quantum_s >= HOUR_S:
        return deadline_pledge(state) is None
    return owed >= state.budget


def _will_not_train(state: State) -> bool:
    """Tells whether nothing will train (again): a user asked for an end, or machines that never became ready
    used up the budget.
    """
    before = state.phase in (Phase.STARTING, Phase.RESTARTING)
    return before and (state.ending.asked is not None or _over_budget(state))


def _release_machines(state: State) -> Commands:
    """Releases machines that are no longer needed, or whose paid hour is about to end unrenewed."""
    wanted: dict[str, list[str]] = {}
    for instance in state.live_instances():
        why = _release_reason(state, instance)
        if why is not None and instance.life is not InstanceState.ENDING:
            wanted.setdefault(why, []).append(instance.name)
    for why, names in wanted.items():
        yield e.Release(state.now, tuple(names), why)


def _release_reason(state: State, instance: Instance) -> str | None:
    if state.ending.asked is e.UserRequest.DOWN:
        return "taken down"
    if state.phase is Phase.RESTARTING:
        return "the job begins again from its checkpoint"
    if state.phase is Phase.CLOSING or _will_not_train(state):
        return _closing_reason(state, instance)
    if instance.given_up and instance.warned_at is None:
        return "the training has given it up"
    if _outlived_notice(state, instance):
        return "its provider did not take it when it said"
    if instance.warned_at is None and instance.ends_at is not None:
        if state.terms.queued is not None and not instance.told_join:
            return "given back before it took part"
        if instance.safe:
            return "not renewed, and safe to end"
        if state.now >= instance.ends_at:
            return "its paid hour ends"
    return None


def _outlived_notice(state: State, instance: Instance) -> bool:
    """Tells whether a warned instance is still there, and billed, long after it was to be taken."""
    if instance.warned_at is None or instance.ends_at is None:
        return False
    return state.now >= instance.ends_at + _TAKEN_WITHIN_S


def _closing_reason(state: State, instance: Instance) -> str | None:
    allocation = state.allocations[instance.allocation]
    if not _waits_for_paid_hours(state) or allocation.reliable or instance.running_at is None:
        return "the job is over"
    if state.now >= state.hour_ends(allocation) - RELEASE_LEAD_S:
        return "its paid hour ends without an eviction"
    return None


def _waits_for_paid_hours(state: State) -> bool:
    """Tells whether the job waits for paid hours to end; where seconds are billed there are none."""
    paid_by_hour = state.terms.rules.quantum_s >= HOUR_S
    done = state.phase is Phase.CLOSING and state.ending.failure is None and state.ending.asked is None
    return state.terms.objective.drain and paid_by_hour and done


def _close_run(state: State) -> Commands:
    refused = _reliable_refusal(state)
    over = state.phase is Phase.CLOSING or state.ending.asked is e.UserRequest.DOWN or _will_not_train(state)
    if (
        (over or refused is not None)
        and not any(True for _ in state.live_instances())
        and not _has_open_requests(state)
    ):
        yield _close_command(state, refused)


def _has_open_requests(state: State) -> bool:
    return any(allocation.awaits_answer for allocation in state.allocations.values())


def _reliable_refusal(state: State) -> str | None:
    """Returns why the run could not begin. Later on, the job waits for another reliable machine."""
    if state.training.training_started_at is not None:
        return None
    mine = (a for a in state.allocations.values() if a.reliable and a.on_demand)
    return next((a.refused for a in mine if a.refused), None)


def _close_command(state: State, refused: str | None) -> e.Close:
    if state.ending.failure is not None:
        return e.Close(state.now, e.RunOutcome.FAILED, 1, state.ending.failure)
    if state.ending.asked is e.UserRequest.DOWN:
        model = "the model was not saved" if state.ending.model is None else "its model had been saved"
        return e.Close(state.now, e.RunOutcome.TAKEN_DOWN, 7, f"it was taken down; {model}")
    if state.ending.asked is e.UserRequest.CANCEL and state.work_left != 0:
        return e.Close(state.now, e.RunOutcome.CANCELLED, 7, _explain_end(state, "it was cancelled"))
    if refused is not None:
        return e.Close(state.now, e.RunOutcome.FAILED, 5, f"no reliable machine could be had: {refused}")
    unfinished = state.work_left or state.training.training_over_at is None
    if unfinished and _over_budget(state):
        begun = "the budget was spent before the work was done"
        why = begun if state.allocations else "the budget left does not pay for its first machines"
        return e.Close(state.now, e.RunOutcome.FAILED, 6, _explain_end(state, why))
    if state.training.stop_given_up:
        why = "the work is done" if state.work_left == 0 else _stop_reason(state) or "it was to stop"
        return e.Close(state.now, e.RunOutcome.FAILED, 1, _explain_end(state, why))
    deadline, over = state.terms.objective.deadline_s, state.training.training_over_at
    if deadline is not None and over is not None and over - state.terms.start > deadline:
        why = "the work was done after its deadline"
        times = "once" if state.recovery.restarts == 1 else f"{state.recovery.restarts} times"
        again = f", having begun again {times} from a checkpoint" if state.recovery.restarts else ""
        return e.Close(state.now, e.RunOutcome.DONE, 6, f"{why}{again}")
    early = None if state.work_left == 0 else _stop_reason(state)
    return e.Close(state.now, e.RunOutcome.DONE, 0, early or "the work is done")


def _explain_end(state: State, why: str) -> str:
    if not state.training.stop_given_up:
        return why
    minutes = round(state.terms.end_within_s / 60)
    saved = "the model was not saved" if state.ending.model is None else "the model was saved later"
    return add_resume_hint(state, f"{why}, but its training had not ended {minutes} minutes later; {saved}")


# ---- time ---------------------------------------------------------------------------------------


def _set_alarm(state: State) -> Commands:
    when = next_wake(state)
    if when is not None and when != state.deciding.alarm:
        yield e.WakeAt(state.now, when)


def next_wake(state: State) -> Instant | None:
    """Returns the next moment at which a rule may have something to do although nothing happened."""
    return min((at for at in _wake_times(state) if at > state.now), default=None)


def _wake_times(state: State) -> Iterator[Instant]:
    if state.phase is Phase.CLOSED:
        return
    if state.interruptions.blind_until is not None:
        yield state.interruptions.blind_until
    if state.deciding.decide_from is not None and _may_decide(state):
        yield state.deciding.decide_from
    began = state.training.training_started_at is not None
    waiting = state.phase is Phase.TRAINING or (state.phase is Phase.STARTING and began)
    resting = _reliable_rest_ends(state) if waiting else None
    if resting is not None and state.reliable_missing():
        yield resting
    starting = state.phase is Phase.STARTING and state.reliable_missing() and not _will_not_train(state)
    again = _next_spot_retry(state) if starting and may_be_on_spot(state.terms) else None
    if again is not None:
        yield again
    if state.end_by is not None:
        yield state.end_by
    stop, started = state.terms.work.stop, state.training.training_started_at
    if stop.seconds is not None and started is not None and state.phase is Phase.TRAINING:
        yield seconds_after(started, stop.seconds)
    for instance in state.live_instances():
        if instance.ends_at is not None:
            late_s = 0 if instance.warned_at is None else _TAKEN_WITHIN_S
            yield Instant(instance.ends_at + late_s)
    if _waits_for_paid_hours(state):
        for name in {instance.allocation for instance in state.live_instances()}:
            if not state.allocations[name].reliable:
                yield Instant(state.hour_ends(state.allocations[name]) - RELEASE_LEAD_S)


_RULES: Final[tuple[Callable[[State], Commands], ...]] = (
    _restart_training,
    _acquire_reliable,
    _stop_training,
    _give_up_stop,
    _return_surplus,
    _decide_renewal,
    _decide_acquisition,
    _notify_training,
    _release_machines,
    _close_run,
    _set_alarm,
)
