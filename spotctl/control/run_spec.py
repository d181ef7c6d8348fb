"""Defines the spec of a run, fixed when it starts: all that the core needs to know of its job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from bidbrain.model import Limits, ScalingModel
from bidbrain.strategies.recovery import Checkpointing
from bidbrain.strategies.registry import DEFAULT
from pricing_data.model.market import Market, MarketRules
from pricing_data.model.units import Instant, MicroUsd, Seconds, UsdPerHour
from spotctl.control.engine_traits import ELASTIC_TRAINING, EngineTraits

AT_ONCE: Final = Seconds(0.0)
SAVE_WITHIN_S: Final = 1800
"""Seconds to save a model. The link can move it within a notice; a store may take fifteen times as long."""


@dataclass(frozen=True, slots=True)
class MarketOption:
    """Describes a market the job may use: its on-demand price, and an instance's cores and speed."""

    market: Market
    on_demand: UsdPerHour
    cores: int
    rules: MarketRules | None = None
    """Its billing and eviction rules; None: those of the run."""
    speed: float | None = None
    """Core-seconds of work per second of one instance; None: as many as it has cores."""

    @property
    def nu(self) -> float:
        """Returns the core-seconds of work per second of one instance, as known before the start."""
        return float(self.cores) if self.speed is None else self.speed


@dataclass(frozen=True, slots=True)
class StopCondition:
    """Ends training when the first of these conditions holds; None: not a condition."""

    clocks: int | None
    seconds: Seconds | None = None
    objective_delta: float | None = None
    """The objective has converged once two reports in a row differ by no more than this."""

    @property
    def is_bounded(self) -> bool:
        """Tells whether a latest end is known beforehand."""
        return self.clocks is not None or self.seconds is not None


@dataclass(frozen=True, slots=True)
class QueueMembership:
    """Marks a job that a queue runs: it holds spot machines only within its leases."""

    promised: bool
    """Whether the queue reserved on-demand machines and money that keep the job's deadline. Such a job begins
    at once; others begin with their first lease."""
    rents: tuple[Market, ...] = ()
    """The markets whose on-demand machines are reserved for it."""


@dataclass(frozen=True, slots=True)
class EgressTariff:
    """Gives the price of data that leaves a region of ``cloud``."""

    cloud: str
    to: str
    """"region": to another region of the same cloud; "cloud": to another cloud."""
    usd_gb: float


@dataclass(frozen=True, slots=True)
class MovableCheckpoint:
    """Describes the checkpoint that a job moves when it goes to another region."""

    size_bytes: int
    """Its size by the job file, which counts until the first checkpoint is written."""
    bytes_per_s: float
    tariffs: tuple[EgressTariff, ...]


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """Sets how often an elastic job stores its state outside its machines.

    Either every ``clocks`` clocks or every ``seconds`` seconds; the other is 0.
    """

    clocks: int
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class Expectation:
    """Keeps the launch plan's forecast, so that reports can compare it with the outcome."""

    cost: MicroUsd
    seconds: Seconds
    """From the start to the end of the work."""
    evictions: float
    """Allocations that the provider takes."""
    machines: int
    """Machines at work together, including reliable ones."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Identifies a run and its inputs. ``prices``: the name under which output shows its prices."""

    run: str
    seed: int
    prices: str
    expected: Expectation | None = None
    """The plan's forecast; None where it did not cover the whole job. No decision reads it."""


@dataclass(frozen=True, slots=True)
class WorkTerms:
    """Holds the amount of work of the job, and how its speed grows with its machines."""

    stop: StopCondition
    core_seconds_per_clock: float
    """Nominal work of one clock, in core-seconds."""
    scaling: ScalingModel
    measure: bool = False
    """Whether phi, sigma, lambda and nu are measured by the job's own progress, once there is enough."""
    modelled_speeds: Mapping[str, float] = field(default_factory=dict)
    """Speed of a simulated job by instance type, as a multiple of ``nu``; 1 for other types. No decision
    reads it."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Holds the user's goals and limits. ``deadline_s`` counts from the start."""

    strategy: str = DEFAULT
    """One of ``bidbrain.strategies.registry.LIVE``."""
    deadline_s: Seconds | None = None
    budget: MicroUsd | None = None
    drain: bool = False
    """Whether a finished job keeps machines to the end of their paid hours: an eviction refunds the hour."""


@dataclass(frozen=True, slots=True)
class RecoveryTerms:
    """Says how the job survives the loss of its machines, and how it moves between regions."""

    checkpoints: Checkpointing | None = None
    """Costs of checkpoints and restarts, for an engine that relies on them; None for others."""
    saves_on_warning: bool = True
    """Whether a timely warning saves all work: always so with AgileML."""
    keeps_nothing: bool = False
    """Whether a program writes no checkpoints, and so starts from nothing on every machine."""
    luggage: MovableCheckpoint | None = None
    """The checkpoint that moves between regions; None where the job stays within one."""
    keeps: CheckpointPolicy | None = None
    """When an elastic job stores its state; None: never, so the loss of its last reliable machine ends it."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Holds everything that is fixed for one run.

    ``rules``: those of all its markets; with several clouds, what holds in any of them. ``reliable``: the
    market of reliable machines; ``reliable_count`` of them, and 0 where checkpoints take their place.
    """

    FLAT_OUTSIDE: ClassVar[tuple[str, ...]] = ("origin", "work", "objective", "recovery")
    """Fields whose own fields stand beside them, one level up, in output."""

    job: str
    start: Instant
    origin: Origin
    rules: MarketRules
    reliable: MarketOption
    reliable_count: int
    spot: tuple[MarketOption, ...]
    limits: Limits
    work: WorkTerms
    engine: EngineTraits = ELASTIC_TRAINING
    start_s: Seconds = AT_ONCE
    """Expected time from a request to a running machine."""
    objective: Objective = Objective()
    recovery: RecoveryTerms = RecoveryTerms()
    queued: QueueMembership | None = None
    """None: no queue runs the job."""

    def market_option(self, market: Market) -> MarketOption:
        """Returns the option for one of the run's markets. Raises KeyError for any other."""
        for entry in (*self.spot, self.reliable):
            if entry.market == market:
                return entry
        raise KeyError(str(market))

    @property
    def most_machines(self) -> int:
        """Returns how many machines may work at once: the engine's gang, else all that the job may hold."""
        together = self.engine.gang_size
        return self.limits.max_instances + self.reliable_count if together is None else together

    @property
    def checkpointing(self) -> Checkpointing:
        """Returns ``recovery.checkpoints``. Raises ValueError for an engine that does not rely on them."""
        if not isinstance(self.recovery.checkpoints, Checkpointing):
            raise ValueError(f"{self.job} does not rely on checkpoints")
        return self.recovery.checkpoints

    @property
    def end_within_s(self) -> Seconds:
        """Returns how long to wait for training to end: for the clock in progress, then saving the model."""
        # Twice the clock's time on the reliable machines alone, as all others may be gone by then.
        cores = self.reliable.nu * max(1, self.reliable_count)
        return Seconds(SAVE_WITHIN_S + math.ceil(2 * self.work.core_seconds_per_clock / cores))

    @property
    def own_rules(self) -> Mapping[Market, MarketRules]:
        """Returns the rules of the markets that have their own."""
        return {t.market: t.rules for t in (*self.spot, self.reliable) if t.rules is not None}

    def rules_of(self, market: Market) -> MarketRules:
        """Returns the billing and eviction rules of ``market``. Raises KeyError for any other market."""
        return self.market_option(market).rules or self.rules
