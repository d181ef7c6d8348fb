"""Policies that keep to a budget: what a round does, and what becomes of newcomers, that does not do. Pure.

As long as such a policy has no answer machines are shared as by ``makespan``: jobs that run are not left
without, and what they spend is counted all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bidbrain.cluster.policies.base import Infeasible
from bidbrain.cluster.policies.registry import policy
from spotctl.queue.allocation.allocate import deal
from spotctl.queue.allocation.round_inputs import Hand, Table, Wanting


def dealt(jobs: Sequence[Wanting], table: Table) -> tuple[Hand, str]:
    """A round, and why it is not the policy's own; "" where it is."""
    try:
        return deal(jobs, table), ""
    except Infeasible as error:
        return deal(jobs, replace(table, policy=policy("makespan", {}))), str(error)


def too_much(newcomer: Wanting, jobs: Sequence[Wanting], table: Table) -> str:
    """Why the policy has no answer with a job more; "" where it has one, or has none without it either."""
    try:
        deal([*jobs, newcomer], table)
    except Infeasible as error:
        _, before = dealt(jobs, table)
        return "" if before else str(error)
    return ""
