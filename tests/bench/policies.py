"""How long policies take for many jobs, beside a straightforward cvxpy program of the same problem.

Jobs as for the dissertation (``tests.papers.protocols.sharing``: single and multiple workers), each with
steps, an age and a deadline of its own, on as many workers as jobs; published throughputs. Milliseconds of
processor time, building included, medians of interleaved repeats: for the problem, with one job more, and
with one less. Answers keep nothing, so these two are solved from cold too. A size is left out for cvxpy where
the one before took more than ``_PATIENCE_MS``. Needs ``SPOTCTL_DATA`` or ../shared/data.

Aims at 2048 jobs: least attained service 10 ms, cost with deadlines 50 ms, finish-time fairness 100 ms, water
filling and hierarchies 500 ms; a quarter of it after an arrival or an end.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import cvxpy
import numpy as np

from bidbrain.cluster.policies.base import Policy
from bidbrain.cluster.policies.cost import (
    MakespanWithin,
    MaxThroughput,
    PerDollar,
    PerJob,
    Total,
    deadline_speed,
)
from bidbrain.cluster.policies.fairness import FinishTimeFairness, LeastAttainedService, Makespan, fair_part
from bidbrain.cluster.policies.ordered import Fifo, ShortestJobFirst, fastest_throughput
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, Jobs, ShareProblem
from bidbrain.cluster.policies.water_filling import Hierarchical, Inside, WaterFilling
from pricing_data.model.units import HOUR_S
from tests.papers.protocols.sharing import PRICES, TYPES, V100, Table, draw_jobs, table

modelling: Any = cvxpy
"""Its public names have no types."""
SEED: Final = 0
BUDGET: Final = 1e9
"""Dollars: enough."""
SIZES: Final = (32, 128, 512, 2048, 8192)
SHARED_MOST: Final = 1024
"""The most jobs that are timed with space sharing."""
REPEATS: Final = 3
_LONG_MS: Final = 1000.0
"""Who takes longer for one round of all that is timed is timed once."""
_PATIENCE_MS: Final = 5000.0
AIMS_MS: Final = {
    "least attained service": 10.0,
    "cost with deadlines": 50.0,
    "finish-time fairness": 100.0,
    "water filling": 500.0,
    "entities": 500.0,
    "entities, FIFO": 500.0,
}
"""At ``AIMED`` jobs."""
AIMED: Final = 2048
POLICIES: Final[dict[str, Policy]] = {
    "least attained service": LeastAttainedService(),
    "makespan": Makespan(),
    "finish-time fairness": FinishTimeFairness(),
    "throughput": MaxThroughput(),
    "FIFO": Fifo(),
    "shortest first": ShortestJobFirst(),
    "cost with deadlines": PerDollar(),
    "total cost with deadlines": Total(least_share=0.0),
    "cost per job": PerJob(),
    "makespan in a budget": MakespanWithin(BUDGET),
    "water filling": WaterFilling(),
    "entities": Hierarchical(),
    "entities, FIFO": Hierarchical(Inside.FIFO),
}
SHARED: Final = (
    "least attained service",
    "makespan",
    "finish-time fairness",
    "throughput",
    "FIFO",
    "cost with deadlines",
    "water filling",
)


def problem(found: Table, count: int, *, pairs: bool = False) -> ShareProblem:
    """``count`` jobs in the middle of their work, of six entities."""
    trace, chance = draw_jobs(found, count, 0, SEED, multiple=True), np.random.default_rng(SEED)
    lasts = trace.steps / found.kinds.rates[trace.kind, V100]
    workers = np.full(len(TYPES), float(max(round(count / len(TYPES)), 8)))
    kinds = found.kinds if pairs else JobKinds(found.kinds.rates, found.kinds.scale)
    jobs = Jobs.from_kinds(
        trace.kind,
        steps=trace.steps * chance.uniform(0.1, 1, count),
        age_s=lasts * chance.uniform(0, 1, count),
        isolated_s=lasts * 0.5,
        slo_s=lasts * chance.choice([4.8, 8.0, 40.0], count),
        entity=chance.integers(0, 6, count),
    )
    return ShareProblem(ClusterCapacity(TYPES, workers, PRICES), kinds, jobs, np.array([1.0, 2, 3, 1, 2, 3]))


def with_one_more(seen: ShareProblem) -> ShareProblem:
    """As ``seen`` after an arrival: one like the first, with all its work to do."""
    return _some(seen, np.append(np.arange(len(seen.jobs.kind)), 0))


def with_one_less(seen: ShareProblem) -> ShareProblem:
    """As ``seen`` after an end: that of the job in the middle."""
    count = len(seen.jobs.kind)
    return _some(seen, np.delete(np.arange(count), count // 2))


def _some(seen: ShareProblem, which: np.ndarray) -> ShareProblem:
    jobs = seen.jobs
    some = Jobs(
        tuple(f"job{number}" for number in range(len(which))),
        jobs.kind[which],
        jobs.weight[which],
        jobs.steps[which],
        jobs.age_s[which],
        jobs.isolated_s[which],
        jobs.slo_s[which],
        jobs.entity[which],
    )
    return replace(seen, jobs=some)


def written_out(name: str, seen: ShareProblem) -> float | None:
    """The optimum by cvxpy, a variable for each job and type; None where it has no such program."""
    rates = np.where(seen.allowed_types[seen.jobs.kind], seen.rates, 0.0)
    share = modelling.Variable(rates.shape, nonneg=True)
    got: Any = modelling.sum(modelling.multiply(rates, share), axis=1)
    size: Any = modelling.Variable(nonneg=True) if name == "total cost with deadlines" else 1.0
    cost: Any = (seen.scale @ share) @ seen.cluster.cost
    limits: list[Any] = [
        modelling.sum(share, axis=1) <= size,
        seen.scale @ share <= seen.cluster.workers * size,
    ]
    jobs = seen.jobs
    if name == "least attained service":
        goal = modelling.Maximize(modelling.min(modelling.multiply(1 / fair_part(seen), got)))
    elif name in ("makespan", "makespan in a budget"):
        part = modelling.min(modelling.multiply(1 / jobs.steps, got))
        goal = modelling.Maximize(part)
        if name == "makespan in a budget":
            limits.append(cost / (BUDGET * HOUR_S) <= part)
    elif name == "finish-time fairness":
        alone = jobs.isolated_s + jobs.steps / seen.isolated_throughput()
        rho = modelling.multiply(
            1 / alone, jobs.age_s + modelling.multiply(jobs.steps, modelling.inv_pos(got))
        )
        goal = modelling.Minimize(modelling.max(rho))
    elif name == "throughput":
        goal = modelling.Maximize(modelling.sum(got))
    elif name == "FIFO":
        rank = len(jobs.kind) - np.arange(len(jobs.kind))
        goal = modelling.Maximize(rank / fastest_throughput(seen) @ got)
    elif name == "cost with deadlines":
        worth = rates / (seen.scale[:, None] * seen.cluster.cost)
        goal = modelling.Maximize(modelling.sum(modelling.multiply(worth, share)))
        limits.append(got >= deadline_speed(seen))
    elif name == "total cost with deadlines":
        goal = modelling.Maximize((1 / jobs.steps) @ got)
        limits += [got >= deadline_speed(seen) * size, cost == 1]
    else:
        return None
    program = modelling.Problem(goal, limits)
    program.solve()
    value = float(program.value)
    return 1 / value if name.startswith("makespan") else value


def _taken_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return 1e3 * (time.process_time() - began)


def measure(name: str, seen: ShareProblem, *, compared: bool) -> tuple[str, float]:
    """One line: ours, after an arrival, after an end, cvxpy's where it has one; and what that took."""
    policy, theirs_ms = POLICIES[name], 0.0
    answer = policy.compute_shares(seen)
    work: list[Callable[[], object]] = [
        partial(policy.compute_shares, each) for each in (seen, with_one_more(seen), with_one_less(seen))
    ]
    reference = written_out(name, seen) if compared else None
    if reference is not None:
        if not answer.short:
            assert np.isclose(answer.value, reference, rtol=2e-3), (name, answer.value, reference)
        work.append(partial(written_out, name, seen))
    taken = [[_taken_ms(one) for one in work]]
    while len(taken) < REPEATS and sum(taken[0]) < _LONG_MS:
        taken.append([_taken_ms(one) for one in work])
    medians = [statistics.median(column) for column in zip(*taken, strict=True)]
    line = f"{name:27}" + "".join(f"{ms:10.1f}" for ms in medians[:3])
    if reference is not None:
        theirs_ms = medians[3]
        line += f"{theirs_ms:12.1f}{theirs_ms / medians[0]:9.0f} x"
    if name in AIMS_MS and len(seen.jobs.kind) == AIMED and seen.kinds.together is None:
        line += f"   aims {AIMS_MS[name]:g} and {AIMS_MS[name] / 4:g}"
    return line, theirs_ms


