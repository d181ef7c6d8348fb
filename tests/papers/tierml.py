"""TierML's savings (CMU-PDL-16-102, 4.6 and 4.7) on recorded prices: ``python -m tests.papers tierml``.

Jobs of 2, 8 and 20 h of compute on 64 large machines, or as many cores of small ones, from every starting
minute. Bidding the on-demand price under the billing of 2016; and aggressively, where bids are what is paid:
the price rounded up to a dime for the large class and a nickel for the small one. Failure rates are learned
from the prices before each decision; the first ten days of every trace are for learning only.

The paper's markets (c4, early 2016) are not among the recorded ones. d2 and m4 of 2016's first quarter
were calm; r3 and c3 of 2015 are as restless as the paper's, and are there for that.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bidbrain.strategies.tierml import MOVE_FACTOR
from pricing_data.catalogue import Catalogue
from pricing_data.formats.traces import read_trace
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import Instant
from tests.papers.protocols.market_classes import DAY_S, Floats, MachineClass, tabulate
from tests.papers.protocols.tierml_jobs import Jobs, Scheme, run

LENGTHS: Final = np.array([120, 480, 1200])
"""Minutes of compute."""
LEARNING_DAYS: Final = 10
_ROOM_MINUTES: Final = 60 * 60
"""A start must leave 60 h of data: the slowest 20 h jobs need them."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two classes of one zone; 64 of the large one have the cores of ``small_count`` of the small one."""

    folder: str
    zone: str
    small: str
    small_count: int
    large: str

    def __str__(self) -> str:
        return f"{self.small} + {self.large} {self.zone[-2:]}"


Q1, Y2015 = "aws-spot-2016q1", "aws-spot-2015"
PAIRS: Final = (
    Pair(Q1, "us-east-1b", "d2.xlarge", 128, "d2.2xlarge"),
    Pair(Q1, "us-east-1c", "d2.xlarge", 128, "d2.2xlarge"),
    Pair(Q1, "us-east-1b", "d2.4xlarge", 128, "d2.8xlarge"),
    Pair(Q1, "us-east-1c", "d2.4xlarge", 128, "d2.8xlarge"),
    Pair(Q1, "us-east-1b", "m4.4xlarge", 160, "m4.10xlarge"),
    Pair(Y2015, "us-east-1a", "r3.large", 128, "c3.xlarge"),
    Pair(Y2015, "us-east-1b", "r3.large", 128, "c3.xlarge"),
)


@dataclass(frozen=True, slots=True)
class Bidding:
    """Describes how bids are made, and what checkpoints cost then (section 4.7)."""

    name: str
    overhead: float
    steps: tuple[float | None, float | None]
    """What prices of the small and the large class are rounded up to; None: the on-demand price is bid."""
    pays_bid: bool

    def schemes(self) -> dict[str, Scheme]:
        """Those compared: checkpointing, TierML, and TierML short of a move, or of a class."""
        pays, overhead = self.pays_bid, self.overhead
        return {
            "checkpointing": Scheme("checkpointing", 0, overhead, pays_bid=pays),
            "rolled back": Scheme("rolled back", 0, overhead, rolls_back=True, pays_bid=pays),
            "small only": Scheme("small only", 1, classes=(0,), pays_bid=pays),
            "large only": Scheme("large only", 1, classes=(1,), pays_bid=pays),
            "no moves": Scheme("no moves", 1, pays_bid=pays),
            "tierml": Scheme("tierml", 1, moves_at=MOVE_FACTOR, pays_bid=pays),
        }


ON_DEMAND_BIDS: Final = Bidding("on-demand", 0.18, (None, None), pays_bid=False)
AGGRESSIVE: Final = Bidding("aggressive", 0.50, (0.05, 0.10), pays_bid=True)
PAPER: Final = {"on-demand": ("74-78", "46-50", "11"), "aggressive": ("66-70", "52-55", "23")}
"""Percent saved against on-demand and against checkpointing, and percent longer than on-demand."""


@dataclass(frozen=True, slots=True)
class Result:
    """One pair and bidding: by scheme, costs relative to on-demand, (starts, lengths), and the jobs."""

    pair: Pair
    bidding: Bidding
    relative: dict[str, Floats]
    jobs: dict[str, Jobs]
    above: Floats
    """(2,): share of the minutes in which a class costs more than on demand."""
    mean_price: Floats
    """(2,): mean price over on-demand price."""

    def mean(self, scheme: str) -> Floats:
        """(lengths,)"""
        mean: Floats = self.relative[scheme].mean(axis=0)
        return mean

    @property
    def saved_by_second_class(self) -> Floats:
        """(lengths,): of what one class alone costs, either with equal chance, with both at hand."""
        return 1 - self.mean("tierml") / ((self.mean("small only") + self.mean("large only")) / 2)


def results(data: Path, pairs: Sequence[Pair] = PAIRS, every: int = 1) -> Iterator[Result]:
    """All biddings of all pairs, from every ``every``-th minute."""
    catalogue = Catalogue.bundled()
    recorded = {f: read_trace(data / f / "spot_prices.csv.gz").series for f in {p.folder for p in pairs}}
    for pair in pairs:
        history = PriceHistory.from_series(recorded[pair.folder])
        for bidding in (ON_DEMAND_BIDS, AGGRESSIVE):
            yield _result(history, catalogue, pair, bidding, every)


