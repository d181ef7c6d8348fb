"""How fast a deadline is decided, each figure beside a reference that was measured in the same run.

A job of 48 h by 70 h in ticks of 600 s: the largest tables the benchmark needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from bidbrain.deadline.availability_belief import PRIOR, Belief
from bidbrain.deadline.benchmark import simulate_rule
from bidbrain.deadline.least_cost import LeastCost
from bidbrain.deadline.model import DeadlineJob, DeadlineState, MachineKind
from pricing_data.model.units import HOUR_S, Seconds, UsdPerHour

JOB = DeadlineJob(
    work_s=Seconds(48 * HOUR_S),
    deadline_s=Seconds(70 * HOUR_S),
    overhead_s=Seconds(180),
    tick_s=Seconds(600),
    spot=UsdPerHour(0.9731),
    on_demand=UsdPerHour(3.06),
)
WINDOWS = 1000


def main() -> None:
    """Print each figure and its reference."""
    policy = LeastCost.for_job(JOB)
    table = policy.plan.table
    planned = _seconds(lambda: LeastCost.for_job(JOB))
    copied = _seconds(table.copy)
    print(f"a plan of {table.nbytes >> 20} MB: {planned:.2f} s, {planned / copied:.0f} times a copy of it")

    now = DeadlineState(Seconds(0), JOB.work_s, MachineKind.NOTHING, Seconds(0), spot_up=True)
    belief = Belief.first_look(PRIOR, True, Seconds(0))
    assert policy.choose_machine(now, belief).machine is MachineKind.SPOT
    chosen = _seconds(lambda: policy.choose_machine(now, belief))
    up = np.random.default_rng(0).random((WINDOWS, JOB.tick_count)) < 0.8
    simulated = _seconds(lambda: simulate_rule(JOB, up, policy.cheapest_machines)) / (
        WINDOWS * JOB.tick_count
    )
    print(f"a live choice: {chosen * 1e6:.0f} us, {chosen / simulated:.0f} times one of {WINDOWS} at once")


def _seconds(work: Callable[[], object]) -> float:
    """The best of five."""
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best
