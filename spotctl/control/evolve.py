"""``evolve(state, entry)``: what an entry of the ledger means for the state. Total over all entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from bidbrain.eviction.price_crossing import PriceCrossing
from bidbrain.model import Action
from bidbrain.moves import egress_owed, leaves_region
from bidbrain.schedule import RENEWAL_LEAD_S, next_decision_at
from bidbrain.strategies.pledge import seen
from pricing_data.billing import End
from pricing_data.market import Market, PriceHistory
from pricing_data.spells import Observations
from pricing_data.units import HOUR_S, Instant, Seconds
from spotctl.control import events as e
from spotctl.control.away import over_at, worked_until
from spotctl.control.learning import estimator_of, measured, refit, unmeasured
from spotctl.control.lifecycle import after
from spotctl.control.luggage import egress_prices
from spotctl.control.restarting import begun_again, cannot_go_on, lost_reliable, over, resumed
from spotctl.control.state import Allocation, Away, Fetched, Instance, Phase, State

UNWATCHED: Final = Observations()
RELEASE_LEAD_S: Final = 30
"""An allocation that is not renewed is released this long before its paid hour ends."""
RETIRE_WITHIN_S: Final = RENEWAL_LEAD_S - RELEASE_LEAD_S
"""And where seconds are billed it is given as long to become safe to end."""


def begin(
    started: e.JobStarted,
    history: PriceHistory,
    capacity: Observations = UNWATCHED,
    crossings: PriceCrossing | None = None,
) -> State:
    """The state after the first entry.

    ``history`` and ``capacity``: prices, and who kept machines, before the start; what is later is cut.
    ``crossings`` estimates evictions by price, where a replay has one that is quicker.
    """
    prices, seen_before = history.as_of(started.at), capacity.as_of(started.at)
    estimator = estimator_of(started.terms.rules, seen_before, crossings or PriceCrossing())
    return State(
        now=started.at,
        terms=started.terms,
        history=prices,
        estimator=estimator,
        evictions=estimator.fit(prices, started.at),
        fitted_at=started.at,
        capacity=seen_before,
        decide_from=None if started.terms.reliable_count else started.at,
        measured=unmeasured(started.terms) if started.terms.measure or started.terms.queued else None,
    )


def evolve(state: State, entry: e.Entry) -> State:
    """The state after ``entry``. Time never runs backwards: late news of the past is folded at ``now``."""
    if state.closed is not None:
        return state
    moved = _elapse(state, max(state.now, entry.at))
    handler = _HANDLERS.get(type(entry))
    moved = moved if handler is None else handler(moved, entry)
    return refit(measured(state, moved))


def _elapse(state: State, now: Instant) -> State:
    if now == state.now:
        return state
    worked = dict(state.worked)
    for instance in state.at_work():
        kind = state.allocations[instance.allocation].market.instance_type
        worked[kind] = worked.get(kind, 0) + now - state.now
    return replace(state, now=now, worked=worked)


# ---- prices and time ----------------------------------------------------------------------------


def _price(state: State, entry: e.PriceChanged) -> State:
    times = state.history.series(entry.market).times
    if len(times) and entry.at <= int(times[-1]):
        return state  # known from the history that came before the start
    return replace(state, history=state.history.appended(entry.market, entry.at, entry.price))


def _woke(state: State, _: e.Woke) -> State:
    return replace(state, alarm=None)


def _wake_at(state: State, entry: e.WakeAt) -> State:
    return replace(state, alarm=entry.when)


def _down(state: State, entry: e.ControllerDown) -> State:
    return replace(state, blind_until=entry.until, away=Away(state.now, state.worked, entry.over_at))


# ---- machines -----------------------------------------------------------------------------------


def _with(state: State, *changed: Instance) -> State:
    return replace(state, instances={**state.instances, **{i.name: i for i in changed}})


def _step(instance: Instance, entry: e.Entry, **changes: Any) -> Instance:
    life = after(instance.life, type(entry), f"{instance} at {entry.at}")
    return replace(instance, life=life, **changes)


def _acquire(state: State, entry: e.Acquire) -> State:
    decision = None if entry.reliable else state.last_decision
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


def _granted(state: State, entry: e.Granted) -> State:
    asked = state.allocations[entry.allocation]
    allocation = replace(asked, requested_at=entry.at, instances=entry.instances)
    state = replace(state, allocations={**state.allocations, allocation.name: allocation})
    return _with(state, *(Instance(name, entry.allocation) for name in entry.instances))


def _refused(state: State, entry: e.Refused) -> State:
    """A spot market that refuses rests, and others may be asked at once. On demand there is none to rest:
    it is asked again at the next decision.
    """
    allocation = replace(state.allocations[entry.allocation], refused=f"{entry.error}: {entry.detail}")
    state = replace(state, allocations={**state.allocations, allocation.name: allocation})
    if state.decide_from is None or allocation.on_demand:
        return state
    return replace(state, decide_from=state.now)


def _running(state: State, entry: e.InstancesRunning) -> State:
    return _with(state, *(_step(state.instances[n], entry, running_at=entry.at) for n in entry.instances))


def _warned(state: State, entry: e.EvictionWarned) -> State:
    warned = [
        _step(state.instances[name], entry, warned_at=entry.at, ends_at=entry.ends_at)
        for name in entry.instances
    ]
    allocations = {i.allocation for i in warned}
    if state.belief is not None:
        state = _looked(state, up=False)
    return replace(
        _with(state, *warned),
        evicted_allocations=state.evicted_allocations + len(allocations),
        decide_from=None if state.decide_from is None else state.now,
    )


def _ended(state: State, entry: e.InstancesEnded) -> State:
    ended = [
        _step(state.instances[name], entry, ended_at=entry.at, end=entry.end) for name in entry.instances
    ]
    state = _with(state, *ended)
    if entry.end is End.RELEASED:
        ended = [instance for instance in ended if instance.given_up and state.asked is not e.Ask.DOWN]
    if not ended:
        return state
    training = state.phase in (Phase.TRAINING, Phase.STOPPING)
    lost = [i for i in ended if i.told_join and not i.safe and training]
    state = replace(state, failures=state.failures + len(lost))
    why = _fatal(state, lost)
    if why is not None:
        return cannot_go_on(state, why)
    if not _never_began(state):
        return state
    why = "the reliable machines were lost before the training began"
    return cannot_go_on(state, why) if state.restarts else over(state, why)


def _fatal(state: State, lost: Iterable[Instance]) -> str | None:
    """Why the training cannot go on after an end that nobody asked for; None where it can.

    While another reliable machine lives the training may have a copy there: whether it can go on, it says.
    """
    reliable = next((instance for instance in lost if state.is_reliable(instance)), None)
    others = any(state.is_reliable(instance) and instance.joined for instance in state.live())
    if reliable is None or others:
        return None
    return f"the reliable machine {reliable.name} was lost with the only safe copy of the model"


def _never_began(state: State) -> bool:
    """Whether nothing is left of the machines that training was to begin on."""
    starting = state.phase is Phase.STARTING and state.terms.reliable_count > 0
    return starting and state.asked is None and not any(state.live())


def _release(state: State, entry: e.Release) -> State:
    return _with(state, *(_step(state.instances[name], entry) for name in entry.instances))


# ---- training -----------------------------------------------------------------------------------


def _tell_join(state: State, entry: e.TellJoin) -> State:
    return _with(state, *(replace(state.instances[name], told_join=True) for name in entry.instances))


def _tell_warning(state: State, entry: e.TellWarning) -> State:
    return _with(
        state,
        *(replace(state.instances[n], told_warning=True, ends_at=entry.ends_at) for n in entry.instances),
    )


def _tell_gone(state: State, entry: e.TellLost | e.TellReleased) -> State:
    return _with(state, *(replace(state.instances[name], told_gone=True) for name in entry.instances))


def _tell_stop(state: State, _: e.TellStop) -> State:
    return replace(state, phase=Phase.STOPPING, ending_at=state.now)


def _stop_given_up(state: State, _: e.StopGivenUp) -> State:
    return replace(over(state, None), stop_given_up=True)


def _tell_restart(state: State, _: e.TellRestart) -> State:
    return begun_again(state)


def _joined(state: State, entry: e.MachineJoined) -> State:
    instance = state.instances[entry.instance]
    state = _with(state, replace(instance, joined=True, joined_at=entry.at))
    if state.phase is not Phase.STARTING or not instance.live:
        return state
    first = state.now if state.training_started_at is None else state.training_started_at
    state = replace(state, phase=Phase.TRAINING, training_started_at=first)
    return replace(state, decide_from=state.now) if state.terms.reliable_count else state


def _given_up(state: State, entry: e.MachineGivenUp | e.ControllerSilent) -> State:
    """It counts as lost when it has ended, as one that dies by itself."""
    instance = state.instances[entry.instance]
    return _with(state, replace(instance, given_up=True)) if instance.live else state


def _safe(state: State, entry: e.SafeToKill) -> State:
    return _with(state, replace(state.instances[entry.instance], safe=True))


def _progressed(state: State, entry: e.Progressed) -> State:
    state = replace(
        state, clock=max(state.clock, entry.clock), consistent=max(state.consistent, entry.consistent)
    )
    ends = state.work_left == 0 and state.terms.reliable_count > 0  # a command ends when its program does
    return replace(state, ending_at=state.now) if ends and state.ending_at is None else state


def _stored(state: State, entry: e.CheckpointStored) -> State:
    market = _market_of(state, entry.instance)
    return replace(state, checkpoint_at=market, checkpoint_bytes=entry.size_bytes)


def _checkpointed(state: State, entry: e.Checkpointed) -> State:
    return replace(state, checkpoint=(entry.clock, entry.folder))


def _checkpoint_failed(state: State, _: e.CheckpointFailed) -> State:
    return state


def _resumed(state: State, entry: e.TrainingResumed) -> State:
    """Clocks of an earlier run are no work of this one's; where it began again they are its own."""
    if state.restarts:
        return resumed(state, entry.clock, entry.folder)
    return replace(
        state,
        clock=entry.clock,
        consistent=entry.clock,
        resumed_from=entry.clock,
        checkpoint=(entry.clock, entry.folder),
    )


