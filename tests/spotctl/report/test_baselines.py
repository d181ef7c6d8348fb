"""Both baselines of replayed jobs against a search of its own over all types and counts.

The search shares no code with the product: prices are decimals, rules are as the clouds state them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from bidbrain.model import Limits, ScalingModel
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.rules import RULES
from pricing_data.model.units import HOUR_S, Seconds, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.run_spec import MarketOption, RunSpec, StopCondition
from spotctl.control.state import State
from spotctl.report.final import final_object
from spotctl.report.fold import RunAccount, build_account
from tests.spotctl.build import START, asked_once, changed, replay, terms

FOUR = ("aws-2016", "aws", "gcp", "azure")
JOBS = 300
SAMPLE = 12
LIST = {
    "c4.xlarge": ("0.199", 4),
    "m4.xlarge": ("0.239", 4),
    "c4.2xlarge": ("0.398", 8),
    "m1.small": ("0.044", 1),
}
"""Prices on demand, and cores."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "job" in metafunc.fixturenames:
        metafunc.parametrize("job", range(JOBS if metafunc.config.getoption("--campaign") else SAMPLE))


@cache
def market_prices(seed: int) -> PriceHistory:
    """Three spot types in one zone: quiet at about a quarter of the list price, with spikes above it."""
    rng = np.random.default_rng(seed)
    series = {}
    for kind, (price, _) in LIST.items():
        times = START - 6 * 86400 + np.cumsum(rng.integers(120, 1500, size=900))
        prices = float(price) * (0.2 + np.abs(np.cumsum(rng.normal(0, 0.004, size=900))) % 0.15)
        for begins in rng.integers(0, 890, size=30):
            prices[begins : begins + int(rng.integers(1, 4))] = float(price) * rng.uniform(0.5, 3)
        series[Market("aws", "us-east-1", "us-east-1a", kind)] = Series(
            times.astype(np.int64), prices.round(4)
        )
    return PriceHistory.from_series(series)


def made(job: int) -> tuple[RunSpec, PriceHistory]:
    """Job number ``job``: rules in turn, sizes from minutes of one machine to days."""
    rng, trace = np.random.default_rng(1000 + job), market_prices(job % 8)
    kinds = sorted(rng.choice([*LIST], size=int(rng.integers(1, 4)), replace=False))
    spot = tuple(
        MarketOption(
            Market("aws", "us-east-1", "us-east-1a", kind), UsdPerHour(float(LIST[kind][0])), LIST[kind][1]
        )
        for kind in kinds
    )
    most = int(rng.integers(1, 13))
    stages = (1.0, float(rng.choice([2.0, 4.0, 15.0])))
    made = changed(
        terms(
            RULES[FOUR[job % 4]],
            clocks=int(rng.integers(1, 40)),
            work=float(rng.choice([60, 700, 5000, 20_000])),
        ),
        spot=spot,
        limits=Limits(most, min(most, 4)),
        scaling=ScalingModel(float(rng.choice([1.0, 0.97, 0.85, 0.6])), Seconds(15), Seconds(15), *stages),
        start_s=Seconds(60),
    )
    deadline_s = rng.choice([0, 0, 2 * HOUR_S, 12 * HOUR_S])
    return changed(made, deadline_s=Seconds(float(deadline_s)) if deadline_s else None), trace.select(
        tradable.market for tradable in spot
    )


@cache
def ran(job: int) -> State:
    state, _ = replay(*made(job))
    return state


def every_way(state: State) -> Iterator[tuple[int, int]]:
    """(micro-dollars, seconds from the start) of every type and count on demand, by the text of the rules."""
    of, rules = state.terms, state.terms.rules.name
    alone = sum(seconds * LIST[kind][1] for kind, seconds in state.training.worked.items())
    assert state.training.training_started_at is not None
    assert state.training.training_over_at is not None
    mean = max(
        1.0,
        sum(state.training.worked.values())
        / (state.training.training_over_at - state.training.training_started_at),
    )
    done = state.training.clock * of.work.core_seconds_per_clock
    work = min(done, alone * of.work.scaling.phi ** math.log2(mean))  # machines that were faster stay so
    kinds = {tradable.market.instance_type for tradable in (*of.spot, of.reliable)}
    for kind in kinds:
        price, cores = Decimal(LIST[kind][0]), LIST[kind][1]
        for count in range(1, of.limits.max_instances + of.reliable_count + 1):
            speed = count * cores * of.work.scaling.phi ** math.log2(count)
            lasts = math.ceil(of.work.scaling.sigma_s + work / speed - 1e-6)
            yield count * owed(rules, price, lasts), lasts + 60


