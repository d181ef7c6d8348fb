"""Command jobs replayed: what an eviction costs, what is paid, and that only one machine is ever held."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from bidbrain.model import Action, Limits
from bidbrain.strategies.recovery import Checkpointing
from pricing_data.model.billing import EndReason
from pricing_data.model.market import PriceHistory
from pricing_data.model.units import HOUR_S, Instant, Seconds
from spotctl.control import entries as e
from spotctl.control.bidding import build_observation, deadline_pledge, deadline_promise
from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM
from spotctl.control.evolve import initial_state
from spotctl.control.run_spec import RunSpec
from spotctl.control.state import State
from spotctl.engines.agileml_model import DRAIN_S
from tests.spotctl.build import (
    MARKETS,
    START,
    asked_once,
    changed,
    random_trace,
    replay,
    scripted_trace,
    terms,
)

INTERVAL_S = 1200


def of_command(*, saves: bool = True, clocks: int = 60) -> RunSpec:
    """A program of 60 steps of ten minutes on one machine."""
    return changed(
        terms(clocks=clocks),
        engine=CHECKPOINTING_PROGRAM,
        reliable_count=0,
        limits=Limits(1, 1),
        checkpoints=Checkpointing(Seconds(INTERVAL_S), 0.0, Seconds(60.0)),
        saves_on_warning=saves,
    )


def taken(at: int, back: int, price: float = 1.0) -> PriceHistory:
    """A market in which all machines are taken at ``at`` seconds, and can be had again at ``back``."""
    steps = [(number, when, p) for number in range(3) for when, p in ((at, price), (back, 0.035))]
    return scripted_trace(*steps)


def test_a_calm_market_takes_the_work_and_the_start() -> None:
    state, _ = replay(of_command(), scripted_trace())
    assert (
        state.training.clock,
        state.training.clocks_redone,
        state.ending.closed and state.ending.closed.exit_code,
    ) == (60, 0, 0)
    assert state.training.training_over_at == START + 60 + 15 + 60 * 600, "boot, sigma, and the steps"


@pytest.mark.parametrize("saves", [True, False])
def test_a_warning_costs_steps_only_where_the_program_does_not_heed_it(saves: bool) -> None:
    state, entries = replay(of_command(saves=saves), taken(at=9100, back=9300))
    redone = [entry.redone for entry in entries if isinstance(entry, e.RolledBack)]
    ran_s = 9100 - 60 - 15 + DRAIN_S
    assert state.programs.seconds_redone == (0 if saves else ran_s % INTERVAL_S), (
        "since the newest checkpoint"
    )
    assert (state.recovery.evicted_allocations, state.training.clock, state.recovery.failures) == (1, 60, 0)
    assert redone == ([] if saves else [1]), "ten minutes a step, a checkpoint every twenty"


def test_a_program_that_keeps_nothing_does_all_again_and_is_bought_what_lasts() -> None:
    """Its file says so; one that is believed to keep something is found out when it begins again."""
    said = changed(of_command(saves=False), keeps_nothing=True)
    state, entries = replay(said, taken(at=9100, back=9300))
    assert [entry.redone for entry in entries if isinstance(entry, e.RolledBack)] == [15]
    assert state.programs.seconds_redone == 9100 - 60 - 15 + DRAIN_S
    assert [entry.clock for entry in entries if isinstance(entry, e.ProgramBegan)] == [0, 0]
    believed = changed(of_command(), checkpoints=Checkpointing(Seconds(1e6), 0.0, Seconds(60.0)))
    lambdas = [build_observation(of).scaling.lambda_s for of in (opened(believed), opened(said))]
    assert lambdas == [15.0, 15.0 + 60 * 600 / 2]
    ran = structs.replace(
        opened(of_command()),
        programs=structs.replace(opened(of_command()).programs, seconds_redone=INTERVAL_S + 1),
    )
    assert build_observation(ran).scaling.lambda_s == lambdas[1], "nothing was stored in so long"
    assert (
        build_observation(
            structs.replace(ran, training=structs.replace(ran.training, consistent=3))
        ).scaling.lambda_s
        == lambdas[0]
    )


def opened(of: RunSpec) -> State:
    return initial_state(e.JobStarted(START, of), scripted_trace())


def test_a_deadline_is_promised_to_a_program_that_keeps_nothing_as_if_all_of_it_could_be_lost() -> None:
    said = changed(of_command(saves=False), keeps_nothing=True, deadline_s=Seconds(1e6))
    state = opened(said)
    found = deadline_pledge(state)
    assert found is not None
    assert found.unsaved_work == found.work == 60 * said.work.core_seconds_per_clock


def test_nothing_is_bought_above_its_price_on_demand() -> None:
    """It waits: without a deadline that costs nothing."""
    state, entries = replay(of_command(), taken(at=9100, back=9100 + 5 * HOUR_S))
    bought = [entry.at - START for entry in entries if isinstance(entry, e.Acquire)]
    assert len(bought) == 2
    assert bought[0] == 0
    assert 9100 + 5 * HOUR_S <= bought[1] <= 9100 + 5 * HOUR_S + 120
    assert (state.training.clock, state.ending.closed and state.ending.closed.exit_code) == (60, 0)


def test_with_a_deadline_machines_on_demand_take_over() -> None:
    promised = changed(of_command(), deadline_s=Seconds(13.0 * HOUR_S))
    state, _ = replay(promised, taken(at=9100, back=9100 + 12 * HOUR_S))
    assert [a.on_demand for a in state.allocations.values()] == [False, True]
    assert (state.training.clock, state.ending.closed and state.ending.closed.exit_code) == (60, 0)


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("slack", [1.0, 1.1, 1.3])
def test_a_promised_deadline_is_kept_whatever_steps_are_lost_with_machines(slack: float, saves: bool) -> None:
    """Steps take ten minutes, much more than a decision may be late by."""
    evictions = 0
    for seed in range(1, 5):
        trace, of = random_trace(seed), of_command(saves=saves, clocks=12)
        far = changed(of, deadline_s=Seconds(1e6))
        promise = deadline_promise(initial_state(e.JobStarted(START, far), trace))
        assert promise is not None
        deadline_s = Seconds(promise.least_deadline_s * slack)
        state, _ = replay(changed(of, deadline_s=deadline_s), trace)
        assert state.ending.closed is not None
        assert state.ending.closed.exit_code == 0, f"trace {seed}: {state.ending.closed.why}"
        evictions += state.recovery.evicted_allocations
    assert slack == 1.0 or evictions > 3, "else nothing was shown"


def test_a_machine_is_given_up_where_another_market_is_cheaper_by_more_than_the_move() -> None:
    """Its own market becomes dearer, below its bid and its price on demand; the others stay cheap."""
    bidding_high = replace(of_command(clocks=20), limits=Limits(1, 1, (0.3,)))
    state, _ = replay(bidding_high, scripted_trace())
    (first,) = state.allocations.values()
    dearer = scripted_trace((MARKETS.index(first.market), 600, 0.2))
    state, entries = replay(bidding_high, dearer)
    given_up = [
        d.decision for d in entries if isinstance(d, e.Decided) and d.decision.action is Action.TERMINATE
    ]
    assert len(given_up) == 1
    assert "less than another hour here" in given_up[0].why
    assert len({a.market for a in state.allocations.values()}) == 2
    assert (state.training.clock, state.training.clocks_redone, state.recovery.evicted_allocations) == (
        20,
        0,
        0,
    )


def test_cancelled_while_it_waits_for_its_first_machine() -> None:
    """What it was granted is taken while it boots, and the price stays too high to ask again."""
    high = scripted_trace(*((n, 1, 1.0) for n in range(3)))
    state, _ = replay(of_command(), high, asked_once(e.UserRequest.CANCEL, 600))
    assert state.ending.closed is not None
    assert (state.ending.closed.outcome, state.ending.closed.exit_code) == (e.RunOutcome.CANCELLED, 7)
    assert not any(instance.joined for instance in state.instances.values())


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), saves=st.booleans())
def test_over_any_market_it_is_done_and_one_machine_works_at_a_time(seed: int, saves: bool) -> None:
    state, entries = replay(of_command(saves=saves, clocks=30), random_trace(seed))
    assert (state.training.clock, state.ending.closed and state.ending.closed.exit_code) == (30, 0)
    assert all(i.end in (EndReason.EVICTED, EndReason.RELEASED) for i in state.instances.values())
    progress = [entry for entry in entries if isinstance(entry, e.Progressed | e.RolledBack)]
    for before, now in pairwise(progress):
        at = before.clock if isinstance(before, e.Progressed) else before.to
        if isinstance(now, e.Progressed):
            saved = saves and now.consistent == now.clock == at  # on a warning, all that is done
            assert now.clock == at + 1 or saved
            assert now.consistent <= now.clock
        else:
            assert now.to == at - now.redone
    assert_no_overlap(state)


def assert_no_overlap(state: State) -> None:
    """A machine joins only while another is warned or has gone: limits count what stays."""
    lives = [(i.running_at, i.ends_at or i.ended_at) for i in state.instances.values() if i.running_at]
    for (_, over), (begins, _) in pairwise(sorted(lives)):
        assert over is not None
        assert begins is not None
        assert begins >= Instant(over - 200), "no more than a notice together"
