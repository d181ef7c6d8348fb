"""Random problems, small and with coarse numbers: ties, types too small, kinds that run nowhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from bidbrain.arrays import Floats
from bidbrain.cluster.policies.base import invert_rates
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, Jobs, ShareProblem, Shares

_RATES = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0])


@st.composite
def problems(draw: st.DrawFn, *, most_jobs: int = 7, sharing: bool = False) -> ShareProblem:
    """Up to three types, four kinds and three entities; with ``sharing``, pairs of kinds of one scale."""
    types, count = draw(st.integers(1, 3)), draw(st.integers(1, most_jobs))
    kinds = draw(st.integers(1, 4))
    rates = np.array([[draw(_RATES) for _ in range(types)] for _ in range(kinds)])
    rates[rates.max(axis=1) == 0, 0] = 1.0
    scale = np.array(draw(st.lists(st.sampled_from([1, 1, 2, 4]), min_size=kinds, max_size=kinds)))
    workers = np.array(draw(st.lists(st.integers(1, 6), min_size=types, max_size=types)), float)
    together = None
    if sharing:
        parts = st.sampled_from([0.0, 0.3, 0.5, 0.6, 0.8, 1.0])
        part = np.array([[[draw(parts) for _ in range(types)] for _ in range(kinds)] for _ in range(kinds)])
        together = np.where((scale[:, None] == scale)[:, :, None], part * rates[:, None, :], 0.0)

    def each(values: list[float]) -> list[float]:
        return draw(st.lists(st.sampled_from(values), min_size=count, max_size=count))

    jobs = Jobs.from_kinds(
        draw(st.lists(st.integers(0, kinds - 1), min_size=count, max_size=count)),
        weight=each([1.0, 1.0, 2.0, 3.0]),
        steps=each([10.0, 50.0, 200.0]),
        age_s=each([0.0, 30.0]),
        isolated_s=each([0.0, 15.0]),
        slo_s=each([np.inf, np.inf, 0.0, 20.0, 100.0, 400.0]),
        entity=np.array(each([0.0, 1.0, 2.0]), np.int64),
    )
    cost = np.array(each([0.5, 1.0, 2.5]) * 3)[:types]
    names = tuple(f"type{j}" for j in range(types))
    return ShareProblem(
        ClusterCapacity(names, workers, cost),
        JobKinds(rates, scale, together),
        jobs,
        np.array([1.0, 2.0, 3.0]),
    )


def without_merging(problem: ShareProblem) -> ShareProblem:
    """The same, every job a kind of its own: nothing to merge."""
    kind, kinds = problem.jobs.kind, problem.kinds
    together = None if kinds.together is None else kinds.together[kind][:, kind]
    return replace(
        problem,
        kinds=JobKinds(kinds.rates[kind], kinds.scale[kind], together),
        jobs=replace(problem.jobs, kind=np.arange(len(kind))),
    )


def check(problem: ShareProblem, shares: Shares) -> None:
    """A valid allocation, with nothing where a job cannot run."""
    times = shares.per_job
    assert times.min(initial=0.0) >= 0.0
    assert times.sum(axis=1).max(initial=0.0) <= 1.0 + 1e-7
    assert (used_workers(problem, shares) <= problem.cluster.workers * (1 + 1e-7)).all()
    assert not times[~problem.allowed_types[problem.jobs.kind]].any()


def used_workers(problem: ShareProblem, shares: Shares) -> Floats:
    """Workers of each type, (k,); a pair's count once."""
    workers = problem.scale @ shares.alone
    if shares.paired is not None:
        workers = workers + problem.scale[shares.first] @ shares.paired
    return np.asarray(workers)


def levels(problem: ShareProblem, shares: Shares) -> Floats:
    """Normalized throughputs, (n,); 0 for who cannot run."""
    return np.asarray(problem.throughput(shares) * invert_rates(problem.equal_throughput()))