def _result(history: PriceHistory, catalogue: Catalogue, pair: Pair, bidding: Bidding, every: int) -> Result:
    markets = [Market("aws", "us-east-1", pair.zone, name) for name in (pair.small, pair.large)]
    first = Instant(max(int(history.series(market).times[0]) for market in markets))
    last = Instant(min(int(history.series(market).times[-1]) for market in markets))
    classes = []
    for market, count, step in zip(markets, (pair.small_count, 64), bidding.steps, strict=True):
        on_demand = catalogue.on_demand("aws", "us-east-1", market.instance_type, first)
        assert on_demand is not None, f"the catalogue has no price of {market.instance_type} then"
        classes.append(MachineClass(market, count, on_demand, step))
    tables = tabulate(history, classes, Instant(first + LEARNING_DAYS * DAY_S), last)
    starts = np.arange(0, tables.minutes - _ROOM_MINUTES, every)
    jobs = {name: run(scheme, tables, starts, LENGTHS) for name, scheme in bidding.schemes().items()}
    whole = tables.on_demand * LENGTHS / 60
    own = np.array([[kind.on_demand] for kind in classes])
    return Result(
        pair,
        bidding,
        {name: done.cost / whole for name, done in jobs.items()},
        jobs,
        above=(tables.level < 0).mean(axis=1),
        mean_price=(tables.prices / own).mean(axis=1),
    )


@dataclass(frozen=True, slots=True)
class Pooled:
    """Means over the pairs, (lengths,) each."""

    saved: Floats
    """Of the cost on demand."""
    saved_of_checkpointing: Floats
    saved_of_rolled_back: Floats
    """Where an eviction also loses what was done since the last checkpoint."""
    saved_by_second_class: Floats
    saved_by_moves: Floats
    longer: Floats
    """Than on demand, as a share."""

    @classmethod
    def from_results(cls, found: Sequence[Result]) -> Pooled:
        def cost(scheme: str) -> Floats:
            mean: Floats = np.mean([result.mean(scheme) for result in found], axis=0)
            return mean

        ours = cost("tierml")
        minutes = np.mean([result.jobs["tierml"].minutes.mean(axis=0) for result in found], axis=0)
        return cls(
            saved=1 - ours,
            saved_of_checkpointing=1 - ours / cost("checkpointing"),
            saved_of_rolled_back=1 - ours / cost("rolled back"),
            saved_by_second_class=1 - ours / ((cost("small only") + cost("large only")) / 2),
            saved_by_moves=1 - ours / cost("no moves"),
            longer=minutes / LENGTHS - 1,
        )


def main() -> None:
    """Print costs per pair, and the pooled savings beside the paper's."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers tierml")
    parser.add_argument("name")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("SPOTCTL_DATA", "../shared/data")))
    parser.add_argument("--every", type=int, default=1, help="of how many starting minutes one is taken")
    parser.add_argument(
        "--seed", type=int, default=0, help="accepted like everywhere; nothing here is random"
    )
    options = parser.parse_args()
    print(f"seed {options.seed} (unused: every {options.every} starting minute(s), nothing is drawn)")
    found = []
    print("cost over on-demand, means of 2, 8 and 20 h; 95th percentile; evictions per 20 h job")
    print(
        f"{'pair':<27}{'bids':<11}{'starts':>7}{'>od':>10}{'price':>10}  ckpt  back small large stay  TierML"
        "   p95  evict"
    )
    for result in results(options.data, every=options.every):
        found.append(result)
        print(_row(result), flush=True)
    for bidding in (ON_DEMAND_BIDS, AGGRESSIVE):
        print(_summary(bidding, [result for result in found if result.bidding is bidding]))


def _row(result: Result) -> str:
    names = ("checkpointing", "rolled back", "small only", "large only", "no moves", "tierml")
    means = " ".join(f"{result.mean(name).mean():.3f}" for name in names)
    p95 = np.percentile(result.relative["tierml"], 95)
    above, price = ("/".join(f"{x:.0%}" for x in pair) for pair in (result.above, result.mean_price))
    starts = len(result.relative["tierml"])
    evictions = result.jobs["tierml"].evictions[:, -1].mean()
    return (
        f"{result.pair!s:<27}{result.bidding.name:<11}{starts:>7}{above:>10}{price:>10} {means} {p95:6.2f}"
        f" {evictions:6.2f}"
    )


def _summary(bidding: Bidding, found: Sequence[Result]) -> str:
    pooled = Pooled.from_results(found)
    on_demand, checkpointing, longer = PAPER[bidding.name]
    rows = (
        ("saved against on-demand", pooled.saved, on_demand),
        ("saved against checkpointing", pooled.saved_of_checkpointing, checkpointing),
        ("  which also rolls back", pooled.saved_of_rolled_back, checkpointing),
        ("saved by the second class", pooled.saved_by_second_class, "34"),
        ("  of it by moves of running jobs", pooled.saved_by_moves, "-"),
        ("longer than on demand", pooled.longer, longer),
    )
    lines = [f"\nbidding {bidding.name}, all pairs, percent{'2 h':>8}{'8 h':>8}{'20 h':>8}   paper"]
    for name, values, paper in rows:
        lines.append(f"{name:<40}" + "".join(f"{100 * value:>8.1f}" for value in values) + f"   {paper}")
    return "\n".join(lines)
