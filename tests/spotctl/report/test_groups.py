"""Money added up by hand, and the same money added up otherwise."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from functools import cache

import pytest
from msgspec import structs

from pricing_data.model.billing import EndReason
from pricing_data.model.units import MicroUsd
from spotctl.cli.views import report
from spotctl.control import entries as e
from spotctl.control.state import State
from spotctl.report.fold import build_account
from spotctl.report.groupings import Grouping
from spotctl.report.groups import BaselineComparison, Group, group_all, group_runs
from spotctl.report.summarize import summarize
from spotctl.report.summary import RunSummary
from tests.spotctl.build import random_trace, replay, terms
from tests.spotctl.cli.story import at, state_after

STATE = state_after(52)
"""One reliable machine for 51 minutes; four spot machines for 31, all of it given back."""
BEGAN = dt.datetime(2026, 11, 20, 12).timestamp()


def summary(state: State, began: float = BEGAN) -> RunSummary:
    return summarize(state, began, {})


RUN = summary(STATE)


def test_one_run_by_job() -> None:
    compared = build_account(STATE).baselines
    assert compared is not None
    assert compared.as_fast is not None
    assert group_runs({"movies/1": RUN}, Grouping.JOB) == (
        Group(
            key="movies",
            runs=1,
            paid_s=0,
            free_s=4 * 31 * 60,
            on_demand_s=51 * 60,
            spot=MicroUsd(0),
            on_demand=MicroUsd(239_000),
            refunded=MicroUsd(4 * 50_000),
            egress=MicroUsd(0),
            evictions=1,
            evicted=4,
            clocks_redone=1,
            seconds_redone=0,
            comparison=BaselineComparison(
                baseline=compared.rental.cost,
                as_fast=compared.as_fast.cost,
                cheapest=compared.cheapest.cost,
            ),
        ),
    )


def test_parts_of_runs_have_no_baseline() -> None:
    spot, reliable = group_runs({"movies/1": RUN}, Grouping.MARKET)
    assert (spot.key, spot.total, spot.evicted) == ("c4.xlarge@us-east-1b", 0, 4)
    assert (reliable.key, reliable.total) == ("m4.xlarge@us-east-1a", 239_000)
    assert spot.savings is None


def test_runs_of_one_job_come_together_and_jobs_apart() -> None:
    other = replace(RUN, job="nightly")
    by_job = group_runs({"movies/1": RUN, "movies/2": RUN, "nightly/1": other}, Grouping.JOB)
    assert [(group.key, group.runs, group.total) for group in by_job] == [
        ("movies", 2, 478_000),
        ("nightly", 1, 239_000),
    ]


@pytest.mark.parametrize("by", list(Grouping))
def test_the_groups_sum_to_the_total(by: Grouping) -> None:
    runs = {"movies/1": RUN, "movies/2": summary(state_after(40))}
    groups, whole = group_runs(runs, by), group_all(runs)
    for amount in (
        "spot",
        "on_demand",
        "refunded",
        "total",
        "paid_s",
        "free_s",
        "on_demand_s",
        "evicted",
        "evictions",
    ):
        assert sum(getattr(group, amount) for group in groups) == getattr(whole, amount)


@cache
def long_run() -> State:
    """Past midnight."""
    state, _ = replay(terms(clocks=1500), random_trace(2))
    return state


@pytest.mark.parametrize("by", list(Grouping))
def test_evictions_are_counted_once_however_long_machines_ran(by: Grouping) -> None:
    """Also by day, of machines that ran past midnight; and as ``status`` counts them."""
    state = long_run()
    runs = {"test/1": summary(state)}
    groups, whole = group_runs(runs, by), group_all(runs)
    machines = sum(instance.end is EndReason.EVICTED for instance in state.instances.values())
    assert (whole.evictions, whole.evicted) == (state.recovery.evicted_allocations, machines)
    assert whole.evicted > whole.evictions > 2
    assert sum(group.evictions for group in groups) == whole.evictions
    assert sum(group.evicted for group in groups) == whole.evicted


def test_runs_that_have_not_ended_are_counted() -> None:
    groups = group_runs({"movies/1": RUN, "movies/2": summary(state_after(40))}, Grouping.JOB)
    assert [(group.runs, group.unfinished) for group in groups] == [(2, 1)]
    by_market = group_runs({"movies/1": RUN, "movies/2": summary(state_after(40))}, Grouping.MARKET)
    assert [(group.runs, group.unfinished) for group in by_market] == [(2, 1), (2, 1)]


EARLY = summary(state_after(1.5))
"""It has not ended, and did no work yet, for 0.239 $."""


def test_savings_are_of_the_runs_that_have_finished_and_the_others_are_named() -> None:
    """Another one's 0.239 $ are no reason to say that the others saved less."""
    alone = group_all({"movies/1": RUN})
    both = {"movies/1": RUN, "movies/2": EARLY}
    (group,) = group_runs(both, Grouping.JOB)
    for found in (group, group_all(both)):
        assert found.total == alone.total + 239_000
        assert (found.comparison.uncompared, found.comparison.uncompared_runs) == (
            239_000,
            {"movies/2": "it has not ended"},
        )
        assert (found.comparison.baseline, found.savings) == (alone.comparison.baseline, alone.savings)
    (_, reliable) = group_runs(both, Grouping.MARKET)
    assert (reliable.savings, reliable.comparison.uncompared_runs) == (None, {})


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [(e.RunOutcome.FAILED, "it failed"), (e.RunOutcome.CANCELLED, "it was cancelled")],
)
def test_a_run_that_came_to_nothing_is_cost_without_a_saving(outcome: e.RunOutcome, reason: str) -> None:
    """Its work would be a saving, had anything come of it."""
    ended = summary(
        structs.replace(
            STATE, ending=structs.replace(STATE.ending, closed=e.Close(at(52), outcome, 1, "why"))
        )
    )
    assert ended.cheapest is not None
    found = group_all({"movies/1": RUN, "movies/2": ended})
    assert found.comparison.uncompared_runs == {"movies/2": reason}
    assert (found.comparison.baseline, found.savings) == (RUN.baseline, group_all({"movies/1": RUN}).savings)


