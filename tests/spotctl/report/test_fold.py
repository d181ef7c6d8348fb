"""What a run is compared with, and when it was over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pricing_data.model.billing import EndReason
from pricing_data.model.units import HOUR_S, Instant, UsdPerHour
from spotctl.cli.format import output
from spotctl.cli.views import end as endview
from spotctl.control import entries as e
from spotctl.control.evolve import evolve
from spotctl.control.lifecycle import InstanceState
from spotctl.control.run_spec import MarketOption
from spotctl.control.state import State
from spotctl.control.state_values import Instance
from spotctl.report.final import final_object
from spotctl.report.fold import build_account, ended_at
from spotctl.report.groups import Group, group_all
from spotctl.report.summarize import summarize
from tests.spotctl.build import changed
from tests.spotctl.cli.story import SPOT, at, entries, state_after

RUN = state_after(52)


def test_a_baseline_is_had_in_the_region_where_its_machines_cost_least() -> None:
    """Whichever region the job happens to name first."""
    abroad = MarketOption(replace(SPOT, region="eu-west-1", zone="eu-west-1a"), UsdPerHour(0.1), 4)
    dearer = MarketOption(replace(SPOT, region="sa-east-1", zone="sa-east-1a"), UsdPerHour(0.4), 4)
    at_home = build_account(RUN).baseline
    assert at_home is not None
    for spot in ((*RUN.terms.spot, abroad, dearer), (dearer, abroad, *RUN.terms.spot)):
        found = build_account(structs.replace(RUN, terms=replace(RUN.terms, spot=spot))).baseline
        assert found is not None
        assert (found.market.region, found.market.instance_type) == ("eu-west-1", "c4.xlarge")
        assert found.cost == found.machines * 100_000 * -(-found.seconds // HOUR_S)
        assert found.cost < at_home.cost


def final(state: State) -> dict[str, Any]:
    return final_object(state, Path("ledger.db"), 1.0, 0)


def away(from_minute: float, until_minute: float, over_at: Instant | None) -> State:
    """The story, of whose end nobody heard before spotctl was back."""
    told = [entry for entry in entries() if entry.at <= at(from_minute)]
    late = [structs.replace(entry, at=at(until_minute)) for entry in entries() if entry.at > at(from_minute)]
    state = state_after(-1)
    for entry in (*told, e.ControllerDown(at(from_minute), at(until_minute), over_at), *late):
        state = evolve(state, entry)
    return state


def test_training_that_ended_unseen_was_over_when_its_files_say() -> None:
    seen, unseen = away(50, 51, None), away(50, 50 + 600, at(51))
    assert unseen.training.training_over_at == at(51)
    assert unseen.training.worked == seen.training.worked
    assert build_account(unseen).baselines == build_account(seen).baselines, (
        "machines that waited did no work"
    )
    assert not unseen.end_time_unknown


def test_training_of_which_no_file_says_when_it_ended_was_over_by_the_return_at_the_latest() -> None:
    state = away(50, 50 + 600, None)
    assert state.training.training_over_at == at(650)
    assert state.end_time_unknown
    assert "at most" in output.render_text(endview.draw_end(final(state)))
    before = away(51, 60, None)
    assert (before.training.training_over_at, before.end_time_unknown) == (at(51), False)
    assert "at most" not in output.render_text(endview.draw_end(final(before)))


def test_a_run_was_over_with_its_machines_whenever_it_was_closed() -> None:
    state = away(50, 50 + 600, at(51))
    gone = {
        n: structs.replace(i, ended_at=min(i.ended_at or at(56), at(56))) for n, i in state.instances.items()
    }
    state = structs.replace(state, instances=gone)
    assert ended_at(state) == at(56)
    assert (final(state)["ended"], final(state)["sim_seconds"]) == ("2016-06-05T14:56:00Z", 56 * 60)
    assert ended_at(RUN) == RUN.now


# ---- work that its machines cannot have done ---------------------------------------------------------

SPANS = st.lists(st.tuples(st.integers(0, 7200), st.integers(0, 7200)), min_size=1, max_size=8)
"""Of each machine: when it began to run, and for how long."""


def worked_by(spans: list[tuple[int, int]], core_seconds: float) -> State:
    """A run of machines of four cores that lived for ``spans``, which says it did that much work."""
    machines = {
        f"s1-{number}": Instance(
            f"s1-{number}",
            "s1",
            InstanceState.ENDED,
            running_at=Instant(RUN.terms.start + began),
            ended_at=Instant(RUN.terms.start + began + lasted),
            end=EndReason.RELEASED,
        )
        for number, (began, lasted) in enumerate(spans)
    }
    allocation = structs.replace(RUN.allocations["s1"], count=len(spans), instances=tuple(machines))
    terms = changed(RUN.terms, core_seconds_per_clock=core_seconds / 100)
    return structs.replace(
        RUN,
        terms=terms,
        training=structs.replace(RUN.training, clock=100),
        instances=machines,
        allocations={"s1": allocation},
        recovery=structs.replace(RUN.recovery, resumed_from=0),
    )


def summed(**runs: State) -> Group:
    return group_all({name: summarize(state, 0.0, {}) for name, state in runs.items()})


@given(SPANS, st.floats(0.0, 1.0))
def test_work_that_billed_machines_can_do_is_comparable(spans: list[tuple[int, int]], share: float) -> None:
    able = 4 * sum(lasted for _, lasted in spans)
    assert build_account(worked_by(spans, share * able)).not_comparable is None


@given(SPANS, st.floats(1.011, 100.0))
def test_work_beyond_what_billed_machines_can_do_enters_no_saving(
    spans: list[tuple[int, int]], share: float
) -> None:
    able = 4 * sum(lasted + 1 for _, lasted in spans)
    state = worked_by(spans, share * able)
    money, told = build_account(state), final(state)
    assert money.not_comparable is not None
    assert (money.savings, told["savings_fraction"]) == (None, None)
    assert told["not_comparable"] == money.not_comparable
    group = summed(run=state)
    reasons = {"run": money.not_comparable} if group.total else {}
    assert (group.savings, group.comparison.uncompared_runs) == (None, reasons)


def test_a_run_that_is_not_comparable_adds_nothing_to_what_the_others_saved() -> None:
    beyond = worked_by([(0, 60)], 1e6)
    alone, both = summed(a=RUN), summed(a=RUN, b=beyond)
    assert (both.savings, both.comparison.baseline) == (alone.savings, alone.comparison.baseline)
    assert both.total > alone.total
    assert list(both.comparison.uncompared_runs) == ["b"]
    assert "not known: 1000000 core-seconds" in output.render_text(endview.draw_end(final(beyond)))
