"""Falls back where a budget policy is infeasible: shares machines by makespan, and rejects causing jobs.
Pure.

As long as such a policy has no answer machines are shared as by ``makespan``: jobs that run keep running,
and what they spend is counted all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bidbrain.cluster.policies.base import Infeasible
from bidbrain.cluster.policies.registry import make_policy
from spotctl.queue.allocation.allocate import allocate_round
from spotctl.queue.allocation.round_inputs import RoundInputs, RoundPlan, SchedulableJob


def allocate_with_fallback(jobs: Sequence[SchedulableJob], table: RoundInputs) -> tuple[RoundPlan, str]:
    """Allocates a round; also returns why it is not the policy's own, "" where it is."""
    try:
        return allocate_round(jobs, table), ""
    except Infeasible as error:
        return allocate_round(jobs, replace(table, policy=make_policy("makespan", {}))), str(error)


def rejects_newcomer(newcomer: SchedulableJob, jobs: Sequence[SchedulableJob], table: RoundInputs) -> str:
    """Returns why the policy has no answer with one job more; "" where it has one, or has none without it."""
    try:
        allocate_round([*jobs, newcomer], table)
    except Infeasible as error:
        _, before = allocate_with_fallback(jobs, table)
        return "" if before else str(error)
    return ""
