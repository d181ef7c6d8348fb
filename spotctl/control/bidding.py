"""Turns a run's state into BidBrain's observation, and its strategy's decision into ``Decided``.

Without a deadline the job's strategy decides alone. With one, the deadline binds that strategy
(``bidbrain.strategies.deadline_bound``). Pure: the same state always gives the same decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Final

from msgspec import structs

from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.deadline.feasibility import Promise
from bidbrain.model import Action, Decision, Holding, Observation, Offer, ReliableMachines, ScalingModel
from bidbrain.strategies.base import NO_REQUEST, PlacingStrategy
from bidbrain.strategies.deadline_bound import DeadlineBound
from bidbrain.strategies.deadline_inputs import Pledge, check_promise, spot_available
from bidbrain.strategies.lease_bound import LeaseBound, close_outside_lease
from bidbrain.strategies.registry import DEFAULT, LIVE, bind_to_deadline
from bidbrain.strategies.reliable_tier import MAX_FAILED_RESTARTS, Restart
from bidbrain.strategies.without_reliable_tier import LiveStrategy, WithoutReliableTier
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Seconds, Usd, UsdPerHour, seconds_after
from spotctl.control import entries as e
from spotctl.control.billing import MICROS_PER_USD, certain_cost
from spotctl.control.checkpoint_transfer import checkpoint_to_move
from spotctl.control.run_spec import RunSpec
from spotctl.control.state import State

UNFORESEEN_S: Final = 4 * HOUR_S
"""Seconds that a program is assumed to run if its job file does not say."""


def decide_acquisition(state: State) -> e.Decided:
    """Decides what to acquire, or to terminate, now."""
    seen, pledged = build_observation(state), deadline_pledge(state)
    if pledged is None:
        return e.Decided(state.now, build_strategy(state).decide(seen))
    return e.Decided(
        state.now,
        _limit_to_reserved_room(state, _deadline_strategy(state).decide(seen, pledged)),
        spot_available(seen),
    )


def _limit_to_reserved_room(state: State, decision: Decision) -> Decision:
    """Caps an on-demand order at the machines that the queue reserved for the job."""
    rents = decision.action is Action.ACQUIRE and decision.bid is None
    if state.terms.queued is None or not rents:
        return decision
    # Leaving machines take up reserved room until they are gone, or the queue's quota would be exceeded.
    room = state.terms.limits.max_instances - state.rented_count
    if decision.count <= room:
        return decision
    if room > 0:
        return replace(decision, count=room)
    why = "The machines on demand that go have to be gone before others come."
    return replace(decision, action=Action.HOLD, why=why, market=None, count=0)


def decide_renewal(state: State, holding: str) -> e.Decided:
    """Decides whether to keep an allocation, whose hour is about to end, for another hour."""
    seen, pledged = build_observation(state), deadline_pledge(state)
    if pledged is None:
        return e.Decided(state.now, build_strategy(state).renew_or_terminate(seen, holding))
    return e.Decided(state.now, _deadline_strategy(state).renew_or_terminate(seen, pledged, holding))


def decide_return(state: State, holding: Holding) -> e.Decided:
    """Decides to return an allocation, because the queue took its lease back or made it smaller."""
    why = (
        "Its lease is over." if state.share.lease is None else "Its lease is of other machines now, or fewer."
    )
    decision = Decision(
        at=state.now,
        action=Action.TERMINATE,
        cost_per_work_now=inf,
        why=why,
        weighed=(),
        considered=0,
        holding=holding.id,
        market=holding.market,
        count=holding.counts_for,
        bid=holding.bid,
    )
    return e.Decided(state.now, decision)


def build_observation(state: State) -> Observation:
    """Returns what BidBrain sees: nothing later than ``state.now``, and in a queue only leased markets."""
    seen = observe_whole_market(state)
    if state.terms.queued is None:
        return seen
    return replace(seen, offers=close_outside_lease(seen.offers, state.share.lease))


def observe_whole_market(state: State) -> Observation:
    """Returns the observation of all the job's markets, whatever a lease allows."""
    terms, queued, trusted = state.terms, state.terms.queued, state.trusted_measurements
    offers, speeds = [], state.machine_speeds()
    # A promise counts on the cautious estimate of each speed.
    surely = speeds if trusted is None else trusted.safe_speeds()
    spot = (a for a in state.allocations.values() if not a.on_demand)
    resting = {a.market for a in spot if a.rests_until is not None and state.now < a.rests_until}
    for tradable in terms.spot:
        price = state.history.price(tradable.market, state.now)
        if price is not None:
            free = tradable.market not in resting
            rents = queued is None or not queued.promised or tradable.market in queued.rents
            kind = tradable.market.instance_type
            offers.append(
                Offer(tradable.market, price, tradable.on_demand, speeds[kind], free, rents, surely[kind])
            )
    return Observation(
        now=state.now,
        rules=terms.rules,
        reliable=ReliableMachines(
            terms.reliable_count, terms.reliable.on_demand, speeds[terms.reliable.market.instance_type]
        ),
        footprint=state.current_footprint(),
        offers=tuple(offers),
        limits=terms.limits,
        scaling=_current_scaling(state, max(speeds.values())),
        evictions=state.knowledge.evictions,
        work_left=inf if state.work_left is None else state.work_left,
        carried=checkpoint_to_move(state),
    )