def _fetched(state: State, entry: e.CheckpointFetched) -> State:
    """What leaves a region is billed by the cloud that it leaves; between its zones nothing is."""
    luggage = state.terms.luggage
    here, there = _market_of(state, entry.stored_by), _market_of(state, entry.instance)
    if luggage is None or not leaves_region(here, there):
        return state
    owed = egress_owed(entry.size_bytes, egress_prices(luggage).price(here, there))
    fetched = Fetched(state.now, entry.instance, entry.size_bytes, here, there, owed)
    return replace(state, fetched=(*state.fetched, fetched))


def _market_of(state: State, instance: str) -> Market:
    return state.allocations[state.instances[instance].allocation].market


def _objective(state: State, entry: e.ObjectiveReported) -> State:
    delta = state.terms.stop.objective_delta
    settled = (
        delta is not None and state.objective is not None and abs(state.objective - entry.value) <= delta
    )
    return replace(
        state,
        objective=entry.value,
        objective_clock=entry.clock,
        objective_settled=state.objective_settled or settled,
    )


def _stage(state: State, entry: e.StageEntered) -> State:
    if entry.stage == state.stage:
        return state
    return replace(state, stage=entry.stage, stage_transitions=state.stage_transitions + 1)


def _rolled_back(state: State, entry: e.RolledBack) -> State:
    ending_at = state.ending_at if state.phase is Phase.STOPPING else None
    redone = state.clocks_redone + entry.redone
    return replace(state, clock=entry.to, clocks_redone=redone, ending_at=ending_at)


