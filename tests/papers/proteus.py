"""Proteus' cost savings (Harlap 4.5.2, Fig. 4.7 to 4.9) on recorded auction-era prices.

Jobs of 2 h and 20 h on 64 on-demand machines, from random starts in each zone; beta is trained on what lies
before the test window; minutes left of a job's last hours are not charged. What the paper does not say is
fixed here and printed: how large a footprint may grow (its Fig. 4.1: 189 spot for 128 on-demand machines,
and 3 reliable ones of half the size), boot, sigma, lambda and phi.

    python -m tests.papers proteus [--starts 1000] [--seed 0] [--workers 2]
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bidbrain.backtest.beta_grid import BetaTables
from bidbrain.backtest.job import Accounting, BacktestJob
from bidbrain.backtest.oracle import clairvoyant_bound
from bidbrain.backtest.price_tape import PriceTape
from bidbrain.backtest.run import backtest
from bidbrain.backtest.statistics import Outcomes
from bidbrain.bidding.decision_batch import MarketSetup
from bidbrain.eviction.price.price_crossing import FittedPriceCrossing, PriceCrossing
from bidbrain.model import Limits, ReliableMachines, ScalingModel
from bidbrain.strategies.base import Strategy
from bidbrain.strategies.mttf import typical_mttf_s
from bidbrain.strategies.price_only import OnDemand, StandardBidding
from bidbrain.strategies.proteus import BidBrain
from bidbrain.strategies.recovery import ELASTIC, Checkpointing
from pricing_data.catalogue import Catalogue
from pricing_data.formats.traces import read_trace
from pricing_data.model.market import PriceHistory
from pricing_data.model.rules import AWS_2016
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour, parse_instant
from tests.papers.protocols.proteus_tables import (
    AGILE,
    BRAIN,
    ON_DEMAND,
    PROTEUS,
    STANDARD,
    Result,
    Row,
    report,
)

MACHINES: Final = 64
"""On-demand machines that a job is sized for."""
RELIABLE: Final = 3
GROWTH: Final = 189 / 128
SIZES: Final = (0.25, 0.5, 1.0, GROWTH)
"""Requests that BidBrain tries, in shares of the 64 machines' cores."""
BOOT_S: Final = 60
SCALING: Final = ScalingModel(0.98, Seconds(30), Seconds(30), stage2_above=1, stage3_above=15)
OVERHEAD: Final = 0.17
"""Of checkpointing at bids of the on-demand price, as the paper measured it."""
CHECKPOINT_S: Final = 120.0
RESTART_S: Final = 120.0
ORACLE_STARTS: Final = 25


@dataclass(frozen=True, slots=True)
class Trace:
    """A recording, when its test window begins, and the machines that jobs are sized for."""

    folder: str
    tested_from: str
    reference: str
    reliable: str
    zones: tuple[str, ...]


