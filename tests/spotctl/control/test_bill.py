"""The bill of a run against a recomputation that shares no code with it."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import pytest

from pricing_data.model.billing import EndReason
from pricing_data.model.market import PriceHistory
from pricing_data.model.units import HOUR_S, Instant
from spotctl.control.billing import cost_so_far
from spotctl.control.drive import fold_entries
from spotctl.control.entries import UserRequest
from spotctl.control.state import State
from spotctl.report.fold import build_account
from tests.spotctl.build import asked_once, random_trace, replay, terms


def recomputed(state: State, trace: PriceHistory) -> tuple[int, int, int]:
    """(spot, on-demand, refunded) in micro-dollars under aws-2016, straight from the rule's text."""
    spot = on_demand = refunded = 0
    for instance in state.instances.values():
        if instance.running_at is None:
            continue
        assert instance.ended_at is not None
        market = state.allocations[instance.allocation].market
        reliable = state.allocations[instance.allocation].bid is None
        opens = instance.running_at
        while opens < instance.ended_at:
            steps = list(zip(trace.series(market).times, trace.series(market).prices, strict=True))
            price = state.terms.reliable.on_demand if reliable else [p for at, p in steps if at <= opens][-1]
            hour = int((Decimal(repr(float(price))) * 1_000_000).quantize(Decimal(1), rounding=ROUND_HALF_UP))
            last_hour = instance.ended_at < opens + HOUR_S
            if reliable:
                on_demand += hour
            elif instance.end is EndReason.EVICTED and last_hour:
                refunded += hour
            else:
                spot += hour
            opens = Instant(opens + HOUR_S)
    return spot, on_demand, refunded


@pytest.mark.parametrize("seed", range(8))
def test_the_ledgers_total_is_the_traces(seed: int) -> None:
    trace = random_trace(seed)
    state, entries = replay(terms(clocks=150), trace)
    owed = cost_so_far(state)
    assert (owed.spot, owed.on_demand, owed.refunded) == recomputed(state, trace)
    without_the_past = fold_entries(entries, PriceHistory())
    assert cost_so_far(without_the_past) == owed


def test_an_hour_is_only_refunded_to_the_evicted() -> None:
    states = [replay(terms(clocks=150), random_trace(seed))[0] for seed in range(8)]
    assert any(cost_so_far(state).refunded > 0 for state in states)
    for state in states:
        for bill in build_account(state).bills:
            if bill.instance.end is not EndReason.EVICTED:
                assert bill.refunded == 0


def test_a_run_taken_down_owes_the_hours_it_began() -> None:
    trace = random_trace(3)
    state, _ = replay(terms(), trace, asked_once(UserRequest.DOWN, 3000))
    assert state.ending.closed is not None
    assert state.ending.closed.exit_code == 7
    owed = cost_so_far(state)
    assert (owed.spot, owed.on_demand, owed.refunded) == recomputed(state, trace)
    assert owed.on_demand == 199_000
