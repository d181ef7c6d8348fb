"""The cluster simulator: by hand, against its ideal, and what must hold for any policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.cluster.policies.base import Answer, FillUnused, Policy
from bidbrain.cluster.policies.baselines import Agnostic, Packing
from bidbrain.cluster.policies.cost import PerDollar
from bidbrain.cluster.policies.fairness import LeastAttainedService
from bidbrain.cluster.policies.ordered import Fifo
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, ShareProblem, Shares
from bidbrain.cluster.simulator import (
    SimulationSetup,
    Stuck,
    Trace,
    completion_s,
    finish_time_fairness,
    late_jobs,
    simulate_cluster,
)
from pricing_data.model.units import HOUR_S

KINDS = JobKinds(np.array([[1.0, 4.0], [2.0, 3.0], [1.0, 3.0]]), np.array([1, 1, 2]), np.full((3, 3, 2), 0.9))
CLUSTER = ClusterCapacity(("slow", "fast"), np.array([3.0, 2.0]), np.array([1.0, 3.0]))
SETTING = SimulationSetup(CLUSTER, replace(KINDS, together=None), round_s=100.0, switch_s=5.0)
LAS = FillUnused(LeastAttainedService())


def trace(kind: list[int], steps: list[float], arrival_s: list[float], slo_s: float = np.inf) -> Trace:
    n = len(kind)
    return Trace(
        np.array(arrival_s),
        np.array(kind),
        np.array(steps),
        np.ones(n),
        np.full(n, slo_s),
        np.zeros(n, np.int64),
    )


def random_trace(count: int, seed: int, kinds: int = 3) -> Trace:
    chance = np.random.default_rng(seed)
    arrivals = np.cumsum(chance.exponential(300.0, count))
    kind, steps = chance.integers(0, kinds, count), chance.uniform(500, 9000, count)
    return trace(kind.tolist(), steps.tolist(), arrivals.tolist())


def test_one_job_by_hand() -> None:
    """It comes at 10 s, is known at 100 s, starts 5 s later and keeps its worker: 1000 steps, 4 a second."""
    done = simulate_cluster(trace([0], [1000.0], [10.0]), SETTING, LAS)
    assert done.end_s == pytest.approx([355.0])
    assert (done.rounds, done.switches, done.asked) == (3, 1, 1)
    assert done.dollars == pytest.approx(3.0 * 255 / HOUR_S)
    ideal = simulate_cluster(trace([0], [1000.0], [10.0]), SETTING, LAS, ideal=True)
    assert ideal.end_s == pytest.approx([260.0])
    assert finish_time_fairness(trace([0], [1000.0], [10.0]), ideal) == pytest.approx([2.2 / 4])


@pytest.mark.parametrize(
    "policy", [LAS, Fifo(), Agnostic(LAS, 1), Packing(np.random.default_rng(0)), PerDollar()]
)
@pytest.mark.parametrize("ideal", [False, True])
def test_everybody_ends_and_nobody_is_faster_than_the_fastest_type(policy: Policy, ideal: bool) -> None:
    jobs = random_trace(25, 1)
    setting = replace(SETTING, kinds=KINDS)
    done = simulate_cluster(jobs, setting, policy, ideal=ideal)
    least = jobs.steps / KINDS.rates.max(axis=1)[jobs.kind]
    assert (completion_s(jobs, done) >= least - 1e-6).all()
    busy = (done.end_s.max() - jobs.arrival_s[0]) / HOUR_S
    assert 0 < done.dollars <= busy * float(CLUSTER.workers @ CLUSTER.cost)


def test_rounds_are_nearly_ideal() -> None:
    """Follows Fig.

    5.15: mean completion time within a tenth, jobs of one worker, on a cluster not too small.

    Where a few jobs have all the time of a few workers, a round that went to another cannot be made up for.
    """
    jobs = random_trace(120, 2, kinds=2)
    jobs = replace(jobs, arrival_s=jobs.arrival_s / 6)
    cluster = replace(CLUSTER, workers=np.array([18.0, 12.0]))
    setting = replace(SETTING, cluster=cluster, round_s=20.0, switch_s=0.0)
    done = [simulate_cluster(jobs, setting, LAS, ideal=ideal) for ideal in (False, True)]
    rounds, ideal = (completion_s(jobs, one).mean() for one in done)
    assert rounds == pytest.approx(ideal, rel=0.1)


def test_deadlines_that_can_be_kept_are() -> None:
    jobs = trace([0, 1, 0], [4000.0, 3000.0, 4000.0], [0.0, 0.0, 0.0], slo_s=4000.0)
    setting = replace(SETTING, cluster=replace(CLUSTER, cost=np.array([1.0, 6.0])))
    told_nobody = simulate_cluster(jobs, setting, PerDollar(), promises=False)
    assert late_jobs(jobs, told_nobody).any()
    assert not told_nobody.promised.any()
    assert not late_jobs(jobs, simulate_cluster(jobs, setting, PerDollar())).any()


class Idle:
    """Gives nobody anything."""

    def compute_shares(self, problem: ShareProblem) -> Answer:
        return Answer(Shares(np.zeros((len(problem.jobs.kind), len(problem.cluster.types)))), 0.0)


@pytest.mark.parametrize("ideal", [False, True])
def test_a_policy_that_gives_nothing_is_found_out(ideal: bool) -> None:
    with pytest.raises(Stuck, match="1 jobs are left"):
        simulate_cluster(trace([0], [10.0], [0.0]), SETTING, Idle(), ideal=ideal)


def test_a_simulation_ends_with_the_jobs_that_are_waited_for() -> None:
    jobs = random_trace(30, 3)
    whole, part = (
        simulate_cluster(jobs, SETTING, LAS),
        simulate_cluster(jobs, SETTING, LAS, until=slice(5, 10)),
    )
    assert part.end_s[5:10] == pytest.approx(whole.end_s[5:10])
    assert np.isnan(part.end_s).any()
    assert part.rounds < whole.rounds
