"""Moves of command jobs between regions and clouds: weighed, carried, billed exactly, and in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.model import Limits
from bidbrain.strategies.recovery import Checkpointing
from pricing_data.catalogue import bundled_egress
from pricing_data.model.billing import settle
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market, MarketRules, PriceHistory, Series
from pricing_data.model.rules import AWS, GCP, combine_rules
from pricing_data.model.units import HOUR_S, Instant, MicroUsd, Seconds, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.bidding import deadline_promise
from spotctl.control.billing import cost_so_far, instance_bills
from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM
from spotctl.control.evolve import initial_state
from spotctl.control.run_spec import EgressTariff, MarketOption, MovableCheckpoint, RunSpec
from spotctl.control.state import State
from spotctl.report.groupings import Grouping
from spotctl.report.groups import group_runs
from spotctl.report.summarize import summarize
from tests.spotctl.build import START, changed, redecided, replay, terms

EAST = Market("aws", "us-east-1", "us-east-1a", "c5.xlarge")
BESIDE = replace(EAST, zone="us-east-1b")
OHIO = Market("aws", "us-east-2", "us-east-2a", "c5.xlarge")
GOOGLE = Market("gcp", "us-central1", "us-central1", "n2-standard-4")
QUIET, DEAR, LIST = 0.06, 0.15, 0.17
STEP_S = 600
RULES = {"aws": AWS, "gcp": GCP}


def of(*markets: Market, gigabytes: float = 10.0, clocks: int = 36, **changes: Any) -> RunSpec:
    """A program of 36 steps of ten minutes, a checkpoint every twenty, over a link of a gigabit."""
    rules = combine_rules([RULES[market.cloud] for market in markets])
    own = {m: None if RULES[m.cloud] == rules else RULES[m.cloud] for m in markets}
    tariffs = tuple(EgressTariff(c, to, usd) for (c, to), usd in bundled_egress().items() if to != "zone")
    made = changed(
        terms(rules, clocks=clocks, work=4.0 * STEP_S),
        engine=CHECKPOINTING_PROGRAM,
        reliable_count=0,
        spot=tuple(MarketOption(m, UsdPerHour(LIST), 4, own[m]) for m in markets),
        reliable=MarketOption(markets[0], UsdPerHour(LIST), 4),
        limits=Limits(1, 1),
        checkpoints=Checkpointing(Seconds(1200.0), 0.0, Seconds(60.0)),
        luggage=MovableCheckpoint(int(gigabytes * 1e9), 125e6, tariffs),
    )
    return changed(made, **changes)


def prices(*steps: tuple[Market, int, float], markets: Sequence[Market]) -> PriceHistory:
    """Quiet for a week, then ``(market, seconds after START, price)``."""
    series = {}
    for market in markets:
        mine = [(-7 * 86400, QUIET), *((at, price) for m, at, price in steps if m == market)]
        times = np.array([START + at for at, _ in mine], dtype=np.int64)
        series[market] = Series(times, np.array([price for _, price in mine]))
    return PriceHistory.from_series(series)


def fetched(entries: Sequence[e.Entry]) -> list[e.CheckpointFetched]:
    return [entry for entry in entries if isinstance(entry, e.CheckpointFetched)]


def dearer_at_home(there: Market, gigabytes: float) -> tuple[State, tuple[e.Entry, ...]]:
    """The first machine is in ``EAST``, whose price rises for good half an hour later."""
    return replay(of(EAST, there, gigabytes=gigabytes), dearer(there))


def dearer(there: Market) -> PriceHistory:
    return prices((there, -3600, QUIET + 0.01), (EAST, 1800, DEAR), markets=(EAST, there))


@pytest.mark.parametrize(("there", "usd_gb"), [(OHIO, 0.02), (GOOGLE, 0.09)])
def test_a_move_is_carried_and_billed_to_the_micro_dollar(there: Market, usd_gb: float) -> None:
    state, entries = dearer_at_home(there, 0.123456789)
    (carried,) = fetched(entries)
    assert (carried.stored_by, carried.instance) == ("s1-1", "s2-1")
    assert carried.size_bytes == 123_456_789
    owed = round(0.123456789 * usd_gb * 1e6)
    assert [one.owed for one in state.programs.fetched] == [owed]
    assert cost_so_far(state).egress == owed
    assert cost_so_far(state).total == sum(bill.amount for bill in instance_bills(state)) + owed
    assert (state.training.clock, state.ending.closed and state.ending.closed.exit_code) == (36, 0)
    assert redecided(entries, dearer(there)) == list(entries)


def test_within_a_region_its_object_store_has_the_checkpoint() -> None:
    state, entries = dearer_at_home(BESIDE, 500.0)
    assert len(fetched(entries)) == 1
    assert (state.programs.fetched, cost_so_far(state).egress) == ((), 0)


@pytest.mark.parametrize("there", [OHIO, GOOGLE])
def test_a_checkpoint_that_costs_more_than_the_move_saves_stays(there: Market) -> None:
    """Six hours at nine cents less: half a dollar. What leaves costs twenty cents, or ninety, per ten GB."""
    state, entries = dearer_at_home(there, 60.0)
    assert fetched(entries) == []
    assert {a.market for a in state.allocations.values()} == {EAST}
    assert state.training.clock == 36


def test_carrying_takes_time_in_which_nothing_is_done() -> None:
    """Ten gigabytes over a gigabit: eighty seconds more than next to nothing takes."""
    (far, _), (near, _) = dearer_at_home(OHIO, 10.0), dearer_at_home(OHIO, 0.0)
    assert len(far.programs.fetched) == len(near.programs.fetched) == 1
    assert far.training.training_over_at == Instant((near.training.training_over_at or 0) + 80)


def test_what_is_given_up_goes_where_work_and_way_are_cheapest() -> None:
    """Its price is above the list's. Of two other places the one nearer by is half a cent dearer."""
    markets = (EAST, OHIO, GOOGLE)
    steps = [(EAST, 1800, LIST + 0.1), (OHIO, -3600, QUIET + 0.015), (GOOGLE, -3600, QUIET + 0.01)]
    state, _ = replay(of(*markets, gigabytes=5.0), prices(*steps, markets=markets))
    assert [a.market for a in state.allocations.values()] == [EAST, OHIO], "9 cents a gigabyte beside 2"


