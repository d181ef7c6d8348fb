"""A deadline that was promised is kept, whatever the market does, and a budget beside it too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.deadline.feasibility import Promise, round_up_budget
from bidbrain.model import Action
from bidbrain.strategies.registry import DEFAULT, NEED_DEADLINE
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import PriceHistory, Series
from pricing_data.model.rules import AWS, AWS_2016
from pricing_data.model.units import HOUR_S, MicroUsd, Seconds, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.bidding import deadline_promise
from spotctl.control.billing import cost_so_far
from spotctl.control.evolve import initial_state
from spotctl.control.run_spec import MarketOption, RunSpec
from spotctl.control.state import State
from spotctl.providers.simulated import UNLIMITED
from tests.spotctl.build import (
    MARKETS,
    START,
    Away,
    capacity_between,
    changed,
    random_trace,
    replay,
    scripted_trace,
    terms,
)

RULES = {rules.name: rules for rules in (AWS_2016, AWS)}
DEAR = 2.0
"""Dollars per hour: far above the list price."""


def job(rules: str, **changes: object) -> RunSpec:
    return changed(terms(RULES[rules], clocks=200), start_s=Seconds(60.0), **changes)


def of(promise_for: RunSpec, trace: PriceHistory) -> Promise:
    far = changed(promise_for, deadline_s=Seconds(30 * 86400.0))
    found = deadline_promise(initial_state(e.JobStarted(START, far), trace))
    assert found is not None
    return found


def outages(rng: np.random.Generator) -> Away:
    """Spot that comes and goes: away for minutes or hours, in all zones at once."""
    away = []
    at = START + int(rng.integers(0, 2 * HOUR_S))
    while at < START + 2 * 86400:
        until = at + 1 + int(rng.exponential(rng.choice([900.0, 7200.0])))
        away.append((at, until))
        at = until + 1 + int(rng.exponential(rng.choice([1800.0, 14400.0])))
    return away


def dear_while(away: Away, trace: PriceHistory) -> PriceHistory:
    """The same prices, far above the list price while spot is ``away``: nobody's bid will do."""
    series = {}
    for market in MARKETS:
        known = trace.series(market)
        times = np.unique(np.concatenate([known.times, np.array(away).ravel()]))
        index = np.searchsorted(known.times, times, side="right") - 1
        inside = np.zeros(len(times), np.bool_)
        for begins, ends in away:
            inside |= (times >= begins) & (times < ends)
        series[market] = Series(times, np.where(inside, DEAR, known.prices[np.maximum(index, 0)]))
    return PriceHistory.from_series(series)


def flat_trace() -> PriceHistory:
    """Today's prices: below the list price, hardly moving."""
    return scripted_trace(quiet=0.08)


def world_of(rules: str, away: Away, seed: int) -> tuple[PriceHistory, Observations]:
    """Where prices clear, outages are prices; elsewhere, capacity."""
    if RULES[rules].cleared_by_bid:
        return dear_while(away, random_trace(seed)), UNLIMITED
    return flat_trace(), capacity_between(away)


def taken_s(state: State) -> int:
    assert state.training.training_over_at is not None
    return state.training.training_over_at - START


@pytest.mark.parametrize("strategy", [DEFAULT, *NEED_DEADLINE])
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.campaign
def test_what_was_promised_is_kept(rules: str, strategy: str, campaign: bool) -> None:
    rng = np.random.default_rng(20_261_120)
    for number in range(250 if campaign else 4):
        trace, capacity = world_of(rules, outages(rng), seed=number)
        promise = of(job(rules), trace)
        slack = float(rng.choice([1.0, 1.02, 1.1, 1.3, 2.0, 4.0]))
        budget = (
            None if rng.random() < 0.5 else MicroUsd(int(promise.least_budget * 1e6 * rng.uniform(1.3, 2)))
        )
        deadline_s = Seconds(promise.least_deadline_s * slack)
        of_job = job(rules, deadline_s=deadline_s, budget=budget, strategy=strategy)
        state, _ = replay(of_job, trace, capacity=capacity)
        story = f"trace {number}, {slack} x the least deadline, budget {budget}"
        assert state.ending.closed is not None, story
        assert (state.ending.closed.exit_code, state.work_left) == (0, 0), (
            f"{story}: {state.ending.closed.why}"
        )
        assert taken_s(state) <= deadline_s, story
        assert budget is None or cost_so_far(state).total <= budget, story


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.campaign
def test_the_least_budget_is_enough_where_only_machines_on_demand_are_left(
    rules: str, campaign: bool
) -> None:
    """To the dollar: the last hours are owed, and the money spent, before they are used."""
    rng = np.random.default_rng(8)
    for number in range(200 if campaign else 3):
        made, price = job(rules), (0.1, 0.1, 0.239)[number % 3]
        spot = tuple(replace(tradable, on_demand=UsdPerHour(price)) for tradable in made.spot)
        reliable = replace(made.reliable, on_demand=UsdPerHour(0.2))
        stop = replace(made.work.stop, clocks=int(rng.integers(40, 160)))
        made = changed(made, spot=spot, reliable=reliable, stop=stop)
        trace, capacity = world_of(rules, [(START, START + 30 * 86400)], seed=number)
        promise = of(made, trace)
        asked = changed(
            made,
            deadline_s=Seconds(promise.least_deadline_s * float(rng.choice([1.0, 2.0]))),
            budget=round_up_budget(promise.least_budget),
        )
        state, _ = replay(asked, trace, capacity=capacity)
        assert state.ending.closed is not None
        assert (state.ending.closed.exit_code, state.ending.closed.why) == (0, "the work is done"), number
        assert cost_so_far(state).total <= (asked.objective.budget or 0), number


