"""Whether a deadline and a budget can be promised, and the least that can.

A promise may rest on nothing that can be taken away: it is kept by on-demand alone, started at once.
So the least deadline is what that takes, and the least budget what that costs; spot can only make the
job cheaper than its promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from bidbrain.deadline.model import Job
from pricing_data.model.units import HOUR_S, MicroUsd, Seconds, Usd

_DUST: Final = 1e-7
"""Dollars that rounding may lose: a tenth of the least that can be owed."""
_DUST_S: Final = 1e-6
"""And seconds."""
_MICROS_PER_USD: Final = 1_000_000
CENT: Final = 10_000
"""In micro-dollars."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What can be promised for a job, beside what was asked."""

    job: Job
    budget: Usd
    least_deadline_s: Seconds
    least_budget: Usd

    @property
    def in_time(self) -> bool:
        return self.job.deadline_s >= self.least_deadline_s - _DUST_S

    @property
    def covered(self) -> bool:
        return covers(self.budget, self.least_budget)

    @property
    def holds(self) -> bool:
        return self.in_time and self.covered

    @property
    def why_not(self) -> str:
        """What cannot be promised and what would do, for a person; empty where the promise holds."""
        told = []
        if not self.in_time:
            told.append(
                f"a deadline of {self.job.deadline_s / HOUR_S:.2f} h cannot be promised;"
                f" the least that works is {_hours_up(self.least_deadline_s):.2f} h"
            )
        if not self.covered:
            told.append(
                f"a budget of {self.budget:.2f} $ cannot be promised;"
                f" the least that works is {least_asked(self.least_budget) / _MICROS_PER_USD:.2f} $"
            )
        return "; ".join(told)


def least_deadline_s(job: Job) -> Seconds:
    """The earliest deadline, from the start, that on-demand alone is sure to keep: one start, the work and
    the job's reserve."""
    return Seconds(job.work_s + job.overhead_s + job.reserve_s)


def least_budget(job: Job) -> Usd:
    """What on-demand alone costs: one start and the work, ticks paid in full."""
    ticks = math.ceil((job.work_s + job.overhead_s) / job.tick_s)
    return Usd(ticks * job.tick_s / HOUR_S * job.on_demand)


def covers(budget: float, least: Usd) -> bool:
    """Whether ``budget`` dollars pay for what takes ``least``."""
    return budget >= least - _DUST


def least_asked(least: Usd, step: int = CENT) -> MicroUsd:
    """The least budget in whole ``step`` micro-dollars that covers ``least``: typed in, it works."""
    return MicroUsd(math.ceil((least - _DUST / 2) * _MICROS_PER_USD / step) * step)


def _hours_up(seconds: float) -> float:
    """To hundredths, rounded up: a limit that is told must work when it is typed in."""
    return math.ceil((seconds - _DUST_S / 2) / HOUR_S * 100) / 100
