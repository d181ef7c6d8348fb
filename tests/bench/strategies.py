"""What each strategy's jobs cost on every recorded market and under every rule set, beside the clairvoyant's.

    python -m tests.bench strategies [--starts 200] [--seed 0] [--only NAME] [--rules NAME]
    python -m tests.bench strategies --deadline 1.5 [--starts 40] ...   the default, kept within a deadline

A row is a market, a job and a rule set: mean dollars per job from random starts of a window that no
strategy saw before. What lies before the window trains beta, as for ``spotctl backtest``. "single" are all
strategies but the default, "over" is how much the default costs above the best of them. Capacity is taken
from probes where a market was probed: its clock is that of the prices
(``tests/papers/protocols/capacity.py``). Nothing is chosen on these. With a deadline, so many times as long
as the work takes on as many machines on demand, jobs are run one by one on the control core, as a launch runs
them.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bidbrain.backtest.oracle import clairvoyant_bound
from bidbrain.backtest.run import backtest
from bidbrain.backtest.running_jobs import FitSurvivals
from bidbrain.bidding.decision_batch import SurvivalBatch
from bidbrain.strategies.registry import DEFAULT
from pricing_data.model.units import Instant, format_instant, parse_instant
from spotctl.backtest.prepare import BacktestOptions, PreparedBacktest, prepare_backtest
from spotctl.backtest.strategies import MENU
from spotctl.backtest.with_deadline import run_with_deadline, why_refused
from spotctl.job.file import load_job
from tests.papers.protocols.capacity import grids

RULES: Final = ("aws-2016", "aws", "gcp", "azure")
ORACLE_STARTS: Final = 50
PROBES: Final = "2023-02-15 avail"

JOB: Final = """\
name: bench
app: agileml.apps.mf:MatrixFactorization
args: {{rank: 8}}
data: {data}
stop: {{clocks: 200}}
resources:
  reliable: {{instances: 1, instance_type: {reliable}}}
  spot: {{clouds: [{cloud}], regions: [{region}], {zones}instance_types: [{types}],
         max_instances: {most}, max_per_allocation: {together}}}