def _finished(state: State, entry: e.TrainingFinished) -> State:
    over = over_at(state, entry)
    return replace(
        state,
        phase=Phase.CLOSING,
        clock=entry.clock,
        model=entry.model,
        training_over_at=over,
        worked=worked_until(state, over),
    )


def _training_failed(state: State, entry: e.TrainingFailed) -> State:
    """A job that was ended before it could hear of it, its machines given back, has not failed by itself.

    Where reliable machines were lost that is why it failed, and it begins again from a checkpoint.
    """
    if state.phase is Phase.RESTARTING or state.stop_given_up:
        return state  # which is known
    given_back = state.asked is not None and not any(state.live())
    began = state.phase in (Phase.TRAINING, Phase.STOPPING) or state.restarts > 0
    if not given_back and began and state.phase is not Phase.CLOSING and lost_reliable(state):
        return cannot_go_on(state, entry.why)
    return over(state, None if given_back else entry.why)


def _stalled(state: State, entry: e.Stalled) -> State:
    """Effects that are waited for together are one hold."""
    longest = max(entry.real_s, state.held.get(entry.at, 0.0))
    return replace(state, held={**state.held, entry.at: longest})


def _leased(state: State, entry: e.Leased) -> State:
    """Whoever was given more decides at once what to make of it."""
    soon = state.decide_from if entry.lease is None or state.decide_from is None else state.now
    return replace(state, lease=entry.lease, allowance=entry.allowance, decide_from=soon)