def _current_scaling(state: State, fastest: float) -> ScalingModel:
    """Returns the scaling, configured or measured. ``fastest``: core-seconds per second of one machine."""
    terms, trusted = state.terms, state.trusted_measurements
    found = terms.work.scaling if trusted is None else trusted.fit_scaling(terms.work.scaling)
    if not state.keeps_nothing:
        return found
    # An eviction at a random moment costs a program without checkpoints half of its running time.
    whole_s = float(UNFORESEEN_S)
    if terms.work.stop.clocks is not None:
        whole_s = terms.work.stop.clocks * terms.work.core_seconds_per_clock / fastest
    return replace(found, lambda_s=Seconds(found.lambda_s + whole_s / 2))


def deadline_pledge(state: State) -> Pledge | None:
    """Returns the job's deadline and budget as a pledge; None without a deadline or a known end."""
    terms = state.terms
    if terms.objective.deadline_s is None or terms.work.stop.clocks is None:
        return None
    if terms.queued is not None and not terms.queued.promised:
        return None
    budget = state.budget
    left = inf if budget is None else (budget - certain_cost(state)) / MICROS_PER_USD
    return Pledge(
        start=terms.start,
        deadline=seconds_after(terms.start, terms.objective.deadline_s),
        work=terms.work.stop.clocks * terms.work.core_seconds_per_clock,
        start_s=Seconds(terms.start_s),
        budget_left=Usd(left),
        belief=state.knowledge.belief,
        unsaved_work=_unsaved_work(terms),
        measured=terms.work.measure,
    )


def _unsaved_work(terms: RunSpec) -> float:
    """Returns the core-seconds lost at worst with a machine, on top of lambda."""
    if not terms.engine.relies_on_checkpoints:
        return 0.0
    step = terms.work.core_seconds_per_clock
    if terms.recovery.keeps_nothing and terms.work.stop.clocks is not None:
        return step * terms.work.stop.clocks
    # A program counts whole steps: the current one is lost even where a warning saves the others.
    if terms.recovery.saves_on_warning:
        return step
    # It writes a checkpoint after the first step past the interval, hence a second step.
    fastest = max(tradable.nu for tradable in terms.spot)
    return 2 * step + terms.checkpointing.interval_s * fastest


def restart_of(terms: RunSpec) -> Restart | None:
    """Returns how the job restarts after losing its reliable machines; None where they must be on demand."""
    # Without checkpoints their loss ends the job; a deadline, or a queue's reservation, relies on them.
    keeps = terms.recovery.keeps
    if keeps is None or terms.objective.deadline_s is not None or terms.queued is not None:
        return None
    return Restart(keeps.clocks, keeps.seconds, terms.work.core_seconds_per_clock, terms.start_s)


def may_be_on_spot(terms: RunSpec) -> bool:
    """Tells whether reliable machines may run on spot: the job can restart, and its strategy places them."""
    return restart_of(terms) is not None and isinstance(LIVE[_strategy_name(terms)](1.0), PlacingStrategy)