TRACES: Final = (
    Trace("aws-spot-2015", "2015-07-01", "c3.xlarge", "c3.large", ("us-east-1a", "us-east-1b")),
    Trace(
        "aws-spot-2016q1", "2016-03-20", "m3.large", "m3.medium", ("us-east-1a", "us-east-1b", "us-east-1c")
    ),
    Trace(
        "aws-spot-2016mid", "2016-06-11", "m4.xlarge", "m4.large", ("us-east-1a", "us-east-1c", "us-east-1d")
    ),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One zone of a trace, and how it is sampled."""

    data: Path
    trace: Trace
    zone: str
    starts: int
    seed: int


def main() -> None:
    """Run the protocol and print the tables."""
    given = argparse.ArgumentParser(prog="python -m tests.papers proteus")
    given.add_argument("--starts", type=int, default=1000)
    given.add_argument("--seed", type=int, default=0)
    given.add_argument("--workers", type=int, default=2)
    options, _ = given.parse_known_args()
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    data = Path(os.environ.get("SPOTCTL_DATA", beside))
    began = time.perf_counter()
    print(f"seed {options.seed}, {options.starts} starts per zone; boot {BOOT_S} s, {SCALING}")
    with ProcessPoolExecutor(options.workers) as pool:
        results = tuple(pool.map(run_zone, cases(data, options.starts, options.seed)))
    for line in report(results):
        print(line)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(
        f"\n{time.perf_counter() - began:.1f} s with {options.workers} processes, "
        f"{sum(usage.ru_utime + usage.ru_stime for usage in used):.1f} s of processor time, "
        f"at most {max(usage.ru_maxrss for usage in used) / 1024:.0f} MiB in each"
    )


def cases(data: Path, starts: int, seed: int) -> Iterator[Case]:
    """Every zone of every trace."""
    for trace in TRACES:
        for zone in trace.zones:
            yield Case(data, trace, zone, starts, seed)


def run_zone(case: Case) -> Result:
    """Both durations by all strategies; pure but for the reading of the trace."""
    began = time.perf_counter()
    history = _history(case)
    since = parse_instant(case.trace.tested_from)
    setting = _setting(case, history, since)
    last = Instant(max(int(history.series(market).times[-1]) for market in setting.markets))
    tape = PriceTape.from_history(history, setting.markets, since, last)
    fitted = PriceCrossing().fit(history.as_of(since), since)
    tables = BetaTables.from_fitted(fitted, setting.markets, setting.limits.bid_deltas)
    rows: list[Row] = []
    bounds: dict[bool, dict[int, float]] = {True: {}, False: {}}
    for hours in (2, 20):
        outcomes, found = _run_job(case, setting, tape, tables, fitted, hours)
        rows.extend(outcomes)
        for refunds in bounds:
            bounds[refunds][hours] = found[refunds]
    ratio, taken = _market_facts(case, setting, tape)
    return Result(
        _name(case),
        case.zone,
        tuple(rows),
        len(setting.markets),
        bounds[False],
        bounds[True],
        ratio,
        taken,
        time.perf_counter() - began,
    )


def _name(case: Case) -> str:
    return case.trace.folder.removeprefix("aws-spot-")


def _history(case: Case) -> PriceHistory:
    path = case.data / case.trace.folder / "spot_prices.csv.gz"
    return read_trace(path, only=lambda market: market.zone == case.zone).history


def _setting(case: Case, history: PriceHistory, since: Instant) -> MarketSetup:
    """The zone's markets that the catalogue knows and that have a week of history before the test."""
    catalogue = Catalogue.bundled()
    known = []
    for market in history.markets:
        kind = catalogue.instance_type("aws", market.instance_type)
        price = catalogue.on_demand("aws", market.region, market.instance_type, since)
        if kind and price and history.price(market, Instant(since - 7 * 86400)) is not None:
            known.append((market, float(kind.vcpus), float(price)))
    cores, _ = _reference(case, since)
    reliable = catalogue.instance_type("aws", case.trace.reliable)
    listed = catalogue.on_demand("aws", "us-east-1", case.trace.reliable, since)
    assert reliable is not None
    assert listed is not None
    return MarketSetup(
        markets=tuple(market for market, _, _ in known),
        cores=np.array([vcpus for _, vcpus, _ in known]),
        on_demand=np.array([price for _, _, price in known]),
        rules=AWS_2016,
        reliable=ReliableMachines(RELIABLE, UsdPerHour(listed), reliable.vcpus),
        limits=Limits(10**6, 10**6, max_cores=GROWTH * MACHINES * cores),
        scaling=SCALING,
    )


def _reference(case: Case, since: Instant) -> tuple[int, float]:
    """Cores and list price of one of the 64 machines."""
    catalogue = Catalogue.bundled()
    kind = catalogue.instance_type("aws", case.trace.reference)
    price = catalogue.on_demand("aws", "us-east-1", case.trace.reference, since)
    assert kind is not None
    assert price is not None
    return kind.vcpus, float(price)


def _run_job(
    case: Case,
    setting: MarketSetup,
    tape: PriceTape,
    tables: BetaTables,
    fitted: FittedPriceCrossing,
    hours: int,
) -> tuple[list[Row], dict[bool, float]]:
    vcpus, price = _reference(case, Instant(tape.begin))
    cores = float(MACHINES * vcpus)
    work = cores * SCALING.efficiency(MACHINES) * hours * HOUR_S
    job = BacktestJob(work, BOOT_S, accounting=Accounting.PAPER)
    latest = tape.end - 3 * hours * HOUR_S
    starts = np.sort(np.random.default_rng(case.seed).integers(tape.begin, latest, case.starts))
    baseline = MACHINES * hours * price
    runs = []
    for strategy in strategies(cores, typical_mttf_s(setting, fitted, fitted.history, fitted.now)):
        uses = _reference_only(case, setting, tape) if strategy.name == ON_DEMAND else setting
        runs.append((strategy.name, backtest(strategy, uses, job, tape, lambda _: tables, starts).outcomes))
    rows = [_row(case, hours, name, outcomes, baseline) for name, outcomes in runs]
    some = slice(None, None, max(case.starts // ORACLE_STARTS, 1))
    done = np.stack([outcomes.finish_s[some] for _, outcomes in runs])
    horizon_s = np.where(np.isfinite(done), done, 0.0).max(axis=0)
    bounds = {}
    for refunds in (True, False):
        least = clairvoyant_bound(setting, job, tape, starts[some], horizon_s, refunds=refunds)
        bounds[refunds] = float(least.mean()) / baseline
    return rows, bounds


def strategies(cores: float, mttf_s: float) -> tuple[Strategy, ...]:
    """The paper's three, on-demand, and BidBrain with checkpoints, which the attribution needs."""
    checkpoints = Checkpointing.at_youngs_interval(CHECKPOINT_S, mttf_s, RESTART_S, OVERHEAD)
    sizes = tuple(share * cores for share in SIZES)
    return (
        OnDemand(cores, name=ON_DEMAND),
        StandardBidding(cores, checkpoints, STANDARD),
        StandardBidding(cores, ELASTIC, AGILE, uses_reliable=True),
        BidBrain(BRAIN, checkpoints, sizes),
        BidBrain(PROTEUS, ELASTIC, sizes),
    )


def _reference_only(case: Case, setting: MarketSetup, tape: PriceTape) -> MarketSetup:
    """On demand one has the reference machines, whatever the zone's spot markets are."""
    vcpus, price = _reference(case, Instant(tape.begin))
    size = len(setting.markets)
    return MarketSetup(
        setting.markets,
        np.full(size, float(vcpus)),
        np.full(size, price),
        setting.rules,
        setting.reliable,
        setting.limits,
        setting.scaling,
    )


def _row(case: Case, hours: int, name: str, outcomes: Outcomes, baseline: float) -> Row:
    done = np.isfinite(outcomes.finish_s)
    return Row(
        trace=_name(case),
        zone=case.zone,
        hours=hours,
        strategy=name,
        cost=float(outcomes.cost[done].mean()) / baseline,
        runtime=float(outcomes.finish_s[done].mean()) / (hours * HOUR_S),
        on_demand_h=float(outcomes.on_demand_s.mean()) / HOUR_S,
        spot_h=float(outcomes.spot_s.mean()) / HOUR_S,
        free_h=float(outcomes.free_s.mean()) / HOUR_S,
        evictions=float(outcomes.evictions.mean()),
        unfinished=int((~done).sum()),
    )


def _market_facts(case: Case, setting: MarketSetup, tape: PriceTape) -> tuple[float, float]:
    """Returns how cheap the cheapest market of the test window is, and how often bids of its list price are
    evicted.
    """
    hourly = np.arange(tape.begin, tape.end - HOUR_S, HOUR_S)
    prices = tape.price_at(np.arange(len(setting.markets)), hourly[:, None])
    per_core = np.where(np.isnan(prices), np.inf, prices / setting.cores)
    market = per_core.argmin(axis=1)
    vcpus, price = _reference(case, Instant(tape.begin))
    crossed = tape.first_above(market, hourly, setting.on_demand[market])
    return float(per_core.min(axis=1).mean()) / (price / vcpus), float((crossed <= hourly + HOUR_S).mean())


if __name__ == "__main__":
    main()
