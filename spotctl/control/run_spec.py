"""What a run was started with: everything the core needs to know of its job, fixed for the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bidbrain.model import Limits, Scaling
from bidbrain.strategies.recovery import Checkpointing
from bidbrain.strategies.registry import DEFAULT
from pricing_data.model.market import Market, MarketRules
from pricing_data.model.units import Instant, MicroUsd, Seconds, UsdPerHour

AT_ONCE: Final = Seconds(0.0)
SAVE_WITHIN_S: Final = 1800
"""What a training saves can be moved within a notice; a store may take fifteen times as long."""


@dataclass(frozen=True, slots=True)
class Tradable:
    """A market the job may use: its on-demand price, and what one instance has and does."""

    market: Market
    on_demand: UsdPerHour
    cores: int
    rules: MarketRules | None = None
    """How it bills and evicts; None: as the run's rules say."""
    speed: float | None = None
    """Work per second of one instance, where that is not its cores: a program need not use all of them."""

    @property
    def nu(self) -> float:
        """Work per second of one instance, in core-seconds, as far as is known before the start."""
        return float(self.cores) if self.speed is None else self.speed


@dataclass(frozen=True, slots=True)
class Stop:
    """When training is done: whichever comes first of those that are set."""

    clocks: int | None
    seconds: Seconds | None = None
    objective_delta: float | None = None
    """Stop once two reports of the objective in a row differ by no more than this."""

    @property
    def foreseen(self) -> bool:
        """Whether it can be said beforehand when that is at the latest."""
        return self.clocks is not None or self.seconds is not None


@dataclass(frozen=True, slots=True)
class Queued:
    """Of a job that a queue runs: it holds spot machines within its leases only, and begins with the first.

    ``promised``: its deadline is kept by machines on demand, which the queue left room and money for. Such a
    job begins at once. A deadline that was not promised is the policy's affair, and no decision's.
    ``rents``: the markets whose machines on demand are kept for it.
    """

    promised: bool
    rents: tuple[Market, ...] = ()


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a gigabyte costs that leaves a region of ``cloud`` (``to`` "region") or the cloud ("cloud")."""

    cloud: str
    to: str
    usd_gb: float


@dataclass(frozen=True, slots=True)
class Luggage:
    """What a job takes along to another region: its newest checkpoint."""

    size_bytes: int
    """As its file says; the size of the newest one is what counts as soon as there is one."""
    bytes_per_s: float
    tariffs: tuple[Tariff, ...]


@dataclass(frozen=True, slots=True)
class Keeping:
    """An elastic job writes its state to where no machine's death reaches it: every ``clocks`` clocks, or
    every ``seconds``; one of both is 0."""

    clocks: int
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the plan of the launch said, to be read beside what came of it."""

    cost: MicroUsd
    seconds: Seconds
    """From the start to the end of the work."""
    evictions: float
    """Allocations that are taken away."""
    machines: int
    """How many work together, reliable ones included."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one run.

    ``rules``: of all its markets or, where they are of several clouds, what may be counted on in any of them.
    ``core_seconds_per_clock``: nominal work of one clock, in core-seconds. ``deadline_s`` counts from
    the start. ``prices``: how the prices are to be called wherever they are shown. ``reliable``: of what
    kind reliable machines are; ``reliable_count`` of them, and none where checkpoints take their place.
    """

    job: str
    run: str
    seed: int
    start: Instant
    rules: MarketRules
    reliable: Tradable
    reliable_count: int
    spot: tuple[Tradable, ...]
    limits: Limits
    scaling: Scaling
    stop: Stop
    core_seconds_per_clock: float
    prices: str
    deadline_s: Seconds | None = None
    budget: MicroUsd | None = None
    drain: bool = False
    start_s: Seconds = AT_ONCE
    """From a request to a running machine, as far as is known beforehand."""
    measure: bool = False
    """Whether phi, sigma, lambda and nu are taken from the job's own progress as soon as it shows them."""
    strategy: str = DEFAULT
    """One of ``bidbrain.strategies.registry.LIVE``."""
    checkpoints: Checkpointing | None = None
    """How the job survives the loss of its machine, where no reliable machine keeps what it has done."""
    saves_on_warning: bool = True
    """Whether a warning in time costs no work: always so with AgileML."""
    keeps_nothing: bool = False
    """Whether a program writes no checkpoints, so that it begins anew on every machine."""
    luggage: Luggage | None = None
    """What carrying its checkpoints elsewhere takes; None where they stay within one region."""
    keeps: Keeping | None = None
    """How an elastic job survives the loss of its last reliable machine; None: not at all."""
    queued: Queued | None = None
    """None: the job has its machines to itself."""
    modelled_speeds: Mapping[str, float] = field(default_factory=dict)
    """How fast a model of the job is on an instance type, as a multiple of its cores; 1 where nothing is
    said. No decision reads it.
    """
    expected: Expectation | None = None
    """What the plan said; None where it could say nothing of the whole job. No decision reads it."""

    def tradable(self, market: Market) -> Tradable:
        """The terms of one of the run's markets; KeyError for any other."""
        for entry in (*self.spot, self.reliable):
            if entry.market == market:
                return entry
        raise KeyError(str(market))

    @property
    def most_machines(self) -> int:
        """How many machines may work at once: one where a program runs, else reliable and spot ones."""
        return self.limits.max_instances + self.reliable_count if self.checkpoints is None else 1

    @property
    def end_within_s(self) -> Seconds:
        """For how long a training is waited for that should end: it may have a clock in hand, of which twice
        the time that its first machines alone would take is allowed, and a model to save.
        """
        cores = self.reliable.nu * max(1, self.reliable_count)
        return Seconds(SAVE_WITHIN_S + math.ceil(2 * self.core_seconds_per_clock / cores))

    @property
    def own_rules(self) -> Mapping[Market, MarketRules]:
        """Of the markets that have their own."""
        return {t.market: t.rules for t in (*self.spot, self.reliable) if t.rules is not None}

    def rules_of(self, market: Market) -> MarketRules:
        """By which ``market`` bills and evicts. KeyError for one that the run may not use."""
        return self.tradable(market).rules or self.rules
