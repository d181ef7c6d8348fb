"""The strategies a running job can be given by name. All of them rest on AgileML: no work is lost with a
machine that goes, so none needs checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from bidbrain.strategies.base import Strategy
from bidbrain.strategies.cheapest import Failover, OnDemand, Standard
from bidbrain.strategies.least_cost import BidBrain
from bidbrain.strategies.recovery import ELASTIC
from bidbrain.strategies.tierml import TierML

DEFAULT: Final = "proteus"

_Maker: TypeAlias = Callable[[float], Strategy]
"""From the cores of the job's whole allowance."""

LIVE: Final[Mapping[str, _Maker]] = {
    DEFAULT: lambda _: BidBrain(),
    "standard-agileml": lambda cores: Standard(cores, ELASTIC, "standard-agileml", uses_reliable=True),
    "failover-agileml": lambda cores: Failover(cores, ELASTIC, "failover-agileml", uses_reliable=True),
    "tierml": TierML,
    "on-demand": OnDemand,
}
