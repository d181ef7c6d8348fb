"""The tables of the Proteus protocol: mean jobs per zone, over all zones, and what gave what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

ON_DEMAND: Final = "on-demand"
STANDARD: Final = "standard + checkpoints"
AGILE: Final = "standard + AgileML"
BRAIN: Final = "BidBrain + checkpoints"
PROTEUS: Final = "Proteus"


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy's mean job in one zone; hours are machine-hours of one job."""

    trace: str
    zone: str
    hours: int
    strategy: str
    cost: float
    """Relative to on-demand, as is ``runtime``."""
    runtime: float
    on_demand_h: float
    spot_h: float
    free_h: float
    evictions: float
    unfinished: int

    @property
    def free(self) -> float:
        """Share of machine time."""
        return self.free_h / (self.on_demand_h + self.spot_h + self.free_h)


@dataclass(frozen=True, slots=True)
class Result:
    """A zone's rows, and what its prices say by themselves."""

    trace: str
    zone: str
    rows: tuple[Row, ...]
    markets: int
    paid_bound: dict[int, float]
    """By hours: least relative cost without refunds, knowing all prices."""
    free_bound: dict[int, float]
    """The same with refunds."""
    ratio: float
    """Mean price per core of the cheapest market, over the list price per core of the reference."""
    taken: float
    """Share of hours in which the cheapest market would take machines that bid its list price."""
    seconds: float


def report(results: Iterable[Result]) -> Iterator[str]:
    """The table per zone, the means, the attribution, and what the traces say."""
    results = tuple(results)
    rows = [row for result in results for row in result.rows]
    yield f"\n{'trace':<8}{'zone':<12}{'job':>5}  {'strategy':<24}{'cost':>7}{'runtime':>9}" + (
        f"{'on-dem. h':>11}{'spot h':>9}{'free h':>8}{'free':>7}{'evicted':>9}{'unfinished':>12}"
    )
    for row in rows:
        yield _line(row)
    for hours in (2, 20):
        yield f"\nmean over zones, {hours} h jobs"
        for name in (ON_DEMAND, STANDARD, AGILE, BRAIN, PROTEUS):
            yield _line(pool_zones(rows, hours, name))
        yield from _attribution(rows, hours)
    yield "\nwhat the prices say (cheapest market per core, test window)"
    for result in results:
        yield _facts(result)


def pool_zones(rows: Iterable[Row], hours: int, strategy: str) -> Row:
    """The mean zone."""
    chosen = [row for row in rows if (row.hours, row.strategy) == (hours, strategy)]

    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    return Row(
        trace="all",
        zone=f"{len(chosen)} zones",
        hours=hours,
        strategy=strategy,
        cost=mean(row.cost for row in chosen),
        runtime=mean(row.runtime for row in chosen),
        on_demand_h=mean(row.on_demand_h for row in chosen),
        spot_h=mean(row.spot_h for row in chosen),
        free_h=mean(row.free_h for row in chosen),
        evictions=mean(row.evictions for row in chosen),
        unfinished=sum(row.unfinished for row in chosen),
    )


def _line(row: Row) -> str:
    return (
        f"{row.trace:<8}{row.zone:<12}{row.hours:>3} h  {row.strategy:<24}{row.cost:>7.3f}{row.runtime:>9.3f}"
        f"{row.on_demand_h:>11.1f}{row.spot_h:>9.1f}{row.free_h:>8.1f}{row.free:>7.1%}{row.evictions:>9.2f}"
        f"{row.unfinished:>12}"
    )


def _attribution(rows: Iterable[Row], hours: int) -> Iterator[str]:
    rows = tuple(rows)
    costs = {name: pool_zones(rows, hours, name) for name in (STANDARD, AGILE, BRAIN, PROTEUS)}
    for what, with_it, without in (
        ("Proteus for standard + checkpoints", PROTEUS, STANDARD),
        ("AgileML for checkpoints, standard bids", AGILE, STANDARD),
        ("AgileML for checkpoints, BidBrain", PROTEUS, BRAIN),
        ("BidBrain for standard bids, AgileML", PROTEUS, AGILE),
    ):
        cost = costs[with_it].cost / costs[without].cost
        runtime = costs[with_it].runtime / costs[without].runtime
        yield f"  {what:<42} cost x {cost:.3f}, runtime x {runtime:.3f}"


def _facts(result: Result) -> str:
    proteus = {row.hours: row for row in result.rows if row.strategy == PROTEUS}
    over = ", ".join(
        f"{hours} h: {proteus[hours].cost / bound:.2f}" for hours, bound in result.paid_bound.items()
    )
    free = ", ".join(f"{bound:.3f}" for bound in result.free_bound.values())
    return (
        f"{result.trace:<8}{result.zone:<12}{result.markets:>3} markets"
        f"  price/list {result.ratio:.3f}  list-price bids taken in {result.taken:.1%} of hours"
        f"  Proteus over the optimum without refunds {over}; optimum with refunds at least {free}"
        f"  ({result.seconds:.1f} s)"
    )