scaling: {{phi: 0.98, sigma: 15s, lambda: 15s}}
local: {{core_seconds_per_clock: {clock}, boot: 60s}}
checkpoint: {{store: {folder}/kept, every: 10}}
output: {folder}/out
{objective}"""


@dataclass(frozen=True, slots=True)
class Case:
    """One market and one job."""

    era: str
    name: str
    file: str
    """Below the recorded data; empty: the bundled market."""
    types: str
    reliable: str
    cloud: str = "aws"
    region: str = "us-east-1"
    zones: str = ""
    begins: str | None = None
    ends: str | None = None
    most: int = 12
    hours: float = 160.0
    """Core-hours of work."""
    probed: bool = False


_2015: Final = "aws-spot-2015/spot_prices.csv.gz"
_2016Q1: Final = "aws-spot-2016q1/spot_prices.csv.gz"
_2016MID: Final = "aws-spot-2016mid/spot_prices.csv.gz"
_V100: Final = "aws-v100-prices-2023/spot_prices.csv.gz"
_2021: Final = "aws-spot-2020-2021/spot_prices_us-east-1_2021.csv.gz"
_REGIONS: Final = ("us-east-1", "us-east-2", "us-west-2")

CASES: Final = (
    Case("bundled", "bundled", "", "c4.xlarge, c4.2xlarge, m4.xlarge", "m4.xlarge"),
    *(
        Case(
            "auction",
            f"2015 {zone}",
            _2015,
            "c3.xlarge, r3.large, g2.2xlarge",
            "c3.large",
            zones=zone,
            begins="2015-07-01",
        )
        for zone in ("us-east-1a", "us-east-1b")
    ),
    *(
        Case(
            "auction",
            f"2016q1 {zone}",
            _2016Q1,
            "d2.xlarge, d2.2xlarge, m3.large, m3.medium, c1.medium",
            "m3.medium",
            zones=zone,
            begins="2016-03-20",
        )
        for zone in ("us-east-1a", "us-east-1b", "us-east-1c")
    ),
    *(
        Case(
            "auction",
            f"2016mid {zone}",
            _2016MID,
            "m4.xlarge",
            "m4.large",
            zones=zone,
            begins="2016-06-11",
            ends="2016-07-19",
        )
        for zone in ("us-east-1a", "us-east-1c", "us-east-1d")
    ),
    Case("auction", "2016mid all", _2016MID, "m4.xlarge", "m4.large", begins="2016-06-11", ends="2016-07-19"),
    *(
        Case(
            "capacity",
            f"v100 {region} x{most}",
            _V100,
            "p3.2xlarge",
            "p3.2xlarge",
            region=region,
            begins="2023-03-02",
            most=most,
            hours=32.0 * most,
            probed=True,
        )
        for region in _REGIONS
        for most in (4, 12)
    ),
    Case(
        "prices only",
        "2021 us-east-1",
        _2021,
        "c4.xlarge, c4.2xlarge, m4.xlarge",
        "m4.xlarge",
        begins="2021-04-01",
    ),
    Case(
        "prices only",
        "c5a 2023",
        "aws-spot-2023-c5a/spot_prices.csv.gz",
        "c5a.2xlarge",
        "c5a.2xlarge",
        begins="2023-11-25",
    ),
    Case(
        "prices only",
        "gcp us-central1",
        "gcp-spot-2022-2026/price_changes.csv.gz",
        "n1-standard-4, n1-standard-8",
        "n1-standard-4",
        cloud="gcp",
        region="us-central1",
        begins="2025-01-01",
        ends="2025-12-01",
    ),
    Case(
        "prices only",
        "azure eastus",
        "azure-spot-2022-2024/spot_price_changes.csv.gz",
        "Standard_D4s_v5, Standard_D8s_v5, Standard_D4s_v3",
        "Standard_D4s_v5",
        cloud="azure",
        region="eastus",
        begins="2023-10-01",
    ),
)


@dataclass(frozen=True, slots=True)
class Row:
    case: Case
    rules: str
    costs: dict[str, float]
    """Mean dollars per job, by strategy."""
    hours: dict[str, float]
    starts: int
    """From which every strategy was done before the prices end: the others count for none."""
    least: float
    """The clairvoyant's, refunds included."""
    unrefunded: float
    """The same without refunds."""

    @property
    def best(self) -> str:
        """The cheapest single strategy."""
        return min((name for name in self.costs if name != DEFAULT), key=lambda name: self.costs[name])

    @property
    def over(self) -> float:
        """What the default costs above it, as a share."""
        return self.costs[DEFAULT] / self.costs[self.best] - 1


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is run."""

    starts: int
    seed: int
    only: str = ""
    """Part of an era or a name."""
    rules: str = ""
    """Empty: all."""
    deadline: float = 0.0
    """As a multiple of the time on demand; 0: none."""


def cases(data: Path, drawn: Drawn) -> Iterator[tuple[Case, str, PreparedBacktest]]:
    """Every case under every rule set that ``drawn`` asks for."""
    with tempfile.TemporaryDirectory() as folder:
        probes = Path(folder) / "probes.csv"
        write_probes(data, probes)
        for case in CASES:
            for name in RULES:
                if drawn.only in f"{case.era} {case.name}" and drawn.rules in ("", name):
                    yield case, name, _prepared(case, name, data, Path(folder), drawn)


def write_probes(data: Path, path: Path) -> None:
    """The looks of the campaign of February 2023 at single V100s, as ``--availability`` reads them."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(("timestamp_utc", "cloud", "region", "zone", "instance_type", "available"))
        for zone in grids(data):
            if zone.name.startswith(PROBES):
                m, spells = zone.market, zone.spells
                for at in np.arange(int(zone.begin), int(zone.end), 195):
                    up = bool(((spells.begins <= at) & (at < spells.ends)).any())
                    row = (
                        format_instant(Instant(int(at))),
                        m.cloud,
                        m.region,
                        m.zone,
                        m.instance_type,
                        int(up),
                    )
                    out.writerow(row)