def _grown_mib(since_kib: int) -> float:
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - since_kib) / 1024


def main() -> None:
    """Every policy at every size, or at those given: ``python -m tests.bench policies 2048``."""
    root = Path(__file__).resolve().parents[2]
    found = table(Path(os.environ.get("SPOTCTL_DATA") or root.parent / "shared" / "data"))
    sizes = [int(size) for size in sys.argv[2:]] or SIZES
    print(f"seed {SEED}; milliseconds of processor time, medians of {REPEATS} interleaved repeats")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for pairs, counts in ((False, sizes), (True, sorted({min(size, SHARED_MOST) for size in sizes}))):
        for count in counts:
            seen = problem(found, count, pairs=pairs)
            told = ", space sharing" if pairs else ""
            print(f"\n{count} jobs{told:20}{'ms':>8}{'arrival':>10}{'end':>10}")
            for name in SHARED if pairs else POLICIES:
                print(measure(name, seen, compared=False)[0], flush=True)
            print(f"at most {_grown_mib(before):.0f} MiB more than before the first answer", flush=True)
    compared = [name for name in POLICIES if written_out(name, problem(found, 32)) is not None]
    print(f"\nnot in cvxpy: {', '.join(name for name in POLICIES if name not in compared)}")
    patient = dict.fromkeys(compared, True)
    for count in sizes:
        print(f"\n{count} jobs{'':20}{'ms':>8}{'arrival':>10}{'end':>10}{'cvxpy':>12}")
        for name in compared:
            if not patient[name]:
                print(f"{name:27}  cvxpy left out: over {_PATIENCE_MS / 1e3:g} s at the size before")
                continue
            line, theirs_ms = measure(name, problem(found, count), compared=True)
            patient[name] = theirs_ms <= _PATIENCE_MS
            print(line, flush=True)
