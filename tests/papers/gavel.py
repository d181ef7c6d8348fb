"""Gavel's simulations with the published throughputs: ``python -m tests.papers gavel``.

A cluster of as many V100s, P100s and K80s, and the dissertation's workload (``_sharing``). Every policy that
knows types beside its agnostic twin and the dissertation's other baselines, in the same traces. By default a
third of its cluster at a third of its arrival rates and 300 jobs, of which the third quarter is measured: too
few for queues to grow as long as there. ``--full`` is its size: 36 workers of each type, 6000 jobs, those
from 4000 to 5000 measured, and an arrival rate more.

Shares that a max-min policy leaves over are given out (``Filled``) for both twins. Prices are those of the
reference cases; costs of the other experiments are not shown, as every policy keeps all workers busy.

Source: Narayanan 5.7.3 and 5.7.5.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bidbrain.clustersim import Finished, Setting, Trace, completion_s, fairness, late, simulate
from bidbrain.policies.base import Filled, Policy
from bidbrain.policies.baselines import Agnostic, AlloX, Packing
from bidbrain.policies.cost import MaxThroughput, PerDollar, Total
from bidbrain.policies.fairness import FinishTimeFairness, LeastAttainedService, Makespan
from bidbrain.policies.order import Fifo
from pricing_data.units import HOUR_S
from tests.papers._curves import picture
from tests.papers._sharing import V100, Table, drawn, priced, table

LAS: Final = Filled(LeastAttainedService())
FAIR: Final = Filled(FinishTimeFairness())
SEEDS: Final = (0, 1, 2)
COST_RATE: Final = 0.4
"""Jobs per hour for 36 workers of each type, like all rates here; the dissertation's high loads are 5.6 with
single workers and 2.6 with multiple."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of the dissertation's experiment: workers of each type, jobs, which of them are measured."""

    workers: int
    jobs: int
    measured: slice
    static: int
    priced: int
    single_rates: tuple[float, ...]
    multiple_rates: tuple[float, ...]

    def rate(self, for_36: float) -> float:
        """The arrival rate that loads this cluster as much."""
        return for_36 * self.workers / 36


SHORT: Final = Size(12, 300, slice(150, 225), 60, 80, (3.2, 5.6), (1.4, 2.6))
FULL: Final = Size(36, 6000, slice(4000, 5000), 1000, 500, (3.2, 4.4, 5.6), (1.4, 2.0, 2.6))


@dataclass(frozen=True, slots=True)
class Entry:
    """One policy in a contest. ``pairs``: it sees space sharing."""

    policy: Callable[[int], Policy]
    pairs: bool = False
    ideal: bool = False


@dataclass(frozen=True, slots=True)
class Measures:
    """Of the measured jobs: mean hours to complete, mean rho; of all: hours, dollars, share of late jobs."""

    jct_h: float
    rho: float
    makespan_h: float
    dollars: float
    late: float

    @classmethod
    def of(cls, trace: Trace, done: Finished, measured: slice) -> Measures:
        return cls(
            float(completion_s(trace, done)[measured].mean() / HOUR_S),
            float(fairness(trace, done)[measured].mean()),
            float(np.max(done.end_s) / HOUR_S),
            done.dollars,
            float(late(trace, done).mean()),
        )


def always(policy: Policy, *, pairs: bool = False, ideal: bool = False) -> Entry:
    """A policy that draws nothing."""
    return Entry(lambda _: policy, pairs, ideal)


GANDIVA: Final = Entry(lambda seed: Packing(np.random.default_rng(seed)), pairs=True)
BY_LAS: Final[Mapping[str, Entry]] = {
    "agnostic": always(Agnostic(LAS, V100)),
    "gandiva": GANDIVA,
    "types": always(LAS),
    "types, sharing": always(LAS, pairs=True),
    "types, ideal": always(LAS, ideal=True),
}
BY_FIFO: Final[Mapping[str, Entry]] = {
    "agnostic": always(Agnostic(Fifo(), V100)),
    "types": always(Fifo()),
    "types, sharing": always(Fifo(), pairs=True),
}
BY_FAIRNESS: Final[Mapping[str, Entry]] = {
    "agnostic": always(Agnostic(FAIR, V100)),
    "types": always(FAIR),
}
BY_MAKESPAN: Final[Mapping[str, Entry]] = {
    "fifo, agnostic": always(Agnostic(Fifo(), V100)),
    "gandiva": GANDIVA,
    "types": always(Makespan()),
    "types, sharing": always(Makespan(), pairs=True),
}
BY_COST: Final[Mapping[str, Entry]] = {
    "most throughput": always(MaxThroughput()),
    "per dollar": always(PerDollar(slos=False)),
    "per dollar, SLOs": always(PerDollar()),
    "total cost, SLOs": always(Total()),
}

