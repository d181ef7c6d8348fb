"""Names the strategies that a running job can use.

All of them rest on AgileML: no work is lost with an evicted machine, so none needs checkpoints.

    LIVE              who buys machines
    bind_to_deadline  the same within a deadline, with the policy that says when
    NEED_DEADLINE     those that are nothing but such a policy
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from bidbrain.deadline.baselines import RuleOfThumb, greedy_rule, on_demand_rule, uniform_progress_rule
from bidbrain.strategies.auto import Auto
from bidbrain.strategies.base import Strategy
from bidbrain.strategies.deadline_bound import DeadlineBound, MakePolicy, cached_least_cost
from bidbrain.strategies.price_only import Failover, OnDemand, StandardBidding
from bidbrain.strategies.proteus import BidBrain
from bidbrain.strategies.recovery import ELASTIC
from bidbrain.strategies.tierml import TierML

DEFAULT: Final = "auto"
NEED_DEADLINE: Final = ("uniform-progress", "greedy")

_Maker: TypeAlias = Callable[[float], Strategy]
"""Makes a strategy from the cores of the job's whole allowance."""


def _failover_maker(name: str) -> _Maker:
    return lambda cores: Failover(cores, ELASTIC, name, uses_reliable=True)


LIVE: Final[Mapping[str, _Maker]] = {
    DEFAULT: lambda _: Auto(),
    "proteus": lambda _: BidBrain(),
    "standard-agileml": lambda cores: StandardBidding(cores, ELASTIC, "standard-agileml", uses_reliable=True),
    "failover-agileml": _failover_maker("failover-agileml"),
    "tierml": TierML,
    "on-demand": OnDemand,
    **{name: _failover_maker(name) for name in NEED_DEADLINE},
}

_POLICIES: Final[Mapping[str, MakePolicy]] = {
    "on-demand": lambda job: RuleOfThumb("on-demand", job, on_demand_rule),
    "uniform-progress": lambda job: RuleOfThumb("uniform-progress", job, uniform_progress_rule(job)),
    "greedy": lambda job: RuleOfThumb("greedy", job, greedy_rule(job)),
}


def bind_to_deadline(name: str, cores: float) -> DeadlineBound:
    """Returns the strategy ``name`` within a deadline: at least cost, unless its name says otherwise."""
    return DeadlineBound(LIVE[name](cores), _POLICIES.get(name, cached_least_cost))
