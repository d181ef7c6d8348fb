"""How long policies take for many jobs, beside a straightforward cvxpy program of the same problem.

Jobs as for the dissertation (``tests.papers._sharing``: single and multiple workers), each with steps, an age
and a deadline of its own, on as many workers as jobs; published throughputs. Milliseconds of processor time,
building included, medians of interleaved repeats. Needs ``SPOTCTL_DATA`` or ../shared/data. Nothing is kept
from one answer to the next, so an arrival takes as long.

Aims at 2048 jobs: least attained service 10 ms, cost with deadlines 50 ms, finish-time fairness 100 ms, water
filling and hierarchies 500 ms.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import cvxpy
import numpy as np

from bidbrain.policies.base import Policy
from bidbrain.policies.cost import MakespanWithin, MaxThroughput, PerDollar, PerJob, Total, deadline_speed
from bidbrain.policies.fairness import FinishTimeFairness, LeastAttainedService, Makespan, fair_part
from bidbrain.policies.order import Fifo, ShortestJobFirst
from bidbrain.policies.problem import Cluster, Jobs, Kinds, ShareProblem
from bidbrain.policies.water_filling import Hierarchical, Inside, WaterFilling
from tests.papers._sharing import PRICES, TYPES, V100, Table, drawn, table

modelling: Any = cvxpy
"""Its public names have no types."""
SEED: Final = 0
SIZES: Final = (32, 256, 2048, 8192)
SHARED_SIZES: Final = (32, 256, 1024)
REPEATS: Final = 5
_AT_LENGTH: Final = 2048
"""From this size on three repeats have to do."""
POLICIES: Final[dict[str, Policy]] = {
    "least attained service": LeastAttainedService(),
    "makespan": Makespan(),
    "finish-time fairness": FinishTimeFairness(),
    "throughput": MaxThroughput(),
    "FIFO": Fifo(),
    "shortest first": ShortestJobFirst(),
    "cost with deadlines": PerDollar(),
    "total cost with deadlines": Total(),
    "cost per job": PerJob(),
    "makespan in a budget": MakespanWithin(1e9),
    "water filling": WaterFilling(),
    "entities": Hierarchical(),
    "entities, FIFO": Hierarchical(Inside.FIFO),
}
SHARED: Final = ("least attained service", "throughput", "water filling")
UNMERGED: Final = ("makespan", "FIFO")
"""With space sharing these have a variable for each pair of jobs: not timed above ``_UNMERGED_MOST``."""
_UNMERGED_MOST: Final = 256


def problem(found: Table, count: int, *, pairs: bool = False) -> ShareProblem:
    """``count`` jobs in the middle of their work, of six entities."""
    trace, chance = drawn(found, count, 0, SEED, multiple=True), np.random.default_rng(SEED)
    lasts = trace.steps / found.kinds.rates[trace.kind, V100]
    workers = np.full(len(TYPES), float(max(round(count / len(TYPES)), 8)))
    kinds = found.kinds if pairs else Kinds(found.kinds.rates, found.kinds.scale)
    jobs = Jobs.of(
        trace.kind,
        steps=trace.steps * chance.uniform(0.1, 1, count),
        age_s=lasts * chance.uniform(0, 1, count),
        isolated_s=lasts * 0.5,
        slo_s=lasts * chance.choice([4.8, 8.0, 40.0], count),
        entity=chance.integers(0, 6, count),
    )
    return ShareProblem(Cluster(TYPES, workers, PRICES), kinds, jobs, np.array([1.0, 2, 3, 1, 2, 3]))


def written_out(name: str, seen: ShareProblem) -> float | None:
    """The optimum by cvxpy, a variable for each job and type; None where nothing is compared."""
    rates = np.where(seen.allowed[seen.jobs.kind], seen.rates, 0.0)
    share = modelling.Variable(rates.shape, nonneg=True)
    got: Any = modelling.sum(modelling.multiply(rates, share), axis=1)
    limits: list[Any] = [modelling.sum(share, axis=1) <= 1, seen.scale @ share <= seen.cluster.workers]
    jobs = seen.jobs
    if name == "least attained service":
        goal = modelling.Maximize(modelling.min(modelling.multiply(1 / fair_part(seen), got)))
    elif name == "makespan":
        goal = modelling.Maximize(modelling.min(modelling.multiply(1 / jobs.steps, got)))
    elif name == "finish-time fairness":
        alone = jobs.isolated_s + jobs.steps / seen.isolated()
        rho = modelling.multiply(
            1 / alone, jobs.age_s + modelling.multiply(jobs.steps, modelling.inv_pos(got))
        )
        goal = modelling.Minimize(modelling.max(rho))
    elif name == "cost with deadlines":
        worth = rates / (seen.scale[:, None] * seen.cluster.cost)
        goal, limits = (
            modelling.Maximize(modelling.sum(modelling.multiply(worth, share))),
            [*limits, got >= deadline_speed(seen)],
        )
    else:
        return None
    program = modelling.Problem(goal, limits)
    program.solve()
    value = float(program.value)
    return 1 / value if name == "makespan" else value


def _taken_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return 1e3 * (time.process_time() - began)


def measure(name: str, seen: ShareProblem, *, compared: bool) -> str:
    """One line: ours, cvxpy's where it has one, and the ratio; the two agree first."""
    ours, theirs = [], []
    policy = POLICIES[name]
    answer = policy.share(seen)
    reference = written_out(name, seen) if compared else None
    if reference is not None and not answer.short:
        assert np.isclose(answer.value, reference, rtol=2e-3), (name, answer.value, reference)
    for _ in range(REPEATS if len(seen.jobs.kind) < _AT_LENGTH else 3):
        ours.append(_taken_ms(partial(policy.share, seen)))
        if reference is not None:
            theirs.append(_taken_ms(partial(written_out, name, seen)))
    mine = statistics.median(ours)
    line = f"{name:28}{len(seen.jobs.kind):6} jobs {mine:9.1f} ms"
    if theirs:
        line += f"   cvxpy {statistics.median(theirs):9.1f} ms   {statistics.median(theirs) / mine:7.1f} x"
    return line


def main() -> None:
    """Every policy at every size, or at those given: ``python -m tests.bench policies 2048``."""
    root = Path(__file__).resolve().parents[2]
    found = table(Path(os.environ.get("SPOTCTL_DATA") or root.parent / "shared" / "data"))
    asked = [int(size) for size in sys.argv[2:]]
    print(f"seed {SEED}; milliseconds of processor time, medians of interleaved repeats")
    for count in asked or SIZES:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seen = problem(found, count)
        for name in POLICIES:
            print(measure(name, seen, compared=False), flush=True)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"{count} jobs: {grown / 1024:.0f} MiB more at most than before", flush=True)
    for count in asked or SIZES:
        for name in POLICIES:
            if written_out(name, problem(found, 32)) is not None:
                print(measure(name, problem(found, count), compared=True), flush=True)
    for count in asked or SHARED_SIZES:
        seen = problem(found, count, pairs=True)
        for name in (*SHARED, *(UNMERGED if count <= _UNMERGED_MOST else ())):
            print("sharing: " + measure(name, seen, compared=False), flush=True)