def test_a_run_that_cost_nothing_is_missing_in_no_comparison() -> None:
    assert group_all({"movies/1": RUN, "movies/2": summary(state_after(0))}).comparison.uncompared_runs == {}


def test_the_report_names_what_its_savings_leave_out() -> None:
    both = {"movies/1": RUN, "movies/2": EARLY}
    said = report.plain_table(both, Grouping.DAY)
    assert "saved: leaves out $0.239000, for which no saving is known:" in said
    assert "1 run: it has not ended: movies/2" in said
    document = json.loads(report.report_document(both, Grouping.JOB))
    assert document["runs_not_compared"] == {"movies/2": "it has not ended"}
    assert (document["total"]["total"], document["total"]["not_compared"]) == ("0.478000", "0.239000")
    assert "saved: leaves out" not in report.plain_table({"movies/1": RUN}, Grouping.DAY)


def test_a_run_counts_on_the_day_on_which_it_really_began() -> None:
    """Both had the prices of the same day of 2016; the day is this computer's, not UTC's."""
    midnight = dt.datetime(2026, 11, 21).timestamp()
    runs = {"movies/1": summary(STATE, midnight - 1), "movies/2": summary(STATE, midnight)}
    assert [group.key for group in group_runs(runs, Grouping.DAY)] == ["2026-11-20", "2026-11-21"]
    (month,) = group_runs(runs, Grouping.MONTH)
    assert (month.key, month.runs, month.savings) == ("2026-11", 2, group_all(runs).savings)
    assert "in this computer's time zone" in report.plain_table(runs, Grouping.DAY)


def test_nothing_at_all_is_a_total_of_nothing() -> None:
    whole = group_all({})
    assert (group_runs({}, Grouping.JOB), whole.total, whole.savings) == ((), 0, None)
