"""A job as a value: what its file says, complete and checked.

``jobfile.py`` makes these from YAML. Nothing here knows a market, a price or an application: whether
``c5.xlarge`` exists is the catalogue's affair, whether ``rank`` means something is the application's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pricing_data.units import MicroUsd, Seconds

Argument: TypeAlias = str | int | float | bool | tuple[str | int | float | bool, ...]

DEFAULT_STRATEGY: Final = "proteus"
NEED_DEADLINE: Final = ("uniform-progress", "greedy")
"""Strategies that are ways to keep a deadline: ``bidbrain.strategies.menu.NEED_DEADLINE``."""
STRATEGIES: Final = (
    DEFAULT_STRATEGY,
    "standard-agileml",
    "failover-agileml",
    "tierml",
    "on-demand",
    *NEED_DEADLINE,
)
"""The names of ``bidbrain.strategies.menu.LIVE``; here too because reading a job file must not load numpy."""
_SIGMA: Final = Seconds(60.0)
_LAMBDA: Final = Seconds(120.0)
_BOOT: Final = Seconds(60.0)


@dataclass(frozen=True, slots=True)
class Converged:
    """Stop when two reports of ``metric`` in a row differ by no more than ``delta``."""

    metric: str
    delta: float


@dataclass(frozen=True, slots=True)
class Stop:
    """When the job is done: whichever comes first of those that are set."""

    clocks: int | None = None
    seconds: Seconds | None = None
    converged: Converged | None = None


@dataclass(frozen=True, slots=True)
class Reliable:
    """The machines that are never revoked. None: wherever the spot machines are."""

    instances: int
    instance_type: str
    cloud: str | None = None
    region: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Amount:
    """ "4" (exactly) or "4+" (at least)."""

    value: float
    or_more: bool

    def admits(self, amount: float) -> bool:
        """Whether an instance with ``amount`` of it will do."""
        return amount >= self.value if self.or_more else amount == self.value


@dataclass(frozen=True, slots=True)
class Spot:
    """Which revocable machines may be used, and how many. Empty tuples and None allow everything."""

    max_instances: int
    max_per_allocation: int
    cpus: Amount | None = None
    memory_gib: Amount | None = None
    instance_types: tuple[str, ...] = ()
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Objective:
    """What to minimize, how, and within what. ``deadline`` counts from the start of the job."""

    minimize: str = "cost"
    strategy: str = DEFAULT_STRATEGY
    """One of ``bidbrain.strategies.menu.LIVE``."""
    deadline: Seconds | None = None
    budget: MicroUsd | None = None


@dataclass(frozen=True, slots=True)
class Scaling:
    """How the job scales: the papers' phi, sigma and lambda (Harlap 4.3.1, table 4.1).

    ``phi``: scaling efficiency; ``sigma``: time lost when the footprint changes; ``lambda_``: time lost
    to an eviction; ``stage2_above``, ``stage3_above``: transient machines per reliable one.
    """

    phi: float = 0.95
    sigma: Seconds = _SIGMA
    lambda_: Seconds = _LAMBDA
    stage2_above: float = 1.0
    stage3_above: float = 15.0
    measure: bool = False
    """Let the job's own progress correct ``phi``, ``sigma`` and ``lambda_`` while it runs."""


@dataclass(frozen=True, slots=True)
class Training:
    """How model and input are cut, and how far apart workers may be."""

    staleness: int
    partitions: int
    shards: int


@dataclass(frozen=True, slots=True)
class Local:
    """How machines of the local world behave. ``core_seconds_per_clock`` is nominal work of one clock."""

    throttle: bool = True
    core_seconds_per_clock: float | None = None
    boot: Seconds = _BOOT
    progress: str = "measured"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job, complete and checked. ``data`` and ``output`` are absolute paths or URLs."""

    name: str
    engine: str
    app: str
    args: Mapping[str, Argument]
    data: str
    stop: Stop
    reliable: Reliable
    spot: Spot
    objective: Objective
    scaling: Scaling
    training: Training
    drain: bool
    seed: int
    output: str
    local: Local
    envs: Mapping[str, str]
