"""Folds one ledger entry into the state: ``evolve(state, entry)`` accepts every kind of entry.

The handlers of what training reports and receives are in ``training_events.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from bidbrain.bidding.decision_times import RENEWAL_LEAD_S, next_decision_at
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.model import Action
from bidbrain.strategies.deadline_inputs import update_belief
from pricing_data.model.billing import EndReason
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import PriceHistory
from pricing_data.model.units import HOUR_S, Instant, Seconds
from spotctl.control import entries as e
from spotctl.control import redone_work
from spotctl.control.estimation import prior_scaling, refit_evictions, select_estimator, update_scaling
from spotctl.control.lifecycle import InstanceState, next_state
from spotctl.control.restart import end_training, restart_or_fail
from spotctl.control.state import State
from spotctl.control.state_values import Allocation, Deciding, Downtime, Instance, MarketKnowledge, Phase
from spotctl.control.training_events import TRAINING

UNWATCHED: Final = Observations()
RELEASE_LEAD_S: Final = 30
"""Seconds before the end of the paid hour at which an allocation that is not renewed is released."""
RETIRE_WITHIN_S: Final = RENEWAL_LEAD_S - RELEASE_LEAD_S
"""Seconds that instances get to become safe to end, where seconds are billed."""


def initial_state(
    started: e.JobStarted,
    history: PriceHistory,
    capacity: Observations = UNWATCHED,
    crossings: PriceCrossing | None = None,
) -> State:
    """Returns the state after the first entry.

    ``history`` and ``capacity``: prices and machine lifetimes from before the start; later ones are cut off.
    ``crossings``: the estimator of evictions by price. A backtest passes one that it prepared for many runs.
    """
    prices, seen_before = history.as_of(started.at), capacity.as_of(started.at)
    estimator = select_estimator(started.terms.rules, seen_before, crossings or PriceCrossing())
    return State(
        now=started.at,
        terms=started.terms,
        history=prices,
        knowledge=MarketKnowledge(
            estimator=estimator,
            evictions=estimator.fit(prices, started.at),
            fitted_at=started.at,
            capacity=seen_before,
            # A queue's policy needs the measured scaling even where the job's own decisions do not.
            measured=prior_scaling(started.terms)
            if started.terms.work.measure or started.terms.queued
            else None,
        ),
        deciding=Deciding(decide_from=None if started.terms.reliable_count else started.at),
    )


def evolve(state: State, entry: e.Entry) -> State:
    """Returns the state after ``entry``."""
    if state.ending.closed is not None:
        return state
    # Time never runs backwards: a fact that arrives late is folded at ``now``, under its own ``at``.
    moved = _advance_time(state, max(state.now, entry.at))
    handler = _HANDLERS.get(type(entry))
    moved = moved if handler is None else handler(moved, entry)
    # Every entry may change the speed or the machines; evictions are estimated anew once an hour.
    return refit_evictions(update_scaling(state, moved))


def _advance_time(state: State, now: Instant) -> State:
    if now == state.now:
        return state
    worked = dict(state.training.worked)
    for instance in state.working_instances():
        kind = state.allocations[instance.allocation].market.instance_type
        worked[kind] = worked.get(kind, 0) + now - state.now
    return replace(state, now=now, training=replace(state.training, worked=worked))


# ---- prices and time ----------------------------------------------------------------------------


def _add_price(state: State, entry: e.PriceChanged) -> State:
    times = state.history.series(entry.market).times
    if len(times) and entry.at <= int(times[-1]):
        return state  # known from the history that came before the start
    return replace(state, history=state.history.with_step(entry.market, entry.at, entry.price))


def _clear_alarm(state: State, _: e.Woke) -> State:
    return replace(state, deciding=replace(state.deciding, alarm=None))


def _set_alarm(state: State, entry: e.WakeAt) -> State:
    return replace(state, deciding=replace(state.deciding, alarm=entry.when))


def _record_downtime(state: State, entry: e.ControllerDown) -> State:
    return replace(
        state,
        interruptions=replace(
            state.interruptions,
            blind_until=entry.until,
            away=Downtime(state.now, state.training.worked, entry.over_at, entry.lapsed_at),
        ),
    )


# ---- machines -----------------------------------------------------------------------------------


def _apply_transition(instance: Instance, entry: e.Entry, **changes: Any) -> Instance:
    life = next_state(instance.life, type(entry), f"{instance} at {entry.at}")
    return replace(instance, life=life, **changes)


def _add_allocation(state: State, entry: e.Acquire) -> State:
    decision = None if entry.reliable else state.deciding.last_decision
    weighed = next((w for w in decision.weighed if w.chosen), None) if decision else None
    allocation = Allocation(
        entry.allocation,
        entry.market,
        entry.count,
        entry.bid,
        requested_at=entry.at,
        beta=None if weighed is None else weighed.beta,
        reliable=entry.reliable,
    )
    return replace(state, allocations={**state.allocations, entry.allocation: allocation})


def _grant_instances(state: State, entry: e.Granted) -> State:
    asked = state.allocations[entry.allocation]
    # After a crash the order is placed again, later than ``asked`` says.
    allocation = replace(asked, requested_at=entry.at, instances=entry.instances)
    state = replace(state, allocations={**state.allocations, allocation.name: allocation})
    return state.with_instances(*(Instance(name, entry.allocation) for name in entry.instances))


def _mark_refused(state: State, entry: e.Refused) -> State:
    allocation = replace(state.allocations[entry.allocation], refused=f"{entry.error}: {entry.detail}")
    state = replace(state, allocations={**state.allocations, allocation.name: allocation})
    # The refusing spot market rests; a decision at once may choose another. On demand no market rests, so
    # a decision at once would only repeat the request.
    if state.deciding.decide_from is None or allocation.on_demand:
        return state
    return replace(state, deciding=replace(state.deciding, decide_from=state.now))


def _mark_running(state: State, entry: e.InstancesRunning) -> State:
    return state.with_instances(
        *(_apply_transition(state.instances[n], entry, running_at=entry.at) for n in entry.instances)
    )


def _mark_warned(state: State, entry: e.EvictionWarned) -> State:
    # A machine may have warned of its own eviction before its provider did: nothing else follows twice.
    known = [state.instances[name] for name in entry.instances]
    state = state.with_instances(*(_confirm_notice(i, entry) for i in known if i.warned_at is not None))
    warned = [
        _apply_transition(instance, entry, warned_at=entry.at, ends_at=entry.ends_at)
        for instance in known
        if instance.warned_at is None
    ]
    if not warned:
        return state
    allocations = {i.allocation for i in warned}
    if state.knowledge.belief is not None:
        state = _update_belief(state, up=False)
    state = state.with_instances(*warned)
    soon = None if state.deciding.decide_from is None else state.now
    evicted = state.recovery.evicted_allocations + len(allocations)
    return replace(
        state,
        recovery=replace(state.recovery, evicted_allocations=evicted),
        deciding=replace(state.deciding, decide_from=soon),
    )


def _confirm_notice(instance: Instance, entry: e.EvictionWarned) -> Instance:
    """Returns an instance whose own notice the provider confirms; the earlier of both end times counts."""
    assert instance.ends_at is not None
    return _apply_transition(instance, entry, ends_at=min(instance.ends_at, entry.ends_at))


def _hear_notice(state: State, entry: e.EvictionNoticed) -> State:
    """Marks an instance as warned on its own report, unless it was warned before or is ending."""
    instance = state.instances[entry.instance]
    if instance.life not in (InstanceState.PENDING, InstanceState.RUNNING):
        return state
    return _mark_warned(state, e.EvictionWarned(entry.at, (entry.instance,), entry.ends_at))


def _end_instances(state: State, entry: e.InstancesEnded) -> State:
    ended = [
        _apply_transition(state.instances[name], entry, ended_at=entry.at, end=entry.end)
        for name in entry.instances
    ]
    state = redone_work.mark_stopped(state.with_instances(*ended), entry.instances)
    # A release is no loss, except of machines that training had given up.
    if entry.end is EndReason.RELEASED:
        ended = [
            instance
            for instance in ended
            if instance.given_up and state.ending.asked is not e.UserRequest.DOWN
        ]
    if not ended:
        return state
    training = state.phase in (Phase.TRAINING, Phase.STOPPING)
    done_at = state.training.training_over_at
    # After a downtime the end of training may be folded before this end, which came earlier.
    trained = training or (done_at is not None and entry.at < done_at)
    lost = [i for i in ended if i.told_join and not i.safe and trained]
    state = replace(state, recovery=replace(state.recovery, failures=state.recovery.failures + len(lost)))
    why = _fatal_loss(state, lost) if training else None
    if why is not None:
        return restart_or_fail(state, why)
    if not _never_began(state) or _will_ask_again(state, ended):
        return state
    why = "the reliable machines were lost before the training began"
    return restart_or_fail(state, why) if state.recovery.restarts else end_training(state, why)


def _fatal_loss(state: State, lost: Iterable[Instance]) -> str | None:
    """Returns why training cannot continue after losing these instances; None where it may."""
    reliable = next((instance for instance in lost if state.is_reliable(instance)), None)
    # Another live reliable machine may hold a copy. Then training itself reports whether it continues.
    others = any(state.is_reliable(instance) and instance.joined for instance in state.live_instances())
    if reliable is None or others:
        return None
    lost_it = f"the reliable machine {reliable.name} was lost with the only safe copy of the model"
    if state.interruptions.away is None or reliable.ended_at != state.interruptions.away.lapsed_at:
        return lost_it
    return f"{lost_it}: spotctl was away for longer than its lease (local.lease)"


def _will_ask_again(state: State, ended: Iterable[Instance]) -> bool:
    """Tells whether the ended reliable machines ran on spot: then others will be requested."""
    mine = [state.allocations[instance.allocation] for instance in ended]
    return any(allocation.reliable and not allocation.on_demand for allocation in mine)


def _never_began(state: State) -> bool:
    """Tells whether no machine is left of those that training was to begin on."""
    starting = state.phase is Phase.STARTING and state.terms.reliable_count > 0
    return starting and state.ending.asked is None and not any(state.live_instances())


def _begin_release(state: State, entry: e.Release) -> State:
    return state.with_instances(
        *(_apply_transition(state.instances[name], entry) for name in entry.instances)
    )


# ---- from outside --------------------------------------------------------------------------------


def _add_pause(state: State, entry: e.Stalled) -> State:
    # Effects awaited at the same moment are one pause, as long as the longest of them.
    longest = max(entry.real_s, state.interruptions.held.get(entry.at, 0.0))
    return replace(
        state,
        interruptions=replace(state.interruptions, held={**state.interruptions.held, entry.at: longest}),
    )


def _set_lease(state: State, entry: e.Leased) -> State:
    # A job that receives a lease decides at once; without one it has nothing to decide.
    soon = (
        state.deciding.decide_from if entry.lease is None or state.deciding.decide_from is None else state.now
    )
    return replace(
        state,
        share=replace(state.share, lease=entry.lease, allowance=entry.allowance),
        deciding=replace(state.deciding, decide_from=soon),
    )


def _set_request(state: State, entry: e.Asked) -> State:
    # ``cancel`` comes too late after ``down``: no machine is left that could save the model.
    if state.ending.asked is e.UserRequest.DOWN:
        return state
    return replace(state, ending=replace(state.ending, asked=entry.ask))


# ---- decisions ----------------------------------------------------------------------------------


def _apply_decision(state: State, entry: e.Decided) -> State:
    decision = entry.decision
    state = replace(
        state,
        deciding=replace(state.deciding, last_decision=decision, decisions=state.deciding.decisions + 1),
    )
    if entry.spot_up is not None:
        state = _update_belief(state, entry.spot_up)
    if decision.holding is not None:
        allocation = state.allocations[decision.holding]
        state = _apply_renewal(state, decision.action, allocation)
        # Machines of an unanswered request cannot leave yet: a later decision has to look at it again.
        if not allocation.awaits_answer:
            return state
    if decision.again:
        return state
    started = state.training.training_started_at
    anchor = state.terms.start if started is None else started
    soon = next_decision_at(state.now, state.current_footprint(), anchor)
    return replace(state, deciding=replace(state.deciding, decide_from=soon))


def _update_belief(state: State, up: bool) -> State:
    """Updates the belief about spot capacity. ``up``: whether spot machines were available."""
    belief = update_belief(state.knowledge.belief, up, Seconds(float(state.now - state.terms.start)))
    return replace(state, knowledge=replace(state.knowledge, belief=belief))


def _apply_renewal(state: State, action: Action, allocation: Allocation) -> State:
    """Marks the hour's renewal as decided. Unless it is renewed, its instances leave before the next hour."""
    ends = state.hour_ends(allocation)
    settled = replace(allocation, renewed_until=ends)
    state = replace(state, allocations={**state.allocations, allocation.name: settled})
    if action is Action.RENEW:
        return state
    # A paid hour is used to its end. Where seconds are billed, each one until they leave would cost.
    by_the_hour = state.terms.rules.quantum_s >= HOUR_S
    leave_at = Instant(ends - RELEASE_LEAD_S if by_the_hour else state.now + RETIRE_WITHIN_S)
    return state.with_instances(
        *(replace(i, ends_at=leave_at) for i in state.instances_of(allocation.name) if i.is_staying)
    )


def _close_run(state: State, entry: e.Close) -> State:
    return replace(state, phase=Phase.CLOSED, ending=replace(state.ending, closed=entry))


_HANDLERS: Final[Mapping[type, Callable[[State, Any], State]]] = {
    e.PriceChanged: _add_price,
    e.Woke: _clear_alarm,
    e.WakeAt: _set_alarm,
    e.ControllerDown: _record_downtime,
    e.Acquire: _add_allocation,
    e.Granted: _grant_instances,
    e.Refused: _mark_refused,
    e.InstancesRunning: _mark_running,
    e.EvictionWarned: _mark_warned,
    e.EvictionNoticed: _hear_notice,
    e.InstancesEnded: _end_instances,
    e.Release: _begin_release,
    **TRAINING,
    e.Stalled: _add_pause,
    e.Asked: _set_request,
    e.Leased: _set_lease,
    e.Decided: _apply_decision,
    e.Close: _close_run,
}
