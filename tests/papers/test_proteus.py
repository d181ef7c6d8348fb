"""The Proteus protocol keeps what the paper promised: on one zone by default, on all in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.papers.proteus import TRACES, Case, cases, run_zone
from tests.papers.protocols.proteus_tables import (
    AGILE,
    BRAIN,
    ON_DEMAND,
    PROTEUS,
    STANDARD,
    Result,
    pool_zones,
    report,
)

SAMPLE = 25


@pytest.fixture(scope="module")
def results(recorded_data: Path, campaign: bool) -> tuple[Result, ...]:
    chosen = cases(recorded_data, 1000, 0) if campaign else [_sample(recorded_data)]
    return tuple(run_zone(case) for case in chosen)


def _sample(data: Path) -> Case:
    trace = TRACES[-1]
    return Case(data, trace, trace.zones[0], SAMPLE, 0)


@pytest.mark.parametrize(("hours", "cost"), [(2, 0.15), (20, 0.17)])
def test_proteus_costs_what_the_paper_says(results: tuple[Result, ...], hours: int, cost: float) -> None:
    rows = [row for result in results for row in result.rows]
    assert pool_zones(rows, hours, PROTEUS).cost <= cost
    assert pool_zones(rows, hours, ON_DEMAND).cost == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("hours", [2, 20])
def test_proteus_is_cheapest_and_as_fast_as_the_paper_says(results: tuple[Result, ...], hours: int) -> None:
    rows = [row for result in results for row in result.rows]
    proteus = pool_zones(rows, hours, PROTEUS)
    for other in (ON_DEMAND, STANDARD, AGILE, BRAIN):
        assert proteus.cost < pool_zones(rows, hours, other).cost
        assert proteus.runtime < pool_zones(rows, hours, other).runtime
    assert proteus.runtime <= 0.68 * pool_zones(rows, hours, STANDARD).runtime
    assert proteus.unfinished == 0


@pytest.mark.parametrize("hours", [2, 20])
def test_nobody_pays_less_than_the_oracle(results: tuple[Result, ...], hours: int) -> None:
    for result in results:
        for row in result.rows:
            if row.hours == hours:
                assert row.cost >= result.free_bound[hours]
                if row.free_h == 0:
                    assert row.cost >= result.paid_bound[hours]


def test_the_report_names_every_strategy(results: tuple[Result, ...]) -> None:
    text = "\n".join(report(results))
    for name in (ON_DEMAND, STANDARD, AGILE, BRAIN, PROTEUS):
        assert name in text
