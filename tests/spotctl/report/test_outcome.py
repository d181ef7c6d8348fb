"""Why a run came out otherwise than planned: each reason where it holds, and none where nothing differs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from pricing_data.model.rules import RULES
from pricing_data.model.units import HOUR_S, MicroUsd, Seconds
from spotctl.control import entries as e
from spotctl.control.evolve import evolve
from spotctl.control.run_spec import Expectation
from spotctl.control.state import State
from spotctl.report.fold import build_account
from spotctl.report.outcome import took_s, why_it_differs
from tests.spotctl.build import changed, replay, scripted_trace, terms
from tests.spotctl.cli.story import SPOT, at, entries, state_after

STORY = state_after(52)
AS_IT_WAS = Expectation(MicroUsd(239_000), Seconds(51 * 60.0), 1.0, 3)


def reasons(state: State, plan: Expectation) -> list[str]:
    planned = structs.replace(state, terms=changed(state.terms, expected=plan))
    return why_it_differs(planned, build_account(planned))


def test_nothing_is_explained_that_came_as_planned_or_was_never_planned() -> None:
    assert reasons(STORY, AS_IT_WAS) == []
    assert why_it_differs(STORY, build_account(STORY)) == []
    assert reasons(STORY, replace(AS_IT_WAS, cost=MicroUsd(225_000), evictions=9.0)) == [], "a tenth is near"


def test_more_and_fewer_evictions_are_told_apart() -> None:
    cheaper = replace(AS_IT_WAS, cost=MicroUsd(100_000))
    assert "1 eviction, more than the 0.0 expected" in reasons(STORY, replace(cheaper, evictions=0.0))
    assert "1 eviction, fewer than the 4.5 expected" in reasons(STORY, replace(cheaper, evictions=4.5))
    assert not any("eviction" in reason for reason in reasons(STORY, replace(cheaper, evictions=1.4)))


def test_requests_that_were_refused_are_counted() -> None:
    state = state_after(-1)
    refused = (
        e.Acquire(at(10), "s9", SPOT, 4, None),
        e.Refused(at(10), "s9", "CapacityUnavailable", "none left"),
    )
    for entry in sorted((*entries(), *refused), key=lambda entry: entry.at):
        state = evolve(state, entry)
    assert "1 request for machines refused" in reasons(state, replace(AS_IT_WAS, cost=MicroUsd(100_000)))


@pytest.mark.parametrize(
    ("speed", "said"), [(2.0, "training went 2.0 times as fast"), (0.5, "training went at 4")]
)
def test_training_that_was_faster_or_slower_than_nominal_is_a_reason(speed: float, said: str) -> None:
    of = changed(terms(clocks=30), modelled_speeds={"m4.xlarge": speed, "c4.xlarge": speed})
    state, _ = replay(of, scripted_trace())
    plan = Expectation(MicroUsd(1_000_000), Seconds(took_s(state) / 3), 0.0, 9)
    assert any(reason.startswith(said) for reason in reasons(state, plan))


def test_spot_prices_that_moved_are_a_reason() -> None:
    """From 0.035 to 0.05 after half an hour, below the bids that were made."""
    state, _ = replay(terms(clocks=400), scripted_trace(*((n, HOUR_S // 2, 0.05) for n in range(3))))
    plan = Expectation(MicroUsd(1_000), Seconds(float(took_s(state))), 0.0, 9)
    assert any("higher than at the start" in reason for reason in reasons(state, plan))
    steady, _ = replay(terms(clocks=400), scripted_trace())
    assert not any("at the start" in reason for reason in reasons(steady, plan))


def test_prices_that_moved_within_an_hour_are_a_reason_where_seconds_are_billed() -> None:
    """From 0.035 to 0.07 after five minutes: of less than an hour, no charge begins at the new price."""
    of = terms(RULES["aws"], clocks=30)
    state, _ = replay(of, scripted_trace(*((n, 300, 0.07) for n in range(3))))
    assert took_s(state) < HOUR_S
    plan = Expectation(MicroUsd(1_000), Seconds(float(took_s(state))), 0.0, 9)
    assert any("higher than at the start" in reason for reason in reasons(state, plan))


def test_what_a_program_ran_for_nothing_is_a_reason() -> None:
    lost = structs.replace(STORY, programs=structs.replace(STORY.programs, seconds_redone=5400))
    said = "its program lost 90 minutes of work and restarted"
    assert said in reasons(lost, replace(AS_IT_WAS, cost=MicroUsd(100_000)))


def test_where_no_single_reason_stands_out_something_is_said_all_the_same() -> None:
    state, _ = replay(terms(clocks=30), scripted_trace())
    assert state.training.training_started_at is not None
    assert state.training.training_over_at is not None
    machines = round(
        sum(state.training.worked.values())
        / (state.training.training_over_at - state.training.training_started_at)
    )
    plan = Expectation(MicroUsd(1_000), Seconds(float(took_s(state))), 0.0, machines)
    (said,) = reasons(state, plan)
    assert said.startswith("nothing stands out")
