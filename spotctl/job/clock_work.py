"""Finds how much work a clock is, and how that is known: the basis of plans and bills (decision 39). Pure.

In order: what the job file says; what was measured; what the application estimates from the size of its
input; an assumption. A launch uses the same figure as the plan that it showed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from spotctl.control.run_spec import RunSpec
from spotctl.job.input_survey import InputSize
from spotctl.job.spec import JobSpec

if TYPE_CHECKING:
    from agileml.trial import ClockTime

CLOCK_S: Final = 0.03
"""Seconds that a clock takes this computer besides its work, for messages: measured on two cores."""
ESTIMATES_WITHIN: Final = 3.0
"""Factor by which an application's estimate may be off, either way."""


class WorkSource(StrEnum):
    """Names where the figure comes from."""

    SAID = "job file"
    MEASURED = "measured"
    ESTIMATED = "estimated"
    ASSUMED = "assumed"
    RECORDED = "record"
    """From the run that goes on."""


@dataclass(frozen=True, slots=True)
class ClockWork:
    """Gives the work of a clock or step in ``core_seconds``, and what it takes a core ``here``, if known."""

    core_seconds: float
    source: WorkSource
    here: float | None = None
    measured: ClockTime | None = None

    @property
    def range(self) -> tuple[float, float] | None:
        """Returns the least and the most it may be; None where the job file says it, or nothing is known."""
        if self.source is WorkSource.MEASURED and self.measured is not None:
            return self.measured.low, self.measured.high
        if self.source is WorkSource.ESTIMATED:
            return self.core_seconds / ESTIMATES_WITHIN, self.core_seconds * ESTIMATES_WITHIN
        return None

    def slower_here(self, rate: float, speed: float) -> float | None:
        """Returns how many times slower this computer computes than prices pass at ``speed``.

        ``rate``: core-seconds per second of the planned machines. None where nothing says what a clock takes.
        """
        if self.here is None:
            return None
        in_time_s = self.core_seconds / (rate * speed)
        return (self.here / (os.cpu_count() or 1) + CLOCK_S) / in_time_s


def find_clock_work(
    spec: JobSpec, terms: RunSpec, size: InputSize | None, measured: ClockTime | None = None
) -> ClockWork:
    """Returns the best figure there is; ``terms`` has what the job file says, or else the assumption."""
    estimate = None if size is None else size.clock_core_seconds
    said = spec.local.core_seconds_per_clock is not None
    if spec.command is not None:
        said = spec.command.work is not None
    here = estimate if measured is None else measured.core_seconds
    if said:
        return ClockWork(terms.work.core_seconds_per_clock, WorkSource.SAID, here, measured)
    if measured is not None:
        return ClockWork(measured.core_seconds, WorkSource.MEASURED, here, measured)
    if estimate is not None:
        return ClockWork(estimate, WorkSource.ESTIMATED, here)
    return ClockWork(terms.work.core_seconds_per_clock, WorkSource.ASSUMED)
