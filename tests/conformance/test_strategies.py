"""The contract of ``bidbrain.strategies.base`` and of the wrappers around a strategy, on every one of them.

A strategy promises, whatever it observes:

    limits      it requests at least one machine, in a market that is offered, and no more than the job may
                hold; only an exchange is above that, by the machines that are to go
    bids        at least the price of now, at most the price and the highest delta, or the list price
    releases    what it gives up or keeps is in the footprint; an unknown holding is a KeyError
    the moment  the same observation gives the same decision, and none depends on another moment: a batch
                decides for each of its rows as for that row alone
    agreement   live it decides as in a batch of one; a footprint that needs nothing requests nothing

A wrapper promises that too, and its own: a lease is never exceeded, nothing costs more than on demand where
the budget is shared or no reliable machine is there, and a deadline needs no more machines than its target.

A strategy of ``registry.LIVE`` is here by itself; one for backtests enters with a line in ``BACKTESTED``, a
wrapper with a line in ``WRAPPERS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.arrays import Flags
from bidbrain.bidding.decision_batch import DecisionBatch
from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.cluster.lease import Lease
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.model import Action, Decision, Observation, ScalingModel
from bidbrain.strategies.base import NO_REQUEST, ExchangingStrategy, Strategy
from bidbrain.strategies.deadline_bound import DeadlineBound
from bidbrain.strategies.deadline_inputs import Pledge
from bidbrain.strategies.lease_bound import LeaseBound
from bidbrain.strategies.price_only import Failover, StandardBidding
from bidbrain.strategies.proteus import BidBrain
from bidbrain.strategies.recovery import ELASTIC, Checkpointing
from bidbrain.strategies.registry import LIVE, bind_to_deadline
from bidbrain.strategies.without_reliable_tier import LiveStrategy, WithoutReliableTier
from pricing_data.model.market import MarketRules
from pricing_data.model.rules import AWS, AWS_2016
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour
from tests.bidbrain.backtest.scene import MARKETS, NOW, Scene, scene
from tests.bidbrain.build import holding, offer

CORES = 32.0
"""Of the whole allowance: eight machines of four cores."""
ON_DEMAND = 0.239
WORK = 8 * 4 * 3 * HOUR_S
CHECKPOINTS = Checkpointing.at_youngs_interval(cost_s=120, mttf_s=6 * HOUR_S, restart_s=60)
BACKTESTED: dict[str, Strategy] = {
    "standard": StandardBidding(CORES, CHECKPOINTS, "standard"),
    "failover": Failover(CORES, CHECKPOINTS),
    "proteus, checkpoints": BidBrain("bidbrain-checkpoints", CHECKPOINTS),
    "proteus, in sizes": BidBrain("proteus-in-sizes", ELASTIC, sizes=(4.0, 8.0, 16.0)),
}
STRATEGIES: dict[str, Strategy] = {**{name: make(CORES) for name, make in LIVE.items()}, **BACKTESTED}
BATCH_ONLY = ("proteus, checkpoints", "proteus, in sizes")
"""No job runs by these: live they would decide as Proteus does."""


@dataclass(frozen=True, slots=True)
class Pledged:
    """Keeps a deadline of six hours from now, whenever it is asked."""

    bound: DeadlineBound

    def decide(self, observation: Observation) -> Decision:
        return self.bound.decide(observation, _pledge(observation))

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        return self.bound.renew_or_terminate(observation, _pledge(observation), holding_id)


def _pledge(observation: Observation) -> Pledge:
    """The work, the time and the rounding are always the same: one plan serves for all examples."""
    deadline = Instant(observation.now + 6 * HOUR_S)
    return Pledge(observation.now, deadline, WORK, Seconds(60.0), measured=True)


LEASE = Lease(MARKETS[1:], 3, Instant(NOW + 365 * 24 * HOUR_S))
WRAPPERS: dict[str, Callable[[str], LiveStrategy]] = {
    "no reliable tier": lambda name: WithoutReliableTier(STRATEGIES[name]),
    "lease": lambda name: LeaseBound(STRATEGIES[name], LEASE),
    "lease, one leaving": lambda name: LeaseBound(STRATEGIES[name], LEASE, leaving=1),
    "lease, capped": lambda name: LeaseBound(STRATEGIES[name], LEASE, capped=True),
    "no lease": lambda name: LeaseBound(STRATEGIES[name], None),
    "deadline": lambda name: Pledged(bind_to_deadline(name, CORES)),
}
WRAPPED = [
    *(("none", name) for name in STRATEGIES),
    *((wrapper, name) for wrapper in ("no reliable tier", "lease, capped", "deadline") for name in LIVE),
]


def make_live(wrapper: str, name: str) -> LiveStrategy:
    return STRATEGIES[name] if wrapper == "none" else WRAPPERS[wrapper](name)


every_strategy = pytest.mark.parametrize("name", STRATEGIES)
every_live = pytest.mark.parametrize(("wrapper", "name"), WRAPPED)
some = partial(settings, deadline=None, derandomize=True)


@cache
def _market(seed: int) -> Scene:
    return scene(seed, jobs=1)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Two markets of a random history, closed or dear now and then, and up to four holdings in them."""
    of = _market(draw(st.integers(0, 7)))
    now = Instant(NOW + draw(st.integers(0, 20 * HOUR_S)))
    rules: MarketRules = draw(st.sampled_from([AWS_2016, AWS]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offers = []
    for market in MARKETS:
        price = of.history.price(market, now)
        assert price is not None
        dearer = draw(st.sampled_from([1.0, 1.0, 1.0, 10.0]))
        is_open = draw(st.sampled_from([True, True, True, False]))
        offers.append(offer(market, round(price * dearer, 6), on_demand=ON_DEMAND, is_open=is_open))
    limits = replace(of.setting.limits, max_per_allocation=draw(st.sampled_from([4, 8])))
    footprint, room = [], limits.max_instances
    for number in range(draw(st.integers(0, 4))):
        count, left_s = int(rng.integers(1, 4)), int(rng.integers(60, HOUR_S))
        if count > room:
            break
        room -= count
        made = replace(
            holding(f"s{number}", MARKETS[int(rng.integers(2))], count=count),
            bid=UsdPerHour(round(float(rng.uniform(0.03, 0.2)), 4)),
            hour_ends=Instant(now + left_s),
            started=Instant(now + left_s - HOUR_S),
        )
        footprint.append(replace(made, on_demand=True, bid=UsdPerHour(inf)) if rng.random() < 0.2 else made)
    return Observation(
        now=now,
        rules=rules,
        reliable=of.setting.reliable,
        footprint=tuple(footprint),
        offers=tuple(offers),
        limits=limits,
        scaling=ScalingModel(0.95, Seconds(30), Seconds(60), 1, 4),
        evictions=PriceCrossing().fit(of.history.as_of(now), now),
        work_left=WORK,
    )


# ---- live, alone and wrapped -----------------------------------------------------------------------


@every_live
@some(max_examples=25)
@given(observation=observations())
def test_what_is_requested_is_offered_within_limits_and_at_a_bid_that_holds(
    wrapper: str, name: str, observation: Observation
) -> None:
    decision = make_live(wrapper, name).decide(observation)
    assert decision.at == observation.now
    assert decision.action in (Action.ACQUIRE, Action.HOLD, Action.TERMINATE)
    if decision.action is not Action.ACQUIRE:
        return
    assert decision.market is not None
    asked, limits = observation.find_offer(decision.market), observation.limits
    going = max((h.counts_for for h in observation.footprint), default=0)
    exchanges = decision.again or observation.rules.quantum_s < HOUR_S or wrapper == "deadline"
    most = limits.max_instances - observation.live_count + (going if exchanges else 0)
    if exchanges and decision.bid is None:  # rented at once, in place of slower or other machines
        most = limits.max_instances
    assert 1 <= decision.count <= most
    if decision.bid is not None:
        assert asked.open
        assert asked.price <= decision.bid
        assert decision.bid <= max(asked.on_demand, asked.price + limits.bid_deltas[-1]) + 1e-9


@every_live
@some(max_examples=6)
@given(observation=observations())
def test_what_goes_or_stays_is_in_the_footprint_and_the_same_when_asked_again(
    wrapper: str, name: str, observation: Observation
) -> None:
    strategy, other = (make_live(wrapper, name) for _ in range(2))
    decision = strategy.decide(observation)
    assert repr(other.decide(observation)) == repr(decision)
    if decision.action is Action.TERMINATE:
        assert decision.holding in {h.id for h in observation.footprint}
    for one in observation.footprint:
        renewed = strategy.renew_or_terminate(observation, one.id)
        assert renewed.action in (Action.RENEW, Action.TERMINATE)
        assert (renewed.holding, renewed.market, renewed.count) == (one.id, one.market, one.counts_for)
        assert repr(other.renew_or_terminate(observation, one.id)) == repr(renewed)
    with pytest.raises(KeyError, match="nobody"):
        strategy.renew_or_terminate(observation, "nobody")


# ---- wrappers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIVE)
@pytest.mark.parametrize("wrapper", ["lease", "lease, one leaving", "lease, capped", "no lease"])
@some(max_examples=25)
@given(observation=observations())
def test_a_lease_is_never_exceeded(wrapper: str, name: str, observation: Observation) -> None:
    decision = make_live(wrapper, name).decide(observation)
    if decision.action is not Action.ACQUIRE:
        return
    assert wrapper != "no lease"
    assert decision.market in LEASE.markets
    granted = LEASE.count - (1 if wrapper == "lease, one leaving" else 0)
    assert observation.live_count + decision.count <= granted
    if wrapper == "lease, capped" and decision.bid is not None:
        assert decision.bid <= ON_DEMAND


@pytest.mark.parametrize("name", LIVE)
@some(max_examples=25)
@given(observation=observations())
def test_without_reliable_machines_spot_is_worth_no_more_than_on_demand(
    name: str, observation: Observation
) -> None:
    bound = WithoutReliableTier(STRATEGIES[name])
    decision = bound.decide(observation)
    if decision.action is Action.ACQUIRE and decision.bid is not None and decision.market is not None:
        assert observation.find_offer(decision.market).price <= ON_DEMAND
    for one in observation.footprint:
        if not one.on_demand and observation.find_offer(one.market).price > ON_DEMAND:
            assert bound.renew_or_terminate(observation, one.id).action is Action.TERMINATE


@pytest.mark.parametrize("name", LIVE)
def test_when_time_runs_out_a_deadline_rents_what_is_missing(name: str) -> None:
    of = _market(3)
    observation = Observation(
        now=NOW,
        rules=AWS,
        reliable=of.setting.reliable,
        footprint=(),
        offers=tuple(offer(market, 0.04, on_demand=ON_DEMAND) for market in MARKETS),
        limits=of.setting.limits,
        scaling=of.setting.scaling,
        evictions=PriceCrossing().fit(of.history.as_of(NOW), NOW),
        work_left=WORK,
    )
    pledge = Pledge(NOW, Instant(NOW + 3 * HOUR_S), WORK, Seconds(60.0), measured=True)
    decision = bind_to_deadline(name, CORES).decide(observation, pledge)
    assert (decision.action, decision.bid) == (Action.ACQUIRE, None)
    assert decision.count == observation.limits.max_instances


# ---- batches ---------------------------------------------------------------------------------------


@every_strategy
@some(max_examples=25)
@given(observation=observations(), factor=st.sampled_from([0.5, 1.3, 20.0]))
def test_a_batch_decides_for_each_row_as_for_that_row_alone(
    name: str, observation: Observation, factor: float
) -> None:
    """The other rows are other moments, later ones among them."""
    strategy, single = STRATEGIES[name], ObservationBatch.from_observation(observation)
    together = _with_other_moments(single.at, factor)
    asked = strategy.choose_requests(single.setting, together)
    settled = strategy.needs_nothing(single.setting, together.held)
    place = np.zeros(len(together), np.int64)
    stays = _renewals(strategy, single, together, place)
    for row in range(len(together)):
        alone = together.select(np.array([row]))
        one = strategy.choose_requests(single.setting, alone)
        assert one.market[0] == asked.market[row]
        if one.market[0] != NO_REQUEST:
            assert (one.count[0], one.bid[0], one.again[0]) == (
                asked.count[row],
                asked.bid[row],
                asked.again[row],
            )
        assert strategy.needs_nothing(single.setting, alone.held)[0] == settled[row]
        assert _renewals(strategy, single, alone, place[:1])[0] == stays[row]
        if isinstance(strategy, ExchangingStrategy):
            goes = strategy.give_up(single.setting, together)[row]
            assert strategy.give_up(single.setting, alone)[0] == goes
            assert goes == NO_REQUEST or together.held.count[row, goes] > 0


def _with_other_moments(at: DecisionBatch, factor: float) -> DecisionBatch:
    rows = at.select(np.zeros(3, np.int64))
    prices, opened = rows.prices.copy(), rows.open.copy()
    prices[1] *= factor
    opened[2] = False
    held = replace(rows.held, count=rows.held.count * np.array([[1], [1], [0]]))
    return replace(rows, prices=prices, open=opened, held=held, now=rows.now + np.array([0, 600, 7200]))


def _renewals(strategy: Strategy, single: ObservationBatch, at: DecisionBatch, place: np.ndarray) -> Flags:
    if not at.held.count.shape[1]:
        return np.ones(len(at), np.bool_)
    return strategy.choose_renewals(single.setting, at, place)


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in BATCH_ONLY])
@some(max_examples=25)
@given(observation=observations())
def test_live_it_decides_as_in_a_batch(name: str, observation: Observation) -> None:
    strategy, single = STRATEGIES[name], ObservationBatch.from_observation(observation)
    asked = strategy.choose_requests(single.setting, single.at)
    settled = bool(strategy.needs_nothing(single.setting, single.at.held)[0])
    assert not settled or asked.market[0] == NO_REQUEST, "settled footprints ask for nothing"
    goes = NO_REQUEST
    if isinstance(strategy, ExchangingStrategy):
        goes = int(strategy.give_up(single.setting, single.at)[0])
    decision = strategy.decide(observation)
    if goes != NO_REQUEST:
        assert (decision.action, decision.holding) == (
            Action.TERMINATE,
            observation.footprint[goes].id,
        )
    elif asked.market[0] == NO_REQUEST:
        assert decision.action is Action.HOLD
    else:
        market = single.setting.markets[asked.market[0]]
        assert (decision.market, decision.count) == (market, asked.count[0])
        assert (decision.bid is None) == np.isinf(asked.bid[0])
        assert decision.bid in (None, asked.bid[0])
        assert decision.again == asked.again[0]
    for place, held in enumerate(observation.footprint):
        stays = bool(strategy.choose_renewals(single.setting, single.at, np.array([place]))[0])
        live = strategy.renew_or_terminate(observation, held.id).action
        assert live is (Action.RENEW if stays else Action.TERMINATE)
