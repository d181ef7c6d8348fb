"""Derives the next commands: ``plan(state)`` applies the rules of ``_RULES``, each seeing those before it.

Rule 1: a state in which the plan's own commands are folded has an empty plan, so nothing is requested twice.
Rule 2: nothing here waits. A rule that needs a later moment has ``_set_alarm`` request a wake-up.
Rule 3: nothing is planned at the moment of an alarm before the alarm rings. It is the last fact of its
moment. By then all facts of the moment are known, so their order within it, which differs between worlds,
decides nothing.
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
from spotctl.control.state import State
from spotctl.control.state_values import Instance, Phase

Commands = Iterator[e.Command]

_TAKEN_WITHIN_S: Final = 300
"""How many seconds after the end of its notice the provider may still be taking a warned instance."""


def plan(state: State) -> tuple[e.Command, ...]:
    """Returns the commands that follow from ``state``, in the order of execution."""
    if state.deciding.alarm is not None and state.deciding.alarm <= state.now:
        return ()
    commands: list[e.Command] = []
    for rule in _RULES:
        # A rule repeats until it yields nothing: its commands, once folded, may call for more of it.
        while state.phase is not Phase.CLOSED and (batch := tuple(rule(state))):
            commands.extend(batch)
            state = reduce(evolve, batch, state)
    return tuple(commands)


def plan_after(fact: e.Fact, state: State) -> tuple[e.Command, ...]:
    """Returns ``plan(state)``, where ``fact`` was folded last and the plan before it has been folded too."""
    # Most facts of a run are prices and finished clocks. While a job trains, these can only stop it; all
    # else that follows from them waits for the alarm. Skipping the other rules makes replays quick.
    quiet = isinstance(fact, (e.PriceChanged, e.Progressed)) and state.phase is Phase.TRAINING
    waits = (
        state.ending.asked is None and state.deciding.alarm is not None and state.now < state.deciding.alarm
    )
    if quiet and waits and not any(_stop_training(state)):
        return ()
    return plan(state)


# ---- the reliable machines ----------------------------------------------------------------------


def _restart_training(state: State) -> Commands:
    """Restarts training from its checkpoint, once all its old machines are gone."""
    if state.phase is not Phase.RESTARTING or any(state.live_instances()) or _has_open_requests(state):
        return
    if not _will_not_train(state):
        in_time = still_in_time(state, state.recovery.checkpoint_clock)
        yield e.TellRestart(state.now, state.recovery.restarts + 1, in_time)


def _acquire_reliable(state: State) -> Commands:
    """Acquires missing reliable machines. They come first and are never given up (Harlap 4.3.2)."""
    begins = state.phase is Phase.STARTING and not state.is_parked and not _will_not_train(state)
    wanted = state.ending.asked is None and (begins or state.phase is Phase.TRAINING)
    # What died during spotctl's downtime is folded fact by fact. Only the last one shows what is missing.
    blind = state.interruptions.is_blind_at(state.now)
    missing = state.reliable_missing() if wanted and not blind else 0
    where = place_reliable(state) if missing and _reliable_rest_ends(state) is None else None
    if where is not None:
        number = 1 + sum(1 for allocation in state.allocations.values() if allocation.reliable)
        yield e.Acquire(state.now, f"r{number}", where.market, missing, where.bid, reliable=True)


def _reliable_rest_ends(state: State) -> Instant | None:
    """Returns when refused on-demand reliable machines may be requested again; None: now."""
    mine = (a.rests_until for a in state.allocations.values() if a.reliable and a.on_demand)
    return max((until for until in mine if until is not None and until > state.now), default=None)


def _next_spot_retry(state: State) -> Instant | None:
    """Returns when the first resting spot market may receive another request; None: none rests."""
    spot = (a.rests_until for a in state.allocations.values() if not a.on_demand)
    return min((until for until in spot if until is not None and until > state.now), default=None)


# ---- what the training has to know --------------------------------------------------------------


def _notify_training(state: State) -> Commands:
    if state.phase in (Phase.CLOSING, Phase.RESTARTING):
        return
    yield from _report_joins(state)
    yield from _report_warnings(state)
    gone = [i for i in state.instances.values() if not i.is_live and i.told_join and not i.told_gone]
    lost = tuple(i.name for i in gone if not i.safe)
    released = tuple(i.name for i in gone if i.safe)
    if lost:
        yield e.TellLost(state.now, lost)
    if released:
        yield e.TellReleased(state.now, released)


def _report_joins(state: State) -> Commands:
    new = [
        i
        for i in state.live_instances()
        if i.life is InstanceState.RUNNING and i.ends_at is None and not i.told_join
    ]
    # ``groupby`` needs no sorting: instances stand in the order of their allocations.
    for name, group in groupby(new, key=lambda i: i.allocation):
        allocation = state.allocations[name]
        cores = state.terms.market_option(allocation.market).cores
        names = tuple(i.name for i in group)
        yield e.TellJoin(state.now, names, allocation.reliable, cores, allocation.market)


def _report_warnings(state: State) -> Commands:
    # Reliable machines hold too much to move within a notice, so training hears only of their loss.
    staying = [
        i for i in state.live_instances() if i.told_join and not i.given_up and not state.is_reliable(i)
    ]
    warned = [i for i in staying if i.ends_at is not None and not i.told_warning]
    for (_, ends_at), group in groupby(warned, key=lambda i: (i.allocation, i.ends_at)):
        assert ends_at is not None
        if state.interruptions.blind_until is not None and ends_at <= state.interruptions.blind_until:
            continue  # its notice ended while spotctl was down: for training it is a failure
        yield e.TellWarning(state.now, tuple(i.name for i in group), ends_at)


# ---- decisions ----------------------------------------------------------------------------------


def _return_surplus(state: State) -> Commands:
    """Returns machines that the lease does not cover: at the end of the paid hour, or once safe to end."""
    holding = state.surplus_allocation() if _may_act(state) else None
    if holding is not None:
        yield decide_return(state, holding)


def _decide_renewal(state: State) -> Commands:
    """Decides, shortly before an allocation's hour ends, whether to keep it for another (Harlap 4.3.2)."""
    due = due_for_renewal(state.now, state.current_footprint()) if _may_decide(state) else ()
    if due:
        # One at a time: ``plan`` repeats this rule, and the next decision sees the outcome of this one.
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
    begun = state.phase is Phase.TRAINING or (
        state.phase is Phase.STARTING and state.deciding.decide_from is not None
    )
    may = begun and state.ending.asked is None and not state.interruptions.is_blind_at(state.now)
    return may and not _will_not_train(state)