Found = dict[str, list[Measures]]


def contest(
    found: Table, size: Size, entries: Mapping[str, Entry], traces: Sequence[Trace], measured: slice
) -> Found:
    """Every policy on every trace; the seed of what it draws is the trace's place."""
    settings: dict[bool, Setting] = {
        pairs: found.setting(size.workers, pairs=pairs) for pairs in (False, True)
    }
    results: Found = {name: [] for name in entries}
    for seed, trace in enumerate(traces):
        for name, entry in entries.items():
            done = simulate(trace, settings[entry.pairs], entry.policy(seed), ideal=entry.ideal)
            results[name].append(Measures.of(trace, done, measured))
    return results


def show(title: str, results: Found, measures: Sequence[str], paper: str) -> None:
    """Means and standard deviations over the traces, and each policy as a factor of the first."""
    print(f"\n{title}\n  dissertation: {paper}")
    print(f"  {'':22}" + "".join(f"{measure:>16}{'factor':>8}" for measure in measures))
    base = next(iter(results.values()))
    for name, every in results.items():
        cells = ""
        for measure in measures:
            values = np.array([getattr(one, measure) for one in every])
            reference = np.mean([getattr(one, measure) for one in base])
            factor = f"{reference / values.mean():8.2f}" if values.mean() > 0 else f"{'':8}"
            cells += f"{values.mean():10.2f} ±{values.std():4.1f}{factor}"
        print(f"  {name:22}{cells}", flush=True)


def over_rates(found: Table, size: Size, *, multiple: bool, plot: Path | None) -> None:
    """Least attained service on continuous traces, over arrival rates."""
    rates = size.multiple_rates if multiple else size.single_rates
    entries = dict(BY_LAS) if multiple else {**BY_LAS, "allox": always(AlloX())}
    kind, factor = ("multiple", 2.2) if multiple else ("single", 3.5)
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in entries}
    for rate in rates:
        traces = [drawn(found, size.jobs, size.rate(rate), seed, multiple=multiple) for seed in SEEDS]
        results = contest(found, size, entries, traces, size.measured)
        title = f"least attained service, continuous-{kind}, {rate} jobs/h for 36 workers of each type"
        told = f"types {factor}x in JCT, at the highest rate; rounds as ideal (Fig. 5.15)"
        show(title, results, ("jct_h", "rho"), told)
        for name, every in results.items():
            curves[name].append((rate, float(np.mean([one.jct_h for one in every]))))
    if plot:
        content = picture(f"continuous-{kind}", "jobs per hour", "average JCT, h", curves)
        (plot / f"las-{kind}.png").write_bytes(content)


def at_one_rate(found: Table, size: Size) -> None:
    """The other objectives."""
    money = [priced(found, size.priced, size.rate(COST_RATE), seed) for seed in SEEDS]
    results = contest(found, size, BY_COST, money, slice(None))
    show("cost", results, ("dollars", "late"), "1.4x and 35 % late; with SLOs 1.2x and none late")
    static = [drawn(found, size.static, 0, seed, multiple=True) for seed in SEEDS]
    results = contest(found, size, BY_MAKESPAN, static, slice(None))
    show("makespan, static-multiple", results, ("makespan_h",), "2.5x over FIFO, 1.4x over Gandiva's")
    traces = [drawn(found, size.jobs, size.rate(2.6), seed, multiple=True) for seed in SEEDS]
    results = contest(found, size, BY_FAIRNESS, traces, size.measured)
    show("finish-time fairness, continuous-multiple, 2.6 jobs/h", results, ("jct_h", "rho"), "3x, 2.8x")
    results = contest(found, size, BY_FIFO, traces, size.measured)
    show("FIFO, continuous-multiple, 2.6 jobs/h", results, ("jct_h",), "2.7x, with sharing 3.8x")


def main() -> None:
    """Print a table per experiment; ``--plot FOLDER`` draws JCT over arrival rates."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers gavel")
    parser.add_argument("name", choices=["gavel"])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("SPOTCTL_DATA", "../shared/data")))
    parser.add_argument("--full", action="store_true", help="the dissertation's size: hours")
    parser.add_argument("--plot", type=Path, help="a folder for pictures; needs Pillow")
    asked = parser.parse_args()
    size, found = FULL if asked.full else SHORT, table(asked.data)
    print(f"seeds {SEEDS}; {size.workers} workers of each type, {size.jobs} jobs, {size.measured} measured")
    at_one_rate(found, size)
    for multiple in (True, False):
        over_rates(found, size, multiple=multiple, plot=asked.plot)
