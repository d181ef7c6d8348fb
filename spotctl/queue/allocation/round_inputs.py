"""Defines the inputs and the result of a round, and the most that a job can owe after it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from bidbrain.cluster.lease import Lease
from bidbrain.cluster.policies.base import Policy
from bidbrain.cluster.policies.registry import make_policy
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Instant, Seconds
from spotctl.control.billing import MICROS_PER_USD
from spotctl.control.state import State
from spotctl.queue.allocation.lease_changes import LeaseHolder
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.spec import PolicyChoice

_WAY_OUT_S: Final = 600
"""Seconds from the end of a lease to the end of its last machine, at worst."""


@dataclass(frozen=True, slots=True)
class SchedulableJob:
    """Describes a job that can use machines; ``due``: its deadline, None if it has none."""

    state: State
    holder: LeaseHolder
    weight: float
    entity: str
    due: Instant | None
    received: Mapping[str, float]
    """Seconds of machine time by pool, faded."""
    since: Instant | None = None
    """When its hold began: its lease has been of the same pool since then."""

    @property
    def name(self) -> str:
        return self.holder.name


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """Holds the result of a round: the lease that every job should have, in the order of service."""

    leases: Mapping[str, Lease | None]
    shares: Mapping[str, Mapping[str, float]]
    received: Mapping[str, Mapping[str, float]]
    out_of_budget: tuple[str, ...] = ()
    """Jobs that cannot be paid for any longer."""
    since: Mapping[str, Instant] = field(default_factory=dict)
    """When the hold of each job with a lease began."""


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """Holds what is the same for every job of a round."""

    now: Instant
    round_s: Seconds
    pools: Pools
    policy: Policy
    entities: Mapping[str, float]
    budget_left: float = inf
    """Micro-dollars that are neither spent nor put aside for promises."""


def make_round_policy(choice: PolicyChoice, left: float) -> Policy:
    """Returns the policy that a queue file names.

    A budget policy without a budget parameter gets what is ``left`` of the queue's, in micro-dollars.
    """
    parameters = dict(choice.parameters)
    # Money reserved for promises is part of it, as the policy sees the promised jobs' work too.
    if choice.name == "makespan-within" and "budget" not in parameters:
        # The policy takes no budget of 0; with a micro-dollar it reports that it has no answer.
        parameters["budget"] = max(left / MICROS_PER_USD, 1e-6)
    return make_policy(choice.name, parameters)


def exposure(state: State, machines: int, markets: Sequence[Market], table: RoundInputs) -> float:
    """Returns the most micro-dollars that a job can owe before it can be stopped, at list prices.

    They pay for its reliable machines, and for ``machines`` of the most expensive of ``markets``: for a
    round, the time to end them, and one billing quantum.
    """
    terms = state.terms
    dearest = max((t.on_demand for t in terms.spot if t.market in markets), default=0.0)
    begins = machines > 0 and not state.allocations
    # The caller counts a running job's reliable machines once, by machines = 0.
    rented = terms.reliable_count if machines == 0 or begins else 0
    hourly = machines * dearest + rented * terms.reliable.on_demand
    quantum_s = terms.rules.quantum_s if machines or begins else 0
    return hourly * (quantum_s + table.round_s + _WAY_OUT_S) / HOUR_S * MICROS_PER_USD


def uses_shared_budget(job: SchedulableJob) -> bool:
    """Tells whether the job spends money that is not put aside for it."""
    queued = job.state.terms.queued
    return queued is not None and not queued.promised
