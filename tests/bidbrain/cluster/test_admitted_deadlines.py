"""Deadlines that the simulator promised are kept, on clusters so small that many are refused.

``pytest --campaign`` runs 70 traces under three policies. By default those run in which a promise was missed
when promises rested on shares: jobs of one worker each that had the same type in mind came to the ends of
their reserves together, beside others that held most of that type.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.arrays import Indices
from bidbrain.cluster.policies.base import Policy
from bidbrain.cluster.policies.cost import PerDollar, PerJob, Total
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds
from bidbrain.cluster.simulator import SimulationSetup, Trace, late_jobs, simulate_cluster

RATES = np.array([[1.0, 4.0], [2.0, 3.0], [1.0, 3.0], [1.5, 0.0], [2.0, 5.0]])
SCALE = np.array([1, 1, 2, 1, 3])
POLICIES: dict[str, Policy] = {"per dollar": PerDollar(), "total": Total(), "per job": PerJob()}
MISSED_BEFORE = [(95, "per dollar"), (96, "total"), (153, "total"), (154, "per job")]


def small_trace(seed: int, scale: Indices = SCALE) -> tuple[Trace, SimulationSetup]:
    """40 jobs of up to three workers with tight deadlines, for 6 to 11 workers."""
    chance = np.random.default_rng(1000 + seed)
    kind = chance.integers(0, 5, 40)
    lasts_s = 10 ** chance.uniform(3, 4.5, 40)
    arrival_s = np.cumsum(chance.exponential(chance.choice([1000.0, 2500.0]), 40))
    slo_s = lasts_s * chance.choice([1.1, 1.3, 2, 5, np.inf], 40)
    steps = lasts_s * RATES.max(axis=1)[kind]
    workers = int(chance.integers(6, 12))
    fast = int(chance.integers(3, workers - 2))
    cluster = ClusterCapacity(
        ("slow", "fast"), np.array([float(workers - fast), float(fast)]), np.array([1.0, 3.0])
    )
    trace = Trace(arrival_s, kind, steps, np.ones(40), slo_s, np.zeros(40, np.int64))
    return trace, SimulationSetup(cluster, JobKinds(RATES, scale))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "traced" in metafunc.fixturenames:
        whole = [(seed, name) for seed in range(70) for name in POLICIES]
        metafunc.parametrize(
            "traced", whole if metafunc.config.getoption("--campaign") else MISSED_BEFORE, ids=str
        )


def check(trace: Trace, setting: SimulationSetup, policy: Policy) -> None:
    done = simulate_cluster(trace, setting, policy)
    assert not (late_jobs(trace, done) & done.promised).any()
    assert not done.promised[np.isinf(trace.slo_s)].any()
    assert done.promised.sum() >= 10


def test_promises_are_kept(traced: tuple[int, str]) -> None:
    seed, name = traced
    check(*small_trace(seed), POLICIES[name])


def test_promises_of_jobs_of_one_worker_are_kept() -> None:
    check(*small_trace(1, np.ones(5, np.int64)), PerDollar())


def test_promises_are_kept_where_restarts_cost_half_a_round() -> None:
    trace, setting = small_trace(2)
    check(trace, replace(setting, switch_s=180.0), Total())


def test_promises_are_kept_where_jobs_share_workers() -> None:
    trace, setting = small_trace(3)
    kinds = replace(
        setting.kinds, together=np.where(RATES > 0, 0.7 * RATES, 0.0)[:, None, :].repeat(5, axis=1)
    )
    check(trace, replace(setting, kinds=kinds), PerDollar())


def test_a_promise_outlives_whoever_comes_later() -> None:
    """Two workers for three jobs that need one each all their time: the third has no deadline."""
    cluster = ClusterCapacity(("fast",), np.array([2.0]), np.ones(1))
    setting = SimulationSetup(
        cluster, JobKinds(np.array([[1.0]]), np.array([1])), round_s=100.0, switch_s=0.0
    )
    jobs = Trace(
        np.array([0.0, 0.0, 500.0]),
        np.zeros(3, np.int64),
        np.full(3, 3000.0),
        np.ones(3),
        np.full(3, 3400.0),
        np.zeros(3, np.int64),
    )
    done = simulate_cluster(jobs, setting, PerDollar())
    assert done.promised.tolist() == [True, True, False]
    assert late_jobs(jobs, done).tolist() == [False, False, True]
    assert np.isfinite(done.end_s).all()
