"""Defines what is fixed for a run when it starts: all that the core needs to know of its job."""

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
"""A training can move what it saves within a notice; writing to a store may take fifteen times as long."""


@dataclass(frozen=True, slots=True)
class MarketOption:
    """Describes a market the job may use: its on-demand price, and what one instance has and does."""

    market: Market
    on_demand: UsdPerHour
    cores: int
    rules: MarketRules | None = None
    """Its billing and eviction rules; None: those of the run."""
    speed: float | None = None
    """Work per second of one instance, where that differs from its cores: a program need not use all of them.
    """

    @property
    def nu(self) -> float:
        """Returns work per second of one instance, in core-seconds, as far as is known before the start."""
        return float(self.cores) if self.speed is None else self.speed


@dataclass(frozen=True, slots=True)
class StopCondition:
    """Ends training at whichever condition comes first, of those that are set."""

    clocks: int | None
    seconds: Seconds | None = None
    objective_delta: float | None = None
    """Training stops once two reports of the objective in a row differ by no more than this."""

    @property
    def is_bounded(self) -> bool:
        """Tells whether a latest end is known beforehand."""
        return self.clocks is not None or self.seconds is not None


@dataclass(frozen=True, slots=True)
class QueueMembership:
    """Marks a job that a queue runs: it holds spot machines within its leases only, and begins with the
    first.

    ``promised``: the queue set aside room and money for machines on demand, which keep the job's deadline.
    Such a job begins at once. Where no deadline was promised, only the queue's policy takes care of it.
    ``rents``: the markets whose machines on demand are set aside for it.
    """

    promised: bool
    rents: tuple[Market, ...] = ()


@dataclass(frozen=True, slots=True)
class EgressTariff:
    """Gives the price of a gigabyte that leaves a region of ``cloud`` (``to`` "region") or the cloud
    ("cloud").
    """

    cloud: str
    to: str
    usd_gb: float


@dataclass(frozen=True, slots=True)
class MovableCheckpoint:
    """Describes what a job takes along to another region: its newest checkpoint."""

    size_bytes: int
    """Taken from the job file until the first checkpoint exists; from then on the newest one's size counts.
    """
    bytes_per_s: float
    tariffs: tuple[EgressTariff, ...]


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """Sets how often an elastic job writes its state to where no machine's death reaches it.

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
    """Allocations that the provider takes away."""
    machines: int
    """How many work together, reliable ones included."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Says where a run comes from. ``prices``: the name under which output shows its prices."""

    run: str
    seed: int
    prices: str
    expected: Expectation | None = None
    """The plan's forecast; None where it could not foresee the whole job. No decision reads it."""


@dataclass(frozen=True, slots=True)
class WorkTerms:
    """Says how much work the job is, and how it gets faster with machines.

    ``core_seconds_per_clock``: nominal work of one clock, in core-seconds.
    """

    stop: StopCondition
    core_seconds_per_clock: float
    scaling: ScalingModel
    measure: bool = False
    """Whether phi, sigma, lambda and nu are taken from the job's own progress as soon as it shows them."""
    modelled_speeds: Mapping[str, float] = field(default_factory=dict)
    """Speed of a simulated job on an instance type, as a multiple of its cores; 1 for types not listed. No
    decision reads it.
    """


@dataclass(frozen=True, slots=True)
class Objective:
    """Says what is wanted, and within what limits. ``deadline_s`` counts from the start."""

    strategy: str = DEFAULT
    """One of ``bidbrain.strategies.registry.LIVE``."""
    deadline_s: Seconds | None = None
    budget: MicroUsd | None = None
    drain: bool = False


@dataclass(frozen=True, slots=True)
class RecoveryTerms:
    """Says how the job survives the loss of its machines, and takes its state along."""

    checkpoints: Checkpointing | None = None
    """How the job survives the loss of its machine, where no reliable machine holds its state."""
    saves_on_warning: bool = True
    """Whether a timely warning costs no work: always so with AgileML."""
    keeps_nothing: bool = False
    """Whether a program writes no checkpoints, so that it begins anew on every machine."""
    luggage: MovableCheckpoint | None = None
    """What moving its checkpoints to another region takes; None where they stay within one."""
    keeps: CheckpointPolicy | None = None
    """How an elastic job survives the loss of its last reliable machine; None: not at all."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Holds everything that is fixed for one run.

    ``rules``: those of all its markets; with several clouds, what holds in any of them. ``reliable``: the
    market of reliable machines; ``reliable_count`` of them, and 0 where checkpoints take their place.
    """

    FLAT_OUTSIDE: ClassVar[tuple[str, ...]] = ("origin", "work", "objective", "recovery")
    """Values whose fields output shows among those of the spec itself."""

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
    """From a request to a running machine, as far as is known beforehand."""
    objective: Objective = Objective()
    recovery: RecoveryTerms = RecoveryTerms()
    queued: QueueMembership | None = None
    """None: the job has its machines to itself."""

    def market_option(self, market: Market) -> MarketOption:
        """Returns the option for one of the run's markets; raises KeyError for any other."""
        for entry in (*self.spot, self.reliable):
            if entry.market == market:
                return entry
        raise KeyError(str(market))

    @property
    def most_machines(self) -> int:
        """Returns how many machines may work at once: one for a program, else reliable and spot machines."""
        together = self.engine.gang_size
        return self.limits.max_instances + self.reliable_count if together is None else together

    @property
    def checkpointing(self) -> Checkpointing:
        """Returns how checkpoints replace reliable machines. Raises ValueError for an engine without them."""
        if not isinstance(self.recovery.checkpoints, Checkpointing):
            raise ValueError(f"{self.job} does not rely on checkpoints")
        return self.recovery.checkpoints

    @property
    def end_within_s(self) -> Seconds:
        """Returns how long to wait for a training that should end.

        It may have a clock in progress, of which twice the time on its first machines alone is allowed, and a
        model to save.
        """
        cores = self.reliable.nu * max(1, self.reliable_count)
        return Seconds(SAVE_WITHIN_S + math.ceil(2 * self.work.core_seconds_per_clock / cores))

    @property
    def own_rules(self) -> Mapping[Market, MarketRules]:
        """Returns the rules of those markets that have their own."""
        return {t.market: t.rules for t in (*self.spot, self.reliable) if t.rules is not None}

    def rules_of(self, market: Market) -> MarketRules:
        """Returns the billing and eviction rules of ``market``. Raises KeyError for one the run may not
        use.
        """
        return self.market_option(market).rules or self.rules
