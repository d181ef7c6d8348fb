"""Decides whether a deadline and a budget can be promised, and finds the least that can.

A promise may depend on nothing that can be taken away: it is kept by on-demand alone, started at once. So the
least deadline is what that takes, and the least budget what that costs; spot can only make the job cheaper
than its promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from bidbrain.deadline.model import DeadlineJob
from pricing_data.model.units import HOUR_S, MicroUsd, Seconds, Usd

_DUST: Final = 1e-7
"""Dollars that rounding may lose: a tenth of the least that can be owed."""
_DUST_S: Final = 1e-6
"""Seconds that rounding may lose."""
_MICROS_PER_USD: Final = 1_000_000
CENT: Final = 10_000
"""In micro-dollars."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Says what can be promised for a job, beside what was asked."""

    job: DeadlineJob
    budget: Usd
    least_deadline_s: Seconds
    least_budget: Usd

    @property
    def in_time(self) -> bool:
        return self.job.deadline_s >= self.least_deadline_s - _DUST_S

    @property
    def within_budget(self) -> bool:
        return is_covered(self.budget, self.least_budget)

    @property
    def is_feasible(self) -> bool:
        return self.in_time and self.within_budget

    @property
    def why_not(self) -> str:
        """Says what cannot be promised and what would do, for people; empty where the promise is feasible."""
        told = []
        if not self.in_time:
            told.append(
                f"a deadline of {self.job.deadline_s / HOUR_S:.2f} h cannot be promised;"
                f" the least that works is {_round_up_hours(self.least_deadline_s):.2f} h"
            )
        if not self.within_budget:
            told.append(
                f"a budget of {self.budget:.2f} $ cannot be promised;"
                f" the least that works is {round_up_budget(self.least_budget) / _MICROS_PER_USD:.2f} $"
            )
        return "; ".join(told)


def least_deadline_s(job: DeadlineJob) -> Seconds:
    """Returns the earliest deadline, from the start, that on-demand alone is sure to keep.

    That is one start, the work and the job's reserve.
    """
    return Seconds(job.work_s + job.overhead_s + job.reserve_s)


def least_budget(job: DeadlineJob) -> Usd:
    """Returns what on-demand alone costs: one start and the work, ticks paid in full."""
    # The reserve is time kept free, not time paid for.
    ticks = math.ceil((job.work_s + job.overhead_s) / job.tick_s)
    return Usd(ticks * job.tick_s / HOUR_S * job.on_demand)


def is_covered(budget: float, least: Usd) -> bool:
    """Returns whether ``budget`` dollars pay for what takes ``least``."""
    return budget >= least - _DUST


def round_up_budget(least: Usd, step: int = CENT) -> MicroUsd:
    """Returns the least budget in whole ``step`` micro-dollars that covers ``least``: typed in, it works."""
    # Half the dust: a budget rounded up here must pass ``is_covered``.
    return MicroUsd(math.ceil((least - _DUST / 2) * _MICROS_PER_USD / step) * step)


def _round_up_hours(seconds: float) -> float:
    """Rounds up to hundredths of an hour: a limit that is shown must work when it is typed in."""
    return math.ceil((seconds - _DUST_S / 2) / HOUR_S * 100) / 100
