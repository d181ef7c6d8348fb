"""Defines what a job with a deadline is, how it stands, and what may run next.

    DeadlineJob     what was asked: work, deadline, what a restart costs, what machines cost
    DeadlineState   how it stands now, as the live controller sees it
    DeadlineStates  the same for n jobs at once, as arrays: what every rule of this package is written for
    Choice          what to run until the next decision, and why

A job runs on one target footprint at a time, either all spot or all on-demand: work is counted in seconds of
that footprint at full speed, prices are the whole footprint's. Time goes by in ticks, the longest that a
decision stands. The cloud, and how the footprint was chosen, are not known here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Flags, Floats
from pricing_data.model.units import HOUR_S, Seconds, Usd, UsdPerHour

Codes = npt.NDArray[np.int64]
"""Values of ``MachineKind``."""


class MachineKind(IntEnum):
    """Says what runs, or shall run, during a tick."""

    NOTHING = 0
    SPOT = 1
    ON_DEMAND = 2

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class DeadlineJob:
    """Says what was asked, and what it costs to run it."""

    work_s: Seconds
    deadline_s: Seconds
    """From the start."""
    overhead_s: Seconds
    """Seconds without progress after starting any machine but the running one (start-up and recovery)."""
    tick_s: Seconds
    spot: UsdPerHour
    on_demand: UsdPerHour
    reserve_s: float = 0.0
    """Seconds kept free before the deadline, for late decisions and work that is lost with a machine."""

    def __post_init__(self) -> None:
        if self.work_s <= 0 or self.tick_s <= 0:
            raise ValueError(f"work and tick must be above 0 s, not {self.work_s} s and {self.tick_s} s")
        if min(self.deadline_s, self.overhead_s, self.reserve_s) < 0:
            raise ValueError("deadline_s, overhead_s and reserve_s are durations; none may be negative")
        if min(self.spot, self.on_demand) < 0 or not math.isfinite(self.spot + self.on_demand):
            raise ValueError(f"prices must be finite and not negative: {self.spot}, {self.on_demand} $/h")

    @property
    def tick_count(self) -> int:
        """Returns the whole ticks up to the deadline."""
        return int(self.deadline_s // self.tick_s)

    def tick_charges(self, seconds: float) -> Floats:
        """Returns dollars for ``seconds`` of each ``MachineKind``, shape (3,)."""
        return np.array([0.0, self.spot, self.on_demand]) * seconds / HOUR_S


@dataclass(frozen=True, slots=True)
class DeadlineState:
    """Says how one job stands."""

    at_s: Seconds
    """Since its start."""
    work_left_s: Seconds
    running: MachineKind
    overhead_left_s: Seconds
    """Seconds left of the running machine's start; 0 where nothing runs."""
    spot_up: bool
    """Whether spot machines can run in the coming tick: ours live, or new ones can be had."""
    budget_left: float = math.inf
    """Dollars not yet spent."""

    def as_batch(self, job: DeadlineJob) -> DeadlineStates:
        """Returns this state as one row."""
        return DeadlineStates(
            left_s=np.array([job.deadline_s - self.at_s]),
            work_left_s=np.array([float(self.work_left_s)]),
            running=np.array([int(self.running)], dtype=np.int64),
            overhead_left_s=np.array([float(self.overhead_left_s)]),
            spot_up=np.array([self.spot_up]),
            budget_left=np.array([float(self.budget_left)]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class DeadlineStates:
    """Holds the states of n jobs of one kind; every array has shape (n,)."""

    left_s: Floats
    """Until the deadline."""
    work_left_s: Floats
    running: Codes
    overhead_left_s: Floats
    spot_up: Flags
    budget_left: Floats

    def __len__(self) -> int:
        return len(self.left_s)

    def overhead_s(self, job: DeadlineJob, machine: MachineKind) -> Floats:
        """Returns seconds without progress from now if ``machine`` runs.

        That is what is left of its start, or a start's whole. Stopping is free.
        """
        if machine is MachineKind.NOTHING:
            return np.zeros(len(self))
        return np.where(self.running == machine, self.overhead_left_s, job.overhead_s)


@dataclass(frozen=True, slots=True)
class Choice:
    """Says what to run until the next decision."""

    machine: MachineKind
    expected_cost: Usd
    """Dollars from now to the end of the job, deciding as well later on; NaN from rules that expect none."""
    margin_s: Seconds
    """Safety margin that is left after the tick, at worst."""
    why: str