def _prepared(
    case: Case, rules: str, data: Path, folder: Path, drawn: Drawn, objective: str = ""
) -> PreparedBacktest:
    job = folder / "bench.yaml"
    job.write_text(
        JOB.format(
            data=Path("examples/data/ratings.csv.gz").absolute(),
            reliable=case.reliable,
            cloud=case.cloud,
            region=case.region,
            zones=f"zones: [{case.zones}], " if case.zones else "",
            types=case.types,
            most=case.most,
            together=max(1, case.most // 3),
            clock=case.hours * 3600 / 200,
            folder=folder,
            objective=objective,
        ),
        encoding="utf-8",
    )
    options = BacktestOptions(
        traces=(data / case.file,) if case.file else (),
        rules=rules,
        availability=folder / "probes.csv" if case.probed else None,
        first=None if case.begins is None else parse_instant(case.begins),
        last=None if case.ends is None else parse_instant(case.ends),
        starts=drawn.starts,
        seed=drawn.seed,
    )
    prepared = prepare_backtest(load_job(job), options)
    if not drawn.deadline or objective:
        return prepared
    machines = np.array([float(case.most)])
    on_demand_s = prepared.job.work / (
        prepared.cores * prepared.setting.scaling.batch_efficiency(machines)[0]
    )
    minutes = math.ceil(drawn.deadline * on_demand_s / 60)
    return _prepared(case, rules, data, folder, drawn, f"objective: {{deadline: {minutes}m}}\n")


def _always(chances: SurvivalBatch) -> FitSurvivals:
    return lambda _: chances


def _row(case: Case, rules: str, prepared: PreparedBacktest) -> Row:
    found = {}
    for name, make in MENU.items():
        strategy, chances = make(prepared.cores, prepared.checkpoints), prepared.chances
        found[name] = backtest(
            strategy, prepared.setting, prepared.job, prepared.tape, _always(chances), prepared.starts
        ).outcomes
    finish_s = np.stack([outcomes.finish_s for outcomes in found.values()])
    common = np.isfinite(finish_s).all(axis=0)
    some = np.flatnonzero(common)[:: max(1, int(common.sum()) // ORACLE_STARTS)]
    starts, latest = prepared.starts[some], finish_s.max(axis=0)[some]
    least, unrefunded = (
        float(clairvoyant_bound(p.setting, p.job, p.tape, starts, latest, refunds=refunds).mean())
        for p, refunds in ((prepared, True), (prepared, False))
    )
    return Row(
        case,
        rules,
        {name: float(outcomes.cost[common].mean()) for name, outcomes in found.items()},
        {name: float(outcomes.finish_s[common].mean()) / 3600 for name, outcomes in found.items()},
        int(common.sum()),
        least,
        unrefunded,
    )


def _print_kept(data: Path, drawn: Drawn) -> None:
    """The default within a deadline: what it costs, and how many jobs were late."""
    began, jobs, late = time.perf_counter(), 0, 0
    print(f"{DEFAULT} within {drawn.deadline:g} times the time on demand, seed {drawn.seed}")
    print(f"{'market':24}{'rules':10}{'deadline':>10}{'jobs':>6}{'late':>6}{'mean $':>10}{'on demand $':>13}")
    for case, rules, prepared in cases(data, drawn):
        if why := why_refused(prepared):
            print(f"{case.name:24}{rules:10}refused: {why}")
            continue
        kept = run_with_deadline(prepared, (DEFAULT,), lambda *_: None)[DEFAULT]
        strategy, chances = MENU["on-demand"](prepared.cores, prepared.checkpoints), _always(prepared.chances)
        dear = backtest(strategy, prepared.setting, prepared.job, prepared.tape, chances, prepared.starts)
        jobs, late = jobs + len(kept), late + int(kept.late.sum())
        hours = (prepared.job.deadline_s or 0.0) / 3600
        print(
            f"{case.name:24}{rules:10}{hours:9.1f}h{len(kept):6}{int(kept.late.sum()):6}"
            f"{kept.cost.mean():10.3f}{dear.outcomes.cost.mean():13.3f}",
            flush=True,
        )
    print(f"{late} of {jobs} jobs late; {time.perf_counter() - began:.0f} s")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench strategies", description=__doc__)
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of an era or a name")
    parser.add_argument("--rules", default="", choices=("", *RULES))
    parser.add_argument("--deadline", type=float, default=0.0, help="in times of the work on demand")
    said = parser.parse_args(sys.argv[2:])
    data = Path(os.environ.get("SPOTCTL_DATA", "../shared/data"))
    drawn = Drawn(said.starts, said.seed, said.only, said.rules, said.deadline)
    if drawn.deadline:
        _print_kept(data, drawn)
        return
    began, found = time.perf_counter(), []
    names = list(MENU)
    print(f"mean dollars per job, {said.starts} starts each, seed {said.seed}")
    print(f"{'market':24}{'rules':10}" + "".join(f"{name[:12]:>13}" for name in names), end="")
    print(f"{'clairvoyant':>13}{'no refunds':>12}  best single, default over it")
    for case, rules, prepared in cases(data, drawn):
        row = _row(case, rules, prepared)
        found.append(row)
        print(f"{row.case.name:24}{row.rules:10}" + "".join(f"{row.costs[n]:13.3f}" for n in names), end="")
        print(
            f"{row.least:13.3f}{row.unrefunded:12.3f} {row.starts:4} {row.best} {row.over:+.1%}", flush=True
        )
    for era in dict.fromkeys(row.case.era for row in found):
        mine = [row for row in found if row.case.era == era]
        singles = [name for name in names if name != DEFAULT]
        best = min(
            singles, key=lambda name: np.mean([row.costs[name] / row.costs["on-demand"] for row in mine])
        )
        ours, theirs = (
            float(np.mean([r.costs[n] / r.costs["on-demand"] for r in mine])) for n in (DEFAULT, best)
        )
        print(
            f"{era}: {len(mine)} rows, mean cost over on-demand: {DEFAULT} {ours:.3f}, best "
            f"single on the mean ({best}) {theirs:.3f}: {ours / theirs - 1:+.1%}; "
            f"worst row {max(r.over for r in mine):+.1%}; "
            f"mean over each row's best {np.mean([r.over for r in mine]):+.1%}"
        )
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
