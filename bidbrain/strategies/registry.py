"""Names the strategies that a running job can use.

All of them rely on AgileML: an evicted machine takes no work with it, so none needs checkpoints.

    LIVE              strategies by name
    bind_to_deadline  wraps one of them in the deadline policy that goes with its name
    NEED_DEADLINE     names that stand for a deadline policy alone, and mean nothing without a deadline
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
"""Makes a strategy from the most cores that the job may hold."""


# A function binds each name; a lambda in the comprehension below would see only the last one.
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
    """Returns strategy ``name`` bound to a deadline.

    The deadline policy minimises expected cost, unless ``name`` is itself a policy.
    """
    return DeadlineBound(LIVE[name](cores), _POLICIES.get(name, cached_least_cost))