def owed(rules: str, price: Decimal, lasts: int) -> int:
    """One machine's bill in micro-dollars: each billing hour rounded for itself."""
    if rules == "aws-2016":
        lasts = math.ceil(lasts / 3600) * 3600
    elif rules in ("aws", "gcp"):
        lasts = max(lasts, 60)
    parts = [3600] * (lasts // 3600) + [lasts % 3600]
    exact = (price * 1_000_000 * part / 3600 for part in parts)
    return sum(int(part.quantize(Decimal(1), rounding=ROUND_HALF_UP)) for part in exact)


def test_both_baselines_are_what_trying_every_type_and_count_finds(job: int) -> None:
    state = ran(job)
    money, ways = build_account(state), list(every_way(state))
    assert money.baselines is not None
    assert state.training.training_over_at is not None
    took = state.training.training_over_at - state.terms.start
    in_time = [cost for cost, finish in ways if finish <= (state.terms.objective.deadline_s or math.inf)]
    as_fast = min(cost for cost, finish in ways if finish <= took)
    cheapest = min(in_time or [cost for cost, _ in ways])
    assert money.baselines.as_fast is not None
    assert money.baselines.as_fast.cost == as_fast
    assert money.baselines.cheapest.cost == cheapest
    assert money.baselines.keeps_deadline(money.baselines.cheapest) is bool(in_time)
    _saves_only_what_it_saves(money, min(as_fast, cheapest))


def _saves_only_what_it_saves(money: RunAccount, least: int) -> None:
    assert money.savings is not None
    assert (money.savings > 0) is (money.spending.total < least), "beside the cheapest way on demand"
    assert money.savings == pytest.approx(1 - money.spending.total / least)


def test_the_jobs_are_of_many_sizes_and_some_cost_more_than_on_demand() -> None:
    savings = [build_account(ran(job)).savings or 0.0 for job in range(SAMPLE)]
    took = [ran(job).now - START for job in range(SAMPLE)]
    assert min(savings) < 0 < max(savings)
    assert max(took) > 50 * min(took)


@pytest.mark.parametrize(
    ("ask", "outcome", "reason"),
    [
        (e.UserRequest.CANCEL, e.RunOutcome.CANCELLED, "it was cancelled"),
        (e.UserRequest.DOWN, e.RunOutcome.TAKEN_DOWN, "it was taken down"),
    ],
)
def test_what_was_ended_early_is_cost_without_a_saving(
    ask: e.UserRequest, outcome: e.RunOutcome, reason: str
) -> None:
    state, _ = replay(*made(3), asked_once(ask, 600))
    assert state.ending.closed is not None
    assert state.ending.closed.outcome is outcome
    _no_saving(state, reason)


def test_what_failed_is_cost_without_a_saving() -> None:
    closed = e.Close(START, e.RunOutcome.FAILED, 6, "the budget was spent before the work was done")
    _no_saving(structs.replace(ran(3), ending=structs.replace(ran(3).ending, closed=closed)), "it failed")


def test_what_goes_on_has_not_saved_anything_yet() -> None:
    assert (
        build_account(
            structs.replace(ran(3), ending=structs.replace(ran(3).ending, closed=None))
        ).no_savings_reason
        == "it has not ended"
    )


def _no_saving(state: State, reason: str) -> None:
    final = final_object(state, Path("ledger.db"), 1.0, 0, None)
    assert float(final["cost"]["total"]) > 0
    assert (final["savings_fraction"], final["no_savings_reason"]) == (None, reason)
    assert all(way is None or way["savings_fraction"] is None for way in final["baselines"].values())


def test_both_baselines_are_named_with_their_machines() -> None:
    final = final_object(ran(3), Path("ledger.db"), 1.0, 0, None)
    fast, cheap = final["baselines"]["as_fast"], final["baselines"]["cheapest"]
    assert fast["means"] == "the same work as fast, on demand"
    assert cheap["means"] == "the cheapest way on demand"
    assert fast["finish_seconds"] <= final["outcome"]["seconds"]
    assert Decimal(final["cost"]["on_demand_baseline"]) == min(Decimal(fast["cost"]), Decimal(cheap["cost"]))
    assert final["savings_fraction"] == min(fast["savings_fraction"], cheap["savings_fraction"])
    for way in (fast, cheap):
        assert way["instances"] * way["hours"] > 0
        assert way["instance_type"] in LIST


def test_machines_that_were_faster_than_nominal_stay_so_on_demand() -> None:
    """A model of the job that is twice as fast on every type: the baselines are of half the core-seconds."""
    of, trace = made(3)
    twice, _ = replay(changed(of, modelled_speeds=dict.fromkeys(LIST, 2.0)), trace)
    found = build_account(twice).baselines
    assert found is not None
    assert found.pace == pytest.approx(2.0, rel=0.1)
    slow = changed(
        of, stop=StopCondition(of.work.stop.clocks), core_seconds_per_clock=of.work.core_seconds_per_clock / 2
    )
    half = build_account(replay(slow, trace)[0]).baselines
    assert half is not None
    assert found.cheapest.seconds == pytest.approx(half.cheapest.seconds, rel=0.1)
