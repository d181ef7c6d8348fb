"""Describes how a training recovers from the loss of machines, as far as recovery costs time or work.

    delta   cost_s       time that one checkpoint takes
    M       mttf_s       mean time to failure of the footprint
    tau     interval_s   useful time between two checkpoints

Knows no markets and no money.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

from pricing_data.model.units import Seconds


@dataclass(frozen=True, slots=True)
class Elastic:
    """Marks AgileML: reliable machines keep the model, so any other loss costs lambda and no work."""


ELASTIC: Final = Elastic()


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """Describes checkpoints to durable storage without reliable machines.

    An eviction loses the work since the last checkpoint.
    """

    interval_s: Seconds
    """Seconds at work between checkpoints. Starts, pauses and restarts do not count; a loss starts it anew.

    It is a time, so machines twice as fast lose at most twice as much work.
    """
    overhead: float
    """Share of the running time spent on checkpoints, in [0, 1)."""
    restart_s: Seconds
    """Seconds without progress after an eviction, on top of the start of new machines."""

    def __post_init__(self) -> None:
        if not 0 <= self.overhead < 1 or self.interval_s <= 0 or self.restart_s < 0:
            raise ValueError(
                f"checkpointing needs an overhead in [0, 1), an interval above 0 and a restart time of at "
                f"least 0, not {self.overhead}, {self.interval_s} and {self.restart_s}"
            )

    @classmethod
    def at_youngs_interval(
        cls, cost_s: float, mttf_s: float, restart_s: float, overhead: float | None = None
    ) -> Checkpointing:
        """Returns checkpoints at the interval that loses least (Young 1974; Daly 2006, first order):

            tau = sqrt(2 delta M)

        ``overhead`` is the measured share of time; None computes it, as delta / (tau + delta).
        """
        interval_s = math.sqrt(2 * cost_s * mttf_s)
        share = cost_s / (interval_s + cost_s) if overhead is None else overhead
        return cls(Seconds(interval_s), share, Seconds(restart_s))

    @property
    def lost_s(self) -> Seconds:
        """Returns the expected seconds without progress per eviction."""
        # Evictions fall evenly within an interval, so half of one is redone after the restart.
        return Seconds(self.restart_s + self.interval_s / 2)


Recovery: TypeAlias = Elastic | Checkpointing
