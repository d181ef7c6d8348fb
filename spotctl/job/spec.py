"""Defines a job as a value: what its file says, complete and checked.

``file.py`` makes these from YAML. Nothing here knows a market, a price or an application: the catalogue knows
whether ``c5.xlarge`` exists, the application whether ``rank`` means something.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pricing_data.model.units import MicroUsd, Seconds
from spotctl.control.engine_traits import EngineTraits

Argument: TypeAlias = str | int | float | bool | tuple[str | int | float | bool, ...]

DEFAULT_STRATEGY: Final = "auto"
NEED_DEADLINE: Final = ("uniform-progress", "greedy")
"""Strategies that are ways to keep a deadline: ``bidbrain.strategies.registry.NEED_DEADLINE``."""
STRATEGIES: Final = (
    DEFAULT_STRATEGY,
    "proteus",
    "standard-agileml",
    "failover-agileml",
    "tierml",
    "on-demand",
    *NEED_DEADLINE,
)
"""The names in ``bidbrain.strategies.registry.LIVE``, repeated: reading a job file must not import numpy."""
_SIGMA: Final = Seconds(60.0)
_LAMBDA: Final = Seconds(120.0)
LINK_MBIT_S: Final = 1000.0
"""Default bandwidth of a link."""
_BOOT: Final = Seconds(60.0)
_LEASE: Final = Seconds(12 * 3600.0)
_EVERY: Final = Seconds(600.0)
_RESTART: Final = Seconds(60.0)
_BY_CLOCKS: Final = Seconds(0.0)


@dataclass(frozen=True, slots=True)
class Convergence:
    """Stops training when two reports of ``metric`` in a row differ by no more than ``delta``."""

    metric: str
    delta: float


@dataclass(frozen=True, slots=True)
class StopSpec:
    """Ends the job at whichever condition comes first, of those that are set."""

    clocks: int | None = None
    seconds: Seconds | None = None
    converged: Convergence | None = None


@dataclass(frozen=True, slots=True)
class ReliableSpec:
    """Describes the machines that are never revoked. None: wherever the spot machines are."""

    instances: int
    instance_type: str
    cloud: str | None = None
    region: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Amount:
    """Requires an amount: "4" (exactly) or "4+" (at least)."""

    value: float
    or_more: bool

    def __str__(self) -> str:
        return f"{self.value:g}{'+' if self.or_more else ''}"

    def admits(self, amount: float) -> bool:
        """Tells whether an instance with ``amount`` of it will do."""
        return amount >= self.value if self.or_more else amount == self.value


@dataclass(frozen=True, slots=True)
class SpotSpec:
    """Selects revocable machines, and how many. Empty tuples and None allow everything."""

    max_instances: int
    max_per_allocation: int
    cpus: Amount | None = None
    memory_gib: Amount | None = None
    instance_types: tuple[str, ...] = ()
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObjectiveSpec:
    """Says what to minimize, how, and within what limits. ``deadline`` counts from the start of the job."""

    minimize: str = "cost"
    strategy: str = DEFAULT_STRATEGY
    """One of ``bidbrain.strategies.registry.LIVE``."""
    deadline: Seconds | None = None
    budget: MicroUsd | None = None


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """Describes how the job scales: the papers' phi, sigma and lambda (Harlap 4.3.1, table 4.1).

    ``phi``: scaling efficiency; ``sigma``: time lost when the footprint changes; ``lambda_``: time lost
    to an eviction; ``stage2_above``, ``stage3_above``: transient machines per reliable one.
    """

    phi: float = 0.95
    sigma: Seconds = _SIGMA
    lambda_: Seconds = _LAMBDA
    stage2_above: float = 1.0
    stage3_above: float = 15.0
    measure: bool = False
    """Whether the job's own progress corrects ``phi``, ``sigma``, ``lambda_`` and each type's speed."""


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """Says how model and input are cut, and how far apart workers may be.

    ``link_mbit_s``: what one machine can send, in megabits a second. ``measured_stages``: choose stages by
    the measured cost of clocks, once measured; until then, and in plans, by the machines' ratio.
    ``input_bytes``: how much of the input a machine keeps in memory; None: all that it ever read.
    """

    staleness: int
    partitions: int
    shards: int
    link_mbit_s: float = LINK_MBIT_S
    measured_stages: bool = False
    input_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LocalSpec:
    """Describes machines of the local world. ``core_seconds_per_clock`` is nominal work of one clock.

    ``lease``: nominal time for which machines go on without a driver, because spotctl has died.
    ``speeds``: the job's speed on an instance type where its progress is modelled, as a multiple of what
    the cores say. Decisions do not get it; it has to show.
    """

    throttle: bool = True
    core_seconds_per_clock: float | None = None
    boot: Seconds = _BOOT
    lease: Seconds = _LEASE
    progress: str = "measured"
    speeds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelCheckpoints:
    """Says where an elastic job stores consistent states against the loss of its reliable machines, and when.

    ``store``: a folder or a URL, below which every job has a folder of its own. ``clocks``: between two
    checkpoints; or ``seconds``, nominal; the other is 0. ``resume``: begin with the newest that an unfinished
    run left.
    """

    store: str
    clocks: int = 0
    seconds: Seconds = _BY_CLOCKS
    resume: bool = False


@dataclass(frozen=True, slots=True)
class CommandCheckpoints:
    """Says how a command stores what it has done. Times are nominal.

    ``store``: a folder or a URL, below which every run has a folder of its own; None: the run's record.
    ``every``: how often the program writes one, as far as decisions and replays know: after so much running
    time, on each machine anew, at the end of a step. ``restart``: from the start of the program on another
    machine to its first new step. ``on_warning``: whether it writes one when it gets SIGTERM, so that a
    timely warning costs no work. ``size_bytes``, ``link_mbit_s``: how large one is, as far as is known
    beforehand, and how fast it moves to another region.
    """

    store: str | None = None
    every: Seconds = _EVERY
    restart: Seconds = _RESTART
    on_warning: bool = True
    size_bytes: int = 0
    link_mbit_s: float = LINK_MBIT_S
    keeps: bool | None = None
    """Whether the program writes checkpoints at all; None: its file does not say, and decisions rely on them.
    """


@dataclass(frozen=True, slots=True)
class CoreGains:
    """Says what a program gains from a machine with more cores; at most one field is set.

    ``cores``: it uses so many and no more. ``phi``: each doubling of cores makes it ``2 phi`` times as fast.
    With neither it is assumed to be no faster than on the machine that its work is told for, and slower in
    proportion where cores are fewer.
    """

    cores: int | None = None
    phi: float | None = None

    def speed(self, cores: int, reference: int) -> float:
        """Returns work per second on a machine of ``cores``; ``reference``: the cores of ``work.on``."""
        if self.phi is not None:
            return cores * float(self.phi ** math.log2(cores))
        return float(min(cores, self.cores or reference))


@dataclass(frozen=True, slots=True)
class WorkSpec:
    """Says how much work a command is: ``steps`` of its own counting, ``takes`` nominal seconds on ``on``."""

    steps: int
    takes: Seconds
    on: str | None = None
    """An instance type; None: the one that the job may use."""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """Describes a program that checkpoints. ``workdir`` and local sources of ``file_mounts`` are absolute
    paths.

    ``file_mounts``: from a path below the working folder to a path or URL. ``secrets``: names of variables
    of the user who launches; their values are no part of a job. ``retries``: failures that are tried again.
    """

    run: str
    setup: str = ""
    workdir: str | None = None
    file_mounts: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    checkpoint: CommandCheckpoints = field(default_factory=CommandCheckpoints)
    work: WorkSpec | None = None
    retries: int = 1
    gains: CoreGains = field(default_factory=CoreGains)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Describes one job, complete and checked. ``data`` and ``output`` are absolute paths or URLs.

    Fields that a job of ``engine: command`` does not use are empty, and its reliable machines are None.
    """

    name: str
    engine: EngineTraits
    app: str
    args: Mapping[str, Argument]
    data: str
    stop: StopSpec
    reliable: ReliableSpec | None
    spot: SpotSpec
    objective: ObjectiveSpec
    scaling: ScalingSpec
    training: TrainingSpec
    drain: bool
    seed: int
    output: str
    local: LocalSpec
    envs: Mapping[str, str]
    command: CommandSpec | None = None
    """Set for ``engine: command``."""
    checkpoint: ModelCheckpoints | None = None
    """Set for ``engine: agileml``; None: it stores none."""
    score: bool = True
    """For ``engine: agileml``: whether the model is scored once the run is over."""
    columns: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """The columns of the data that the file names, by the application's names; ``others`` has a list."""
    prices: str | None = None
    """A name of ``spotctl.job.price_sources``, or an absolute path; None: the file does not say."""

    @property
    def keeps_checkpoints(self) -> bool | None:
        """Tells whether a program writes checkpoints at all, as its file says; None where it does not say."""
        return None if self.command is None else self.command.checkpoint.keeps