def _asked(state: State, entry: e.Asked) -> State:
    """Machines that were taken away cannot save a model any more: after ``down``, ``cancel`` is too late."""
    return state if state.asked is e.Ask.DOWN else replace(state, asked=entry.ask)


# ---- decisions ----------------------------------------------------------------------------------


def _decided(state: State, entry: e.Decided) -> State:
    decision = entry.decision
    state = replace(state, last_decision=decision, decisions=state.decisions + 1)
    if entry.spot_up is not None:
        state = _looked(state, entry.spot_up)
    if decision.holding is not None:
        allocation = state.allocations[decision.holding]
        state = _renewal(state, decision.action, allocation)
        if not allocation.unanswered:
            return state  # else nobody can go yet: it is decided about again when it may have been answered
    anchor = state.training_started_at if state.training_started_at is not None else state.terms.start
    return replace(state, decide_from=next_decision_at(state.now, state.holdings(), anchor))


def _looked(state: State, up: bool) -> State:
    """The market was seen with spot machines to be had, or without."""
    return replace(state, belief=seen(state.belief, up, Seconds(float(state.now - state.terms.start))))


def _renewal(state: State, action: Action, allocation: Allocation) -> State:
    """Settled until the hour's end; where the next hour is not wanted, the instances go before it begins.

    Where seconds are billed they go as soon as they are safe to end: no hour was paid in advance.
    """
    ends = state.hour_ends(allocation)
    settled = replace(allocation, renewed_until=ends)
    state = replace(state, allocations={**state.allocations, allocation.name: settled})
    if action is Action.RENEW:
        return state
    by_the_hour = state.terms.rules.quantum_s >= HOUR_S
    leave_at = Instant(ends - RELEASE_LEAD_S if by_the_hour else state.now + RETIRE_WITHIN_S)
    return _with(state, *(replace(i, ends_at=leave_at) for i in state.of(allocation.name) if i.stays))


def _close(state: State, entry: e.Close) -> State:
    return replace(state, phase=Phase.CLOSED, closed=entry)


_HANDLERS: Final[Mapping[type, Callable[[State, Any], State]]] = {
    e.PriceChanged: _price,
    e.Woke: _woke,
    e.WakeAt: _wake_at,
    e.ControllerDown: _down,
    e.Acquire: _acquire,
    e.Granted: _granted,
    e.Refused: _refused,
    e.InstancesRunning: _running,
    e.EvictionWarned: _warned,
    e.InstancesEnded: _ended,
    e.Release: _release,
    e.TellJoin: _tell_join,
    e.TellWarning: _tell_warning,
    e.TellLost: _tell_gone,
    e.TellReleased: _tell_gone,
    e.TellStop: _tell_stop,
    e.StopGivenUp: _stop_given_up,
    e.TellRestart: _tell_restart,
    e.MachineJoined: _joined,
    e.MachineGivenUp: _given_up,
    e.ControllerSilent: _given_up,
    e.SafeToKill: _safe,
    e.Progressed: _progressed,
    e.CheckpointStored: _stored,
    e.CheckpointFetched: _fetched,
    e.Checkpointed: _checkpointed,
    e.CheckpointFailed: _checkpoint_failed,
    e.TrainingResumed: _resumed,
    e.ObjectiveReported: _objective,
    e.StageEntered: _stage,
    e.RolledBack: _rolled_back,
    e.TrainingFinished: _finished,
    e.TrainingFailed: _training_failed,
    e.Stalled: _stalled,
    e.Asked: _asked,
    e.Leased: _leased,
    e.Decided: _decided,
    e.Close: _close,
}
