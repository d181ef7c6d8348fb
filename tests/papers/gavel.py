"""Gavel's simulations with the published throughputs: ``python -m tests.papers gavel``.

A cluster of as many V100s, P100s and K80s, and the dissertation's workload (``_sharing``). Every policy that
knows types beside its agnostic twin and the dissertation's other baselines, in the same traces. By default
one seed on a third of its cluster at a third of its arrival rates, of which jobs 450 to 675 are measured.
``--full`` is its size: 36 workers of each type, jobs 4000 to 5000 measured, three seeds and an arrival rate
more. ``--only NAME`` runs a part, ``--seeds N`` and ``--processes N`` say how many.

The factor of least attained service hangs on where the measured jobs are: above the rate at which the
agnostic twin is full its queue grows for weeks; before that it shows little more than what rates are worth.
A simulation ends with its last measured job, and jobs keep coming until then, as in the published code: the
longest of them take months under the agnostic twin, and an empty queue would help it alone. Shares that a
max-min policy leaves over are given out (``FillUnused``) for both twins. Prices are those of the reference
cases; costs of the other experiments are not shown, as every policy keeps all workers busy.

Source: Narayanan 5.7.3 and 5.7.5.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from bidbrain.cluster.policies.base import FillUnused, Policy
from bidbrain.cluster.policies.baselines import Agnostic, AlloX, Packing
from bidbrain.cluster.policies.cost import MaxThroughput, PerDollar, Total
from bidbrain.cluster.policies.fairness import FinishTimeFairness, LeastAttainedService, Makespan
from bidbrain.cluster.policies.ordered import Fifo
from bidbrain.cluster.simulator import (
    SimulationResult,
    Trace,
    completion_s,
    finish_time_fairness,
    late_jobs,
    simulate_cluster,
)
from pricing_data.model.units import HOUR_S
from tests.papers.protocols.curves import picture
from tests.papers.protocols.saturation import saturation
from tests.papers.protocols.sharing import V100, Table, draw_jobs, draw_priced_jobs, table

LAS: Final = FillUnused(LeastAttainedService())
FAIR: Final = FillUnused(FinishTimeFairness())
COST_RATE: Final = 0.4
"""Jobs per hour for 36 workers of each type, like all rates here; the dissertation's high loads are 5.6 with
single workers and 2.6 with multiple."""


@dataclass(frozen=True, slots=True)
class Size:
    """Sets how much of the dissertation's experiment runs: workers of each type, jobs, which are measured.

    ``jobs``: so many that some still come when the last measured one ends.
    """

    workers: int
    jobs: int
    measured: slice
    static: int
    priced: int
    single_rates: tuple[float, ...]
    multiple_rates: tuple[float, ...]
    between: tuple[float, ...] = ()
    """Rates at which only ``TWINS`` are compared: where the agnostic one falls behind."""

    def rate(self, for_36: float) -> float:
        """The arrival rate that loads this cluster as much."""
        return for_36 * self.workers / 36


SHORT: Final = Size(12, 6000, slice(450, 675), 60, 80, (3.2, 5.6), (1.4, 2.6))
FULL: Final = Size(36, 20000, slice(4000, 5000), 1000, 500, (3.2, 4.4, 5.6), (1.4, 2.0, 2.6), (4.8, 5.2))
TWINS: Final = ("agnostic", "types")


@dataclass(frozen=True, slots=True)
class Entry:
    """One policy in a contest. ``pairs``: it sees space sharing. ``promises``: it is told of deadlines."""

    policy: Callable[[int], Policy]
    pairs: bool = False
    ideal: bool = False
    promises: bool = True


@dataclass(frozen=True, slots=True)
class Measures:
    """Holds, for the measured jobs, mean hours to complete and mean rho; for all: hours, dollars, share of
    late jobs, and how many were late whose deadlines had been promised.
    """

    jct_h: float
    rho: float
    makespan_h: float
    dollars: float
    late: float
    broken: float
    fed: bool
    """Whether jobs kept coming until the last measured one had ended, where only some are measured."""

    @classmethod
    def from_result(cls, trace: Trace, done: SimulationResult, measured: slice) -> Measures:
        return cls(
            float(completion_s(trace, done)[measured].mean() / HOUR_S),
            float(finish_time_fairness(trace, done)[measured].mean()),
            float(np.nanmax(done.end_s) / HOUR_S),
            done.dollars,
            float(late_jobs(trace, done).mean()),
            float((late_jobs(trace, done) & done.promised).sum()),
            measured.stop is None or float(done.end_s[measured].max()) <= float(trace.arrival_s[-1]),
        )


def fixed_policy(policy: Policy, *, pairs: bool = False, ideal: bool = False, promises: bool = True) -> Entry:
    """A policy that draws nothing."""
    return Entry(lambda _: policy, pairs, ideal, promises)


GANDIVA: Final = Entry(lambda seed: Packing(np.random.default_rng(seed)), pairs=True)
BY_LAS: Final[Mapping[str, Entry]] = {
    "agnostic": fixed_policy(Agnostic(LAS, V100)),
    "gandiva": GANDIVA,
    "types": fixed_policy(LAS),
    "types, sharing": fixed_policy(LAS, pairs=True),
    "types, ideal": fixed_policy(LAS, ideal=True),
}
BY_FIFO: Final[Mapping[str, Entry]] = {
    "agnostic": fixed_policy(Agnostic(Fifo(), V100)),
    "types": fixed_policy(Fifo()),
    "types, sharing": fixed_policy(Fifo(), pairs=True),
}
BY_FAIRNESS: Final[Mapping[str, Entry]] = {
    "agnostic": fixed_policy(Agnostic(FAIR, V100)),
    "types": fixed_policy(FAIR),
}
BY_MAKESPAN: Final[Mapping[str, Entry]] = {
    "fifo, agnostic": fixed_policy(Agnostic(Fifo(), V100)),
    "gandiva": GANDIVA,
    "types": fixed_policy(FillUnused(Makespan())),
    "types, sharing": fixed_policy(FillUnused(Makespan()), pairs=True),
}
BY_COST: Final[Mapping[str, Entry]] = {
    "most throughput": fixed_policy(MaxThroughput(), promises=False),
    "per dollar": fixed_policy(PerDollar(), promises=False),
    "per dollar, SLOs": fixed_policy(PerDollar()),
    "total cost, SLOs": fixed_policy(Total()),
}


@dataclass(frozen=True, slots=True)
class Continuous:
    """Compares policies while jobs keep coming, over arrival rates. ``told``: what the dissertation found."""

    objective: str
    entries: Mapping[str, Entry]
    told: str
    multiple: bool = True
    rho: bool = True
    """Whether finish-time fairness is shown beside JCT."""


CONTINUOUS: Final[Mapping[str, Continuous]] = {
    "fairness": Continuous("finish-time fairness", BY_FAIRNESS, "types 3x in JCT, 2.8x in rho"),
    "fifo": Continuous("FIFO", BY_FIFO, "types 2.7x, with sharing 3.8x", rho=False),
    "multiple": Continuous(
        "least attained service", BY_LAS, "rounds as ideal (Fig. 5.15); types 2.2x in JCT"
    ),
    "single": Continuous(
        "least attained service",
        {**BY_LAS, "allox": fixed_policy(AlloX())},
        "rounds as ideal (Fig. 5.15); types 3.5x in JCT",
        multiple=False,
    ),
}
BY_NAME: Final[Mapping[str, Mapping[str, Entry]]] = {
    "cost": BY_COST,
    "makespan": BY_MAKESPAN,
    **{name: contest.entries for name, contest in CONTINUOUS.items()},
}
"""What ``--only`` may name, in the order in which they run."""

Found = dict[str, list[Measures]]


@dataclass(frozen=True, slots=True)
class Experiment:
    """Where the data are, how large, which seeds, and who computes."""

    data: Path
    size: Size
    seeds: range
    pool: ProcessPoolExecutor

    def contest(
        self, name: str, measured: slice, draw: Callable[[Table, int], Trace], *, twins: bool = False
    ) -> Found:
        """Every policy of ``BY_NAME[name]`` on the trace of every seed, or the ``twins`` only."""
        found = table(self.data)
        runs = {
            entry: [
                self.pool.submit(
                    _measured, self.data, name, entry, self.size.workers, draw(found, seed), measured, seed
                )
                for seed in self.seeds
            ]
            for entry in (TWINS if twins else BY_NAME[name])
        }
        return {entry: [run.result() for run in every] for entry, every in runs.items()}


_table = cache(table)


def _measured(
    data: Path, name: str, entry: str, workers: int, trace: Trace, measured: slice, seed: int
) -> Measures:
    """One simulation, in a process of its own."""
    chosen = BY_NAME[name][entry]
    setting = _table(data).setting(workers, pairs=chosen.pairs)
    done = simulate_cluster(
        trace,
        setting,
        chosen.policy(seed),
        ideal=chosen.ideal,
        promises=chosen.promises,
        until=measured,
    )
    return Measures.from_result(trace, done, measured)


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
        fed = "" if all(one.fed for one in every) else "  jobs stopped coming before the measured ones ended"
        print(f"  {name:22}{cells}{fed}", flush=True)


def over_rates(run: Experiment, name: str, plot: Path | None) -> None:
    """Continuous traces of rising arrival rates."""
    size, contest = run.size, CONTINUOUS[name]
    rates = size.multiple_rates if contest.multiple else size.single_rates
    kind = "multiple" if contest.multiple else "single"
    blind, knowing = saturation(table(run.data), 36, multiple=contest.multiple)
    print(
        f"\n36 workers of each type are full at {blind:.2f} jobs/h, and at {knowing:.2f} for who knows types"
    )
    measures = {"jct_h": "average JCT, h", **({"rho": "average rho"} if contest.rho else {})}
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {
        measure: {entry: [] for entry in contest.entries} for measure in measures
    }
    between = () if contest.multiple else size.between
    for rate in sorted({*rates, *between}):

        def draw(found: Table, seed: int, per_hour: float = size.rate(rate)) -> Trace:
            return draw_jobs(found, size.jobs, per_hour, seed, multiple=contest.multiple)

        results = run.contest(name, size.measured, draw, twins=rate in between)
        title = f"{contest.objective}, continuous-{kind}, {rate} jobs/h for 36 workers of each type"
        show(
            title,
            results,
            tuple(measures),
            f"{contest.told}, at the highest rate",
        )
        for measure, drawing in curves.items():
            for entry, every in results.items():
                drawing[entry].append((rate, float(np.mean([getattr(one, measure) for one in every]))))
    if plot is None:
        return
    for measure, drawing in curves.items():
        content = picture(f"{contest.objective}, {kind}", "jobs per hour", measures[measure], drawing)
        (plot / f"{name}-{measure.removesuffix('_h')}.png").write_bytes(content)


def at_once(run: Experiment, name: str) -> None:
    """The objectives of a set of jobs: cost, and makespan."""
    size = run.size
    if name == "cost":
        results = run.contest(
            name,
            slice(None),
            lambda found, seed: draw_priced_jobs(found, size.priced, size.rate(COST_RATE), seed),
        )
        told = "1.4x and 35 % late; with SLOs 1.2x and none late"
        show("cost", results, ("dollars", "late", "broken"), told)
    else:
        results = run.contest(
            name, slice(None), lambda found, seed: draw_jobs(found, size.static, 0, seed, multiple=True)
        )
        show("makespan, static-multiple", results, ("makespan_h",), "2.5x over FIFO, 1.4x over Gandiva's")


def main() -> None:
    """Print a table per experiment; ``--plot FOLDER`` draws JCT over arrival rates."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers gavel")
    parser.add_argument("name", choices=["gavel"])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("SPOTCTL_DATA", "../shared/data")))
    parser.add_argument("--full", action="store_true", help="the dissertation's size")
    parser.add_argument("--only", choices=list(BY_NAME), action="append", help="a part; may be repeated")
    parser.add_argument("--seeds", type=int, help="how many traces: 1, or 3 with --full")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--plot", type=Path, help="a folder for pictures; needs Pillow")
    asked = parser.parse_args()
    size, seeds = FULL if asked.full else SHORT, range(asked.seeds or (3 if asked.full else 1))
    told = f"jobs from {size.measured.start} to {size.measured.stop} measured"
    print(f"seeds {list(seeds)}; {size.workers} workers of each type, {told}", flush=True)
    if asked.plot:
        asked.plot.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(asked.processes) as pool:
        run = Experiment(asked.data, size, seeds, pool)
        for name in asked.only or BY_NAME:
            began = time.monotonic()
            if name in CONTINUOUS:
                over_rates(run, name, asked.plot)
            else:
                at_once(run, name)
            print(f"  {name}: {time.monotonic() - began:.0f} s", flush=True)
