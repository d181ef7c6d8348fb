"""The deadline benchmark's promises: on a few windows by default, in full with ``--campaign``."""

from __future__ import annotations

from pathlib import Path

import pytest

from bidbrain.deadline.benchmark import cut_windows, simulate_rule
from bidbrain.deadline.least_cost import LeastCost
from tests.papers.deadline import Case, choose_traces, run, saved_share, variants

BEATEN = ("on-demand", "greedy", "time-sliced", "uniform progress", "uniform progress, spot first")


@pytest.fixture(scope="module", params=["report", "train"])
def cases(request: pytest.FixtureRequest, recorded_data: Path, campaign: bool) -> list[Case]:
    zones = choose_traces(recorded_data, request.param)
    if campaign:
        return run(zones, 60)
    if request.param == "train":
        pytest.skip("the zones that the prior was chosen on are part of --campaign")
    return run(zones[::2], 8)


def test_nine_tenths_of_the_possible_saving_are_reached(cases: list[Case]) -> None:
    assert saved_share(cases, "least cost") >= 0.9


def test_every_zone_is_cheaper_than_under_the_published_rules(cases: list[Case]) -> None:
    for zone in {case.zone for case in cases}:
        of_zone = [case for case in cases if case.zone == zone]
        ours = sum(case.cost("least cost") for case in of_zone)
        for rule in BEATEN:
            assert ours < sum(case.cost(rule) for case in of_zone), (zone, rule)


def test_no_job_is_late_and_none_is_below_the_optimum(cases: list[Case]) -> None:
    for case in cases:
        runs = case.runs["least cost"]
        assert not runs.late.any(), (case.zone, case.job)
        assert (runs.cost >= case.clairvoyant - 1e-6).all(), (case.zone, case.job)


def test_starts_are_fewer_than_uniform_progress_makes(cases: list[Case]) -> None:
    def starts(rule: str) -> float:
        return sum(float(case.runs[rule].starts.mean()) for case in cases)

    assert starts("least cost") < starts("uniform progress, spot first")


def test_no_start_of_any_trace_makes_a_job_late(recorded_data: Path, campaign: bool) -> None:
    """From every tick of every trace that leaves room with ``--campaign``; from some tens otherwise."""
    for job in variants():
        rule = LeastCost.for_job(job).cheapest_machines
        for zone in choose_traces(recorded_data, "all")[:: 1 if campaign else 4]:
            up = cut_windows(zone.up, job.tick_count, len(zone.up) if campaign else 20)
            assert not simulate_rule(job, up, rule).late.any(), (zone.name, job)