# ---- ends ---------------------------------------------------------------------------------------


def _stop_training(state: State) -> Commands:
    """Stops training gracefully: on request, once time or budget is used up, or once it has converged."""
    if state.phase is Phase.TRAINING and _stop_reason(state) is not None:
        yield e.TellStop(state.now)


def _give_up_stop(state: State) -> Commands:
    """Stops waiting for training that does not end: if a process hangs, its machines would cost forever."""
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
    """Tells whether the budget is spent."""
    if state.budget is None:
        return False
    owed = certain_cost(state)
    if owed == state.budget and state.terms.rules.quantum_s >= HOUR_S:
        # Hours are owed before they are used. A job with a pledge may owe exactly its budget, and must still
        # be able to work through the last hours that this pays for.
        return deadline_pledge(state) is None
    return owed >= state.budget


def _will_not_train(state: State) -> bool:
    """Tells whether training will not begin (again): on request, or because waiting used up the budget."""
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
    # Warned machines are left to their provider: an eviction may refund their hour, a release never does.
    if instance.warned_at is None and instance.ends_at is not None:
        if state.terms.queued is not None and not instance.told_join:
            return "given back before it took part"
        if instance.safe:
            return "not renewed, and safe to end"
        if state.now >= instance.ends_at:
            return "its paid hour ends"
    return None


def _outlived_notice(state: State, instance: Instance) -> bool:
    """Tells whether a warned instance still runs, and is billed, long after the end of its notice."""
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
    """Tells whether a finished job keeps its machines to the end of their paid hours (``drain``)."""
    paid_by_hour = state.terms.rules.quantum_s >= HOUR_S
    done = state.phase is Phase.CLOSING and state.ending.failure is None and state.ending.asked is None
    return state.terms.objective.drain and paid_by_hour and done


def _close_run(state: State) -> Commands:
    refused = _reliable_refusal(state)
    over = state.phase is Phase.CLOSING or state.ending.asked is e.UserRequest.DOWN or _will_not_train(state)
    # An open request may still be granted: closing now would leave machines that nobody releases.
    waits = any(state.live_instances()) or _has_open_requests(state)
    if (over or refused is not None) and not waits:
        yield _close_command(state, refused)


def _has_open_requests(state: State) -> bool:
    return any(allocation.awaits_answer for allocation in state.allocations.values())


def _reliable_refusal(state: State) -> str | None:
    """Returns why the run cannot begin; None once it has begun, as from then on it waits for machines."""
    if state.training.training_started_at is not None:
        return None
    mine = (a for a in state.allocations.values() if a.reliable and a.on_demand)
    return next((a.refused for a in mine if a.refused), None)


def _close_command(state: State, refused: str | None) -> e.Close:
    # The first case that holds decides: a failure explains more than the request or the budget behind it.
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
    """Returns the next moment at which a rule may yield commands although nothing happened until then."""
    return min((at for at in _wake_times(state) if at > state.now), default=None)


def _wake_times(state: State) -> Iterator[Instant]:
    # Every rule that compares a moment with ``state.now`` needs that moment here, or it fires too late.
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


# Order matters: a restart frees the way for reliable machines, and these for decisions; training hears of
# machines before they are released; the run closes once nothing is left; the alarm sees what remains.
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
