"""The live view: is what the issue of watching asks for on the screen, and true?"""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from msgspec import structs
from rich.console import Console

from pricing_data.model.rules import AWS
from pricing_data.model.units import Instant, Seconds
from spotctl.cli.format.event_text import format_span
from spotctl.cli.watch.live_view import LiveView
from spotctl.control.run_spec import StopCondition
from spotctl.control.state import State
from tests.spotctl.build import changed
from tests.spotctl.cli.story import START, at, beginning, state_after


def drawn(view: LiveView, width: int = 110) -> list[str]:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    with console.capture() as capture:
        console.print(view)
    return [line.rstrip() for line in capture.get().splitlines()]


def view(minutes: float, happened: tuple[tuple[Instant, str], ...] = ()) -> LiveView:
    return LiveView(state_after(minutes), at(minutes), "600x real time", happened)


def line(lines: list[str], start: str) -> str:
    """The one line with that label."""
    (found,) = [line for line in lines if line.strip().startswith(start)]
    return found


def test_the_header_says_whose_prices_these_are_and_how_fast_time_goes() -> None:
    assert drawn(view(20))[0] == "movies  prices: bundled market (generated), 600x real time, aws-2016 rules"


def test_the_footprint_shows_every_allocation_that_has_machines() -> None:
    lines = drawn(view(33))
    spot = " ".join(line(lines, "s1").split())
    assert spot == "s1 c4.xlarge@us-east-1b 4 0.052 0.31 0:30:00 - 4 warned, gone 14:34"
    assert "on-demand" in line(lines, "r1")
    assert not [text for text in drawn(view(50)) if "s1" in text.split()], "it was evicted at 14:34"


def test_where_seconds_are_billed_it_says_how_long_machines_run_instead_of_what_is_left_of_an_hour() -> None:
    state = state_after(33)
    by_the_second = structs.replace(state, terms=replace(state.terms, rules=AWS))
    lines = drawn(LiveView(by_the_second, at(33), ""))
    assert "runs for" in line(lines, "market")
    assert "hour left" in line(drawn(view(33)), "market")
    running = [i.running_at for i in state.instances_of("s1") if i.running_at is not None]
    assert format_span(at(33) - min(running)) in line(lines, "s1")


def test_machines_that_were_asked_for_are_shown_before_they_exist() -> None:
    state = beginning()
    assert "no machines" in "\n".join(drawn(LiveView(state, START, "")))
    assert "1 pending" in line(drawn(view(0.5)), "r1")


def test_stage_progress_objective_cost_and_decisions() -> None:
    lines = drawn(view(20))
    assert "2: parameters live on spot machines" in line(lines, "stage")
    assert line(lines, "progress").endswith("clock 12 of 40")
    assert line(lines, "objective").endswith("0.9134 after clock 12")
    cost = line(lines, "cost so far")
    assert "$0.4390; the same work: $0.4180 as fast, on demand, $0.2090 cheapest on demand" in cost
    assert "bring the cost of a core-hour from 0.06 to 0.02" in line(lines, "last decision")
    assert line(drawn(view(3)), "next decision").endswith("in 0:01:00")


def test_clocks_computed_twice_are_not_hidden() -> None:
    assert line(drawn(view(51)), "progress").endswith("clock 40 of 40, 1 computed twice")


@pytest.mark.parametrize(("minutes", "said"), [(0, "waiting for the reliable machines"), (52, "over")])
def test_before_and_after_training_the_stage_line_says_what_goes_on(minutes: float, said: str) -> None:
    assert line(drawn(view(minutes)), "stage").endswith(said)


def test_before_any_machine_is_asked_for_it_reads_and_cuts_its_input() -> None:
    assert line(drawn(LiveView(beginning(), START, "")), "stage").endswith("getting its input ready")


def test_the_newest_events_are_below_with_their_time() -> None:
    happened = tuple((at(n), f"event {n}") for n in range(12))
    lines = drawn(view(20, happened))
    shown = [text for text in lines if "event " in text]
    assert shown == [f"14:{n:02d} event {n}" for n in range(4, 12)]


def test_brackets_in_a_sentence_are_text() -> None:
    happened = ((at(1), "refused: 4 x c4.xlarge [QuotaExceeded]"),)
    assert any("[QuotaExceeded]" in text for text in drawn(view(2, happened)))


@pytest.mark.parametrize(
    "stop", [StopCondition(None, objective_delta=1e-3), StopCondition(None, seconds=Seconds(3600))]
)
def test_a_job_that_does_not_end_by_clocks_can_be_drawn(stop: StopCondition) -> None:
    state = state_after(20)
    endless: State = structs.replace(state, terms=changed(state.terms, stop=stop))
    assert line(drawn(LiveView(endless, at(20), "")), "progress").endswith("clock 12")


@pytest.mark.parametrize("minutes", [0, 2, 20, 33, 52])
def test_it_fits_eighty_columns(minutes: float) -> None:
    happened = (
        (at(1), "warned: 4 x c4.xlarge in us-east-1b (s1) will be evicted at 14:34 (price 0.31 > bid 0.052)"),
    )
    lines = drawn(view(minutes, happened), width=80)
    assert max(map(len, lines)) <= 80
    assert not any("…" in text for text in lines), "nothing is cut"
