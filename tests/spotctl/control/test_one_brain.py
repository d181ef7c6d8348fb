"""The same facts give the same commands; nobody sees the future; nothing is asked for twice."""

from __future__ import annotations

from functools import cache, reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.model import Action
from pricing_data.model.billing import EndReason
from pricing_data.model.market import MarketRules, PriceHistory
from pricing_data.model.rules import AWS, AWS_2016, GCP
from pricing_data.model.units import HOUR_S, Instant
from spotctl.control import entries as e
from spotctl.control.drive import fold_entries
from spotctl.control.evolve import evolve, initial_state
from spotctl.control.state import State
from spotctl.control.state_values import Phase
from spotctl.control.step import plan
from spotctl.records.codec import decode_entry, encode_entry
from spotctl.report.fold import build_account
from tests.spotctl.build import (
    MARKETS,
    START,
    is_command,
    random_trace,
    redecided,
    replay,
    scripted_trace,
    terms,
)

SEEDS = range(6)


@cache
def replayed(seed: int) -> tuple[State, tuple[e.Entry, ...]]:
    """A job over a random trace to its end: the last state, and the ledger."""
    return replay(terms(), random_trace(seed))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rules", [AWS_2016, AWS, GCP], ids=lambda rules: rules.name)
def test_a_ledger_fed_fact_by_fact_yields_exactly_its_commands(seed: int, rules: MarketRules) -> None:
    trace = random_trace(seed)
    state, entries = replay(terms(rules), trace)
    assert state.phase is Phase.CLOSED
    assert redecided(entries, trace) == list(entries)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_ledger_rebuilds_the_state_without_deciding(seed: int) -> None:
    trace = random_trace(seed)
    state, entries = replayed(seed)
    rebuilt = fold_entries(entries, trace)
    assert rebuilt.instances == state.instances
    assert rebuilt.allocations == state.allocations
    assert (rebuilt.training.clock, rebuilt.ending.closed, rebuilt.training.worked) == (
        state.training.clock,
        state.ending.closed,
        state.training.worked,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_entry_survives_the_codec(seed: int) -> None:
    _, entries = replayed(seed)
    assert tuple(decode_entry(*encode_entry(entry)) for entry in entries) == entries


@given(seed=st.integers(0, 5), cut_s=st.integers(60, 6 * HOUR_S))
@settings(max_examples=25, deadline=None)
def test_cutting_the_trace_after_now_changes_no_decision(seed: int, cut_s: int) -> None:
    trace, (_, entries) = random_trace(seed), replayed(seed)
    cut = Instant(START + cut_s)
    known = [entry for entry in entries if entry.at <= cut]
    again = redecided(known, trace.as_of(cut))
    assert [entry for entry in again if is_command(entry)] == [entry for entry in known if is_command(entry)]
    _, without_future = replay(terms(), _frozen(trace, cut))
    before = [entry for entry in without_future if entry.at < cut]
    assert before == [entry for entry in entries if entry.at < cut]


def _frozen(trace: PriceHistory, cut: Instant) -> PriceHistory:
    """The trace as if nothing happened after ``cut``."""
    return trace.as_of(cut)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_that_is_folded_leaves_nothing_to_plan(seed: int) -> None:
    trace, (_, entries) = random_trace(seed), replayed(seed)
    first = entries[0]
    assert isinstance(first, e.JobStarted)
    state = initial_state(first, trace)
    for entry in entries[1:]:
        if is_command(entry):
            continue
        state = evolve(state, entry)
        state = reduce(evolve, plan(state), state)
        assert plan(state) == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_spot_is_worth_it(seed: int) -> None:
    state, entries = replayed(seed)
    assert state.training.clock == state.terms.work.stop.clocks
    assert any(isinstance(entry, e.Acquire) and entry.bid is not None for entry in entries)
    assert any(isinstance(entry, e.StageEntered) for entry in entries)
    assert (build_account(state).savings or 0) > 0.5


def test_evictions_happen() -> None:
    warned = [any(isinstance(entry, e.EvictionWarned) for entry in replayed(seed)[1]) for seed in SEEDS]
    assert sum(warned) >= 4


def test_a_market_that_became_dear_is_left_even_where_prices_evict_nobody() -> None:
    """Today's rules: seconds are billed, and no price takes a machine away."""
    dear_at = 20 * 60
    trace = scripted_trace((0, dear_at, 0.9), (1, dear_at, 0.9))
    state, entries = replay(terms(AWS, clocks=150), trace)
    kept = [
        allocation
        for allocation in state.allocations.values()
        if allocation.market in MARKETS[:2] and not allocation.reliable
    ]
    assert kept, "the dear markets were never bought: this shows nothing"
    for allocation in kept:
        assert {i.end for i in state.instances_of(allocation.name)} == {EndReason.RELEASED}
        ended = [i.ended_at for i in state.instances_of(allocation.name) if i.ended_at is not None]
        assert max(ended) <= allocation.requested_at + 2 * HOUR_S
    decided = [entry.decision.action for entry in entries if isinstance(entry, e.Decided)]
    assert Action.TERMINATE in decided
