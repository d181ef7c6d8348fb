"""What a round is dealt from, and what it deals: values, and what a job may come to owe. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from bidbrain.cluster.lease import Lease
from bidbrain.cluster.policies.base import Policy
from bidbrain.cluster.policies.registry import policy
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Instant, Seconds
from spotctl.control.billing import MICROS_PER_USD
from spotctl.control.state import State
from spotctl.queue.allocation.lease_changes import Holder
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.spec import PolicyChoice

_WAY_OUT_S: Final = 600
"""From the end of a lease to the end of the last machine, at worst."""


@dataclass(frozen=True, slots=True)
class Wanting:
    """A job that is not done. ``due``: when it should be, if that matters to the policy."""

    state: State
    holder: Holder
    weight: float
    entity: str
    due: Instant | None
    received: Mapping[str, float]
    """Seconds by pool, faded."""
    since: Instant | None = None
    """When its turn began: the lease that it has, of the pool that it has it of."""

    @property
    def name(self) -> str:
        return self.holder.name


@dataclass(frozen=True, slots=True)
class Hand:
    """What a round deals: leases wanted of every job, in the order in which they are to be served."""

    leases: Mapping[str, Lease | None]
    shares: Mapping[str, Mapping[str, float]]
    received: Mapping[str, Mapping[str, float]]
    broke: tuple[str, ...] = ()
    """Jobs that cannot be paid for any longer."""
    since: Mapping[str, Instant] = field(default_factory=dict)
    """When the turn of each job with a lease began."""


@dataclass(frozen=True, slots=True)
class Table:
    """What is the same for every job of a round."""

    now: Instant
    round_s: Seconds
    pools: Pools
    policy: Policy
    entities: Mapping[str, float]
    purse: float = inf
    """Micro-dollars that are neither spent nor put aside for promises."""


def chosen_policy(choice: PolicyChoice, left: float) -> Policy:
    """The policy that a queue file names. One that keeps to a budget and was told none has what is ``left``
    of the queue's: micro-dollars that nobody owes, put aside or not, as all work is paid from them.
    """
    parameters = dict(choice.parameters)
    if choice.name == "makespan-within" and "budget" not in parameters:
        parameters["budget"] = max(left / MICROS_PER_USD, 1e-6)
    return policy(choice.name, parameters)


def exposure(state: State, machines: int, markets: Sequence[Market], table: Table) -> float:
    """Micro-dollars that a job may come to owe before anybody can stop it, at list prices: its reliable
    machines, and ``machines`` of the dearest of ``markets``, for a billing step more than a round and
    their way out.
    """
    terms = state.terms
    dearest = max((t.on_demand for t in terms.spot if t.market in markets), default=0.0)
    begins = machines > 0 and not state.allocations
    rented = terms.reliable_count if machines == 0 or begins else 0
    hourly = machines * dearest + rented * terms.reliable.on_demand
    quantum_s = terms.rules.quantum_s if machines or begins else 0
    return hourly * (quantum_s + table.round_s + _WAY_OUT_S) / HOUR_S * MICROS_PER_USD


def counts(job: Wanting) -> bool:
    """Whether the job lives on money that is not put aside for it."""
    queued = job.state.terms.queued
    return queued is not None and not queued.promised
