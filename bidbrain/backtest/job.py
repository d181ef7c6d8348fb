"""Describes the job that is run from every start, and how the world around it behaves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bidbrain.strategies.reliable_tier import Restart
from pricing_data.model.units import Seconds

DRAIN_S: Final = 10
"""Seconds from a planned end to safe-to-end, as in a modelled training: then the machine is released."""
_OF_A_CLOCK: Final = 1e-6
"""Work this near to whole clocks counts as whole: five times 14.4 is not quite a multiple of 14.4."""


class Accounting(StrEnum):
    """Says what the last hours of a job cost."""

    LEDGER = "ledger"
    """Charges what the cloud does: hours that were begun."""
    PAPER = "paper"
    """Harlap 4.5.2: minutes left when the job is done are not charged, because the next job uses them."""


@dataclass(frozen=True, slots=True)
class BacktestJob:
    """Describes ``work`` core-seconds, done in clocks as a running job does them."""

    work: float
    boot_s: int = 0
    """Seconds from a request to a running machine."""
    core_seconds_per_clock: float | None = None
    """Decisions know of whole clocks only; None: they know all work done."""
    deadline_s: Seconds | None = None
    accounting: Accounting = Accounting.LEDGER
    restart: Restart | None = None
    """Its restart without reliable machines; None: it cannot restart, and these are on demand."""

    def __post_init__(self) -> None:
        if self.work <= 0 or self.boot_s < 0:
            raise ValueError(
                f"a job needs work above 0 and a boot of at least 0, not {self.work}, {self.boot_s}"
            )
        per_clock = self.core_seconds_per_clock
        clocks = 1.0 if per_clock is None else self.work / per_clock
        if not math.isclose(clocks, round(clocks), rel_tol=0, abs_tol=_OF_A_CLOCK):
            raise ValueError(f"the work of a job ({self.work}) is a whole number of clocks of {per_clock}")