_NOTHING: Final = Usd(0.0)


@dataclass(frozen=True, slots=True)
class ReliablePlacement:
    """Says in which market to acquire reliable machines, and at what expected cost."""

    market: Market
    price: UsdPerHour
    """Dollars per hour of one machine, now."""
    bid: UsdPerHour | None = None
    """None: on demand."""
    losses_per_hour: float = 0.0
    loss: Usd = _NOTHING
    """Dollars that one loss costs: work done again, and the time until machines work again."""

    @property
    def per_hour(self) -> float:
        """Returns dollars per hour of one machine, expected losses included."""
        return self.price + self.losses_per_hour * self.loss


def place_reliable(state: State) -> ReliablePlacement | None:
    """Returns where to acquire missing reliable machines; None: waiting for a spot market costs less."""
    terms = state.terms
    on_demand = ReliablePlacement(terms.reliable.market, terms.reliable.on_demand)
    restart, wanted = restart_of(terms), LIVE[_strategy_name(terms)](_most_cores(state))
    in_vain = state.recovery.taken_in_vain >= MAX_FAILED_RESTARTS
    if restart is None or in_vain or not isinstance(wanted, PlacingStrategy):
        return on_demand
    single = ObservationBatch.from_observation(replace(build_observation(state), footprint=()))
    found = wanted.place_reliable(single.setting, single.at, restart)
    if found.waits[0]:
        return None
    code = int(found.market[0])
    if code == NO_REQUEST:
        return on_demand
    return ReliablePlacement(
        market=single.setting.markets[code],
        price=UsdPerHour(float(single.at.prices[0, code])),
        bid=UsdPerHour(float(found.bid[0])),
        losses_per_hour=float(found.losses_per_hour[0]),
        loss=Usd(float(found.loss[0])),
    )


def deadline_promise(state: State) -> Promise | None:
    """Checks whether deadline and budget can be promised; None where the job has no pledge."""
    pledged = deadline_pledge(state)
    return None if pledged is None else check_promise(build_observation(state), pledged)


def still_in_time(state: State, clock: int) -> bool | None:
    """Tells whether deadline and budget can still be kept if the job restarts after ``clock`` now.

    None: it has promised none.
    """
    # The promise counts on on-demand machines alone, from when the reliable ones are running.
    back = structs.replace(state, training=structs.replace(state.training, clock=clock))
    pledged, left = deadline_pledge(back), back.work_left
    if pledged is None or left is None:
        return None
    begins = seconds_after(back.now, Seconds(pledged.start_s + back.terms.work.scaling.sigma_s))
    if begins >= pledged.deadline:
        return False
    rest = replace(pledged, start=begins, work=left)
    return check_promise(build_observation(back), rest).is_feasible


def build_strategy(state: State) -> LiveStrategy:
    """Returns the job's strategy, adapted to a job without reliable machines and to a queue's lease."""
    wanted = LIVE[_strategy_name(state.terms)](_most_cores(state))
    alone = wanted if state.terms.reliable_count else WithoutReliableTier(wanted)
    if state.terms.queued is None:
        return alone
    return LeaseBound(
        alone, state.share.lease, state.leaving_spot_count, capped=state.share.allowance is not None
    )


def _deadline_strategy(state: State) -> DeadlineBound:
    return replace(
        bind_to_deadline(_strategy_name(state.terms), _most_cores(state)), strategy=build_strategy(state)
    )


def _strategy_name(terms: RunSpec) -> str:
    # The default strategy exchanges machines, which needs room for the old and the new one for a minute. A
    # queue has no such room: it grants no machine that another job may still hold.
    if terms.queued is not None and terms.objective.strategy == DEFAULT:
        return "proteus"
    return terms.objective.strategy


def _most_cores(state: State) -> float:
    """Returns the cores of as many machines as the job may hold, of the type that is cheapest on demand."""
    terms = state.terms
    cheapest = min(terms.spot, key=lambda tradable: tradable.on_demand / tradable.nu)
    return float(terms.limits.max_instances * cheapest.nu)
