"""Dynamic pricing of GPUs (Narayanan, chapter 6) on recorded prices: ``python -m tests.papers gpus``.

One job on one GPU, as much as a V100 does in the days given, started every day. Each strategy adds markets,
or freedom, to the one before: the cheapest V100 of AWS's us-east-1; any GPU there; one of a larger instance,
at its share of the price; Azure's too; and moving to wherever is cheapest by then
(``bidbrain.relocation.oracle_path``). Speeds are those measured for the dissertation. Data sets are on every
cloud already, as there; checkpoints are carried and paid for, and so is the time it takes. Prices of both
clouds overlap for a month only: longer jobs, and more starts, are shown on AWS alone.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Floats
from bidbrain.relocation.egress import EgressPrices, TransferLoad
from bidbrain.relocation.oracle_path import Journey, MovePolicy, Options, follow_prices, mean_cost, stay_put
from pricing_data.catalogue import bundled_egress
from pricing_data.formats.traces import read_trace
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Instant, Seconds, parse_instant

FIRST, LAST = parse_instant("2019-12-20"), parse_instant("2020-03-24")
ALL_OF_AWS: Final = parse_instant("2020-01-04")
"""From when on the price of every market is known: before, the cheapest of those seen would be chosen."""
BOTH_CLOUDS: Final = parse_instant("2020-02-24")
"""From when on Azure's prices are recorded."""
DAY_S: Final = 86400
JOBS: Final = (
    "Transformer (batch size 256)",
    "A3C",
    "CycleGAN",
    "ResNet-18 (batch size 256)",
    "ResNet-50 (batch size 128)",
)
"""At the batch sizes whose speeds are those of the dissertation's table 6.1."""
_AWS_GPUS: Final = {
    "p2.xlarge": ("k80", 1),
    "p2.8xlarge": ("k80", 8),
    "p2.16xlarge": ("k80", 16),
    "p3.2xlarge": ("v100", 1),
    "p3.8xlarge": ("v100", 4),
    "p3.16xlarge": ("v100", 8),
}
_GRID: Final = np.arange(FIRST, LAST, HOUR_S)
MOVING: Final = MovePolicy(
    TransferLoad(size_gb=0.5, gb_per_s=0.05, restart_s=Seconds(600)),
    EgressPrices(bundled_egress()),
    lasts_s=DAY_S,
)
"""Checkpoints as large as BERT's (table 6.2), ten minutes to a new machine, prices trusted for a day."""


@dataclass(frozen=True, slots=True, eq=False)
class GpuMarket:
    """One instance type somewhere, by the GPU."""

    market: Market
    gpu: str
    count: int
    price: Floats
    """(t,): dollars per GPU-hour on the hourly grid; NaN before the first."""


Keeps = Callable[[GpuMarket], bool]


def _in_virginia(gpu: GpuMarket) -> bool:
    return gpu.market.cloud == "aws" and gpu.market.region == "us-east-1"


LADDER: Final[Mapping[str, Keeps]] = {
    "1xV100": lambda gpu: _in_virginia(gpu) and (gpu.gpu, gpu.count) == ("v100", 1),
    "GPU type": lambda gpu: _in_virginia(gpu) and gpu.count == 1,
    "multi-GPU": _in_virginia,
    "multi-cloud": lambda gpu: _in_virginia(gpu) or gpu.market.cloud == "azure",
}
DYNAMIC: Final = "dynamic"
AWS_ALONE: Final[Mapping[str, Keeps]] = {
    "machines with one GPU of us-east-1": LADDER["GPU type"],
    "everything in all regions": lambda gpu: gpu.market.cloud == "aws",
}


def markets(data: Path) -> tuple[GpuMarket, ...]:
    """All recorded GPU markets of both clouds."""
    return (*_aws(data), *_azure(data))


def _aws(data: Path) -> Iterator[GpuMarket]:
    for market, series in read_trace(data / "aws-gpu-spot-2020" / "spot_prices.csv.gz").series.items():
        gpu, count = _AWS_GPUS[market.instance_type]
        step = np.searchsorted(series.times, _GRID, side="right") - 1
        price = np.where(step < 0, np.nan, series.prices[np.maximum(step, 0)])
        yield GpuMarket(market, gpu, count, price / count)


def _azure(data: Path) -> Iterator[GpuMarket]:
    """Daily prices, in force until the next day's."""
    found: dict[tuple[Market, str, int], Floats] = {}
    for row in _rows(data / "azure-gpu-lowpriority-2020" / "prices.csv.gz"):
        market = Market("azure", row["region"], row["region"], row["sku"])
        key = (market, row["gpu_type"].lower(), int(row["n_gpus"]))
        price = found.setdefault(key, np.full(len(_GRID), np.nan))
        if row["lowpriority_usd_hour"]:
            hour = (parse_instant(row["date"]) - FIRST) // HOUR_S
            price[hour : hour + 24] = float(row["lowpriority_usd_hour"])
    for (market, gpu, count), price in found.items():
        yield GpuMarket(market, gpu, count, price / count)


def speeds(data: Path) -> dict[tuple[str, str], float]:
    """Steps per second by (job, GPU)."""
    rows = _rows(data / "gavel" / "throughputs_isolated.csv.gz")
    mine = (row for row in rows if row["source"] == "training_on_a_dime_oracle")
    return {(row["job_type"], row["gpu_type"]): float(row["steps_per_s"]) for row in mine}


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def options(found: Sequence[GpuMarket], speed: Mapping[tuple[str, str], float], job: str) -> Options:
    """Where ``job`` may run."""
    return Options(
        tuple(gpu.market for gpu in found),
        np.array([speed[job, gpu.gpu] for gpu in found]),
        np.stack([gpu.price for gpu in found]),
        HOUR_S,
    )