def test_each_cloud_bills_and_warns_by_its_own_rules() -> None:
    state, _ = dearer_at_home(GOOGLE, 0.1)
    assert state.terms.rules.name == "aws + gcp"
    for bill in instance_bills(state):
        rules: MarketRules = RULES[bill.market.cloud]
        series = state.history.series(bill.market)
        instance = bill.instance
        assert instance.running_at is not None
        assert bill.charges == settle(
            rules, series, instance.running_at, instance.ended_at, instance.end, None
        )


def test_the_cloud_that_was_left_is_paid() -> None:
    state, _ = dearer_at_home(GOOGLE, 1.0)
    runs = {"r": summarize(state, 0.0, {})}
    by_cloud = {group.key: group for group in group_runs(runs, Grouping.CLOUD)}
    assert (by_cloud["aws"].egress, by_cloud["gcp"].egress) == (90_000, 0)
    for by in Grouping:
        groups = group_runs(runs, by)
        assert sum(group.total for group in groups) == cost_so_far(state).total
        assert sum(group.egress for group in groups) == 90_000


# ---- deadlines and budgets -----------------------------------------------------------------------


def outages(seed: int, markets: Sequence[Market]) -> Observations:
    """Markets that have no machines for an hour or so and have them again, each at its own times."""
    rng = np.random.default_rng(seed)
    spells = {}
    for market in markets:
        borders = [START - 21 * 86400, START - 86400, START - 80000, START + int(rng.integers(1, 7200))]
        while borders[-1] < START + 3 * 86400:
            back = borders[-1] + int(rng.exponential(5400)) + 60
            borders += [back, back + int(rng.exponential(7200)) + 60]
        spells[market] = Spells.from_columns(borders[::2], borders[1::2], [True] * (len(borders) // 2))
    return Observations.from_spells(spells)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    gigabytes=st.sampled_from([0.5, 20.0, 60.0]),
    slack=st.sampled_from([1.0, 1.1, 1.5, 3.0]),
    spare=st.sampled_from([None, 1.0, 1.2, 2.0]),
)
def test_a_promise_holds_wherever_the_job_is_carried(
    seed: int, gigabytes: float, slack: float, spare: float | None
) -> None:
    markets = (EAST, OHIO, GOOGLE)
    trace, capacity = prices(markets=markets), outages(seed, markets)
    far = of(*markets, gigabytes=gigabytes, start_s=Seconds(60.0), deadline_s=Seconds(30 * 86400.0))
    promise = deadline_promise(initial_state(e.JobStarted(START, far), trace))
    assert promise is not None
    deadline_s = Seconds(promise.least_deadline_s * slack)
    budget = None if spare is None else MicroUsd(int(promise.least_budget * spare * 1e6) + 1)
    state, _ = replay(changed(far, deadline_s=deadline_s, budget=budget), trace, capacity=capacity)
    assert state.ending.closed is not None
    assert (state.ending.closed.exit_code, state.work_left) == (0, 0), state.ending.closed.why
    assert state.training.training_over_at is not None
    assert state.training.training_over_at - START <= deadline_s
    assert budget is None or cost_so_far(state).total <= budget


def test_a_start_is_promised_nothing_that_it_does_not_carry() -> None:
    """The least deadline and budget of on-demand alone know no move."""
    markets, trace = (EAST, OHIO), prices(markets=(EAST, OHIO))
    found = []
    for gigabytes in (0.0, 100.0):
        job = of(*markets, gigabytes=gigabytes, deadline_s=Seconds(10.0 * HOUR_S))
        promise = deadline_promise(initial_state(e.JobStarted(START, job), trace))
        assert promise is not None
        found.append((promise.least_deadline_s, promise.least_budget))
    assert found[0] == found[1]