def of_two_types(rules: str, **changes: object) -> tuple[RunSpec, PriceHistory]:
    """Beside the small machines larger ones: cheaper per core on demand, and never cheap on spot."""
    small, trace = job(rules, **changes), flat_trace()
    large = [replace(market, instance_type="m4.4xlarge") for market in MARKETS]
    series = {market: trace.series(market) for market in MARKETS}
    dear = {m: Series(s.times, 12 * s.prices) for m, s in zip(large, series.values(), strict=True)}
    more = tuple(MarketOption(market, UsdPerHour(0.9), 16) for market in large)
    return replace(small, spot=(*small.spot, *more)), PriceHistory.from_series({**series, **dear})


@pytest.mark.parametrize("slack", [1.3, 3.0])
@pytest.mark.parametrize("strategy", [DEFAULT, "uniform-progress"])
@pytest.mark.parametrize("rules", RULES)
def test_small_spot_machines_make_room_for_the_larger_ones_that_the_promise_rests_on(
    rules: str, strategy: str, slack: float
) -> None:
    """Eight small ones that nobody takes away are as many as the job may have, and a quarter as fast."""
    least_s = of(*of_two_types(rules)).least_deadline_s
    deadline_s = Seconds(least_s * slack)
    state, entries = replay(*of_two_types(rules, deadline_s=deadline_s, strategy=strategy))
    assert taken_s(state) <= deadline_s
    assert state.ending.closed is not None
    assert state.ending.closed.exit_code == 0
    types = {a.name[0]: a.market.instance_type for a in state.allocations.values()}
    assert (types["s"], types["d"]) == ("m4.xlarge", "m4.4xlarge")
    renewed = [entry.decision.action for entry in entries if isinstance(entry, e.Decided)]
    assert Action.TERMINATE in renewed


@pytest.mark.parametrize("slack", [1.0, 1.2, 6.0])
@pytest.mark.parametrize("rules", RULES)
def test_a_promise_rests_on_the_type_that_keeps_it_for_least(rules: str, slack: float) -> None:
    """Without any spot: the large ones alone are in time for a short deadline; for a long one, the small."""
    terms_, trace = of_two_types(rules)
    large = tuple(
        replace(t, on_demand=UsdPerHour(1.2)) if t.market.instance_type == "m4.4xlarge" else t
        for t in terms_.spot
    )
    dear = PriceHistory.from_series(
        {
            m: Series(s.times, 100 * s.prices)
            for m, s in ((market, trace.series(market)) for market in trace.markets)
        }
    )
    promise = of(replace(terms_, spot=large), dear)
    deadline_s = Seconds(promise.least_deadline_s * slack)
    state, _ = replay(changed(terms_, spot=large, deadline_s=deadline_s), dear)
    assert taken_s(state) <= deadline_s
    assert state.ending.closed is not None
    assert state.ending.closed.exit_code == 0
    rented = {a.market.instance_type for a in state.allocations.values() if a.on_demand and not a.reliable}
    assert rented == {"m4.xlarge" if slack == 6.0 else "m4.4xlarge"}


@pytest.mark.parametrize("rules", RULES)
def test_time_to_spare_is_money_saved(rules: str) -> None:
    trace = random_trace(seed=0)
    least_s = of(job(rules), trace).least_deadline_s
    costs = []
    for slack in (1.0, 1.05, 2.0):
        state, _ = replay(job(rules, deadline_s=Seconds(least_s * slack)), trace)
        costs.append(cost_so_far(state).total)
    assert costs[0] > 2 * costs[1] > 2 * costs[2] * 0.9
    free, _ = replay(job(rules), trace)
    assert costs[2] == cost_so_far(free).total, "with time enough the strategy is left alone"


def test_machines_on_demand_only_compute_and_go_when_spot_is_back() -> None:
    """No spot for five hours; the deadline needs some of them on demand; then spot does the rest."""
    away = [(START + 600, START + 5 * HOUR_S)]
    trace = flat_trace()
    least_s = of(job("aws"), trace).least_deadline_s
    promised_s = Seconds(least_s + 3 * HOUR_S)
    state, _ = replay(job("aws", deadline_s=promised_s), trace, capacity=capacity_between(away))
    assert state.ending.closed is not None
    assert state.ending.closed.exit_code == 0
    assert state.recovery.evicted_allocations > 0
    rented = [a for a in state.allocations.values() if a.on_demand and not a.reliable]
    assert rented
    ended = [i.ended_at for a in rented for i in state.instances_of(a.name)]
    assert state.training.training_over_at is not None
    assert all(at is not None and at < state.training.training_over_at for at in ended)
    assert state.recovery.failures == 0
    assert [a.name for a in state.allocations.values() if a.reliable] == ["r1"]