@dataclass(frozen=True, slots=True)
class Rung:
    """One strategy, over the starts that all strategies finish from."""

    cost: float
    moves: float
    starts: int


def ladder(
    found: Sequence[GpuMarket],
    speed: Mapping[tuple[str, str], float],
    job: str,
    days: float,
    steps: Mapping[str, Keeps] = LADDER,
    since: Instant = BOTH_CLOUDS,
) -> dict[str, Rung]:
    """Mean costs of a job of ``days`` on a V100, by strategy; the last one moves among all markets."""
    work = days * DAY_S * speed[job, "v100"]
    starts = range((since - FIRST) // HOUR_S, len(_GRID), 24)
    chosen = {name: options([g for g in found if keeps(g)], speed, job) for name, keeps in steps.items()}
    journeys = {name: [stay_put(o, start, work) for start in starts] for name, o in chosen.items()}
    journeys[DYNAMIC] = [follow_prices(list(chosen.values())[-1], start, work, MOVING) for start in starts]
    done = np.all([[np.isfinite(j.cost) for j in row] for row in journeys.values()], axis=0)
    return {name: _rung(row, done) for name, row in journeys.items()}


def _rung(journeys: Sequence[Journey], done: npt.NDArray[np.bool_]) -> Rung:
    kept = [journey for journey, counts in zip(journeys, done, strict=True) if counts]
    if not kept:
        return Rung(float("nan"), float("nan"), 0)
    return Rung(mean_cost(kept), float(np.mean([journey.move_count for journey in kept])), len(kept))


def lost_every_h(data: Path) -> dict[str, tuple[float, int]]:
    """Returns for AWS, by GPUs: mean hours that probed instances ran per loss, and how many were lost."""
    ran: dict[str, float] = {}
    lost: dict[str, int] = {}
    since: dict[tuple[str, str], Instant] = {}
    for row in _rows(data / "gpu-preemption-probes-2020" / "aws_2020-03-15.csv.gz"):
        kind, probe = f"{row['n_gpus']}x{row['gpu_type']}", (row["instance"], row["zone"])
        at = parse_instant(row["timestamp_utc"])
        if probe in since:
            ran[kind] = ran.get(kind, 0.0) + (at - since.pop(probe)) / HOUR_S
            lost[kind] = lost.get(kind, 0) + (row["event"] == "not_running")
        if row["event"] == "running":
            since[probe] = at
    return {kind: (ran[kind] / max(lost[kind], 1), lost[kind]) for kind in sorted(ran)}


def main() -> None:
    """Print the ladder for both clouds, what moves add by duration, and on AWS alone."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers gpus")
    parser.add_argument("name")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("SPOTCTL_DATA", "../shared/data")))
    parser.add_argument(
        "--seed", type=int, default=0, help="accepted like everywhere; nothing here is random"
    )
    given = parser.parse_args()
    print(f"seed {given.seed} (unused: a job starts every day, nothing is drawn)")
    found, speed = markets(given.data), speeds(given.data)
    print("\ncost of 1xV100 over that of each strategy, jobs of 4 days; dissertation: up to 3.5")
    print(
        f"{'job':<30}{'starts':>7}" + "".join(f"{name:>13}" for name in (*LADDER, DYNAMIC)) + f"{'moves':>7}"
    )
    for job in JOBS:
        rungs = ladder(found, speed, job, 4)
        base, last = rungs["1xV100"].cost, rungs[DYNAMIC]
        gains = "".join(f"{base / rung.cost:>13.2f}" for rung in rungs.values())
        print(f"{job:<30}{last.starts:>7}{gains}{last.moves:>7.1f}", flush=True)
    print("\ncost of staying over that of moving, both clouds; dissertation: up to 1.4, 3 moves at most")
    _by_days(found, speed, LADDER, BOTH_CLOUDS, (1, 2, 4, 7))
    for title, keeps in AWS_ALONE.items():
        print(f"\nthe same on AWS alone, {title}, from 2020-01-04 on")
        _by_days(found, speed, {title: keeps}, ALL_OF_AWS, (1, 4, 10, 20, 30))
    print("\nAWS, mean hours that a probed instance ran per loss (losses); not in the costs above")
    every = lost_every_h(given.data)
    print("; ".join(f"{kind} {hours:.0f} h ({losses})" for kind, (hours, losses) in every.items()))


def _by_days(
    found: Sequence[GpuMarket],
    speed: Mapping[tuple[str, str], float],
    steps: Mapping[str, Keeps],
    since: Instant,
    durations: Sequence[int],
) -> None:
    print(f"{'job':<30}" + "".join(f"{f'{days} d':>8}{'(starts, moves)':>17}" for days in durations))
    for job in JOBS:
        cells = []
        for days in durations:
            rungs = ladder(found, speed, job, days, steps, since)
            stays, moves = list(rungs.values())[-2:]
            note = f"({moves.starts}, {moves.moves:.1f})"
            cells.append(f"{stays.cost / moves.cost:>8.2f}{note:>17}")
        print(f"{job:<30}" + "".join(cells), flush=True)
