"""The footprints of n jobs as columns: each allocation has a place, which is taken again once it is empty.

Mutable on purpose and private to the engine: a backtest writes a few numbers at a time into large arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.price_tape import NEVER
from bidbrain.bidding.decision_batch import Codes

_FIRST_PLACES: Final = 4


@dataclass(slots=True, eq=False)
class Places:
    """Arrays (n, a). An empty place has count 0; its other columns mean nothing."""

    market: Codes
    count: Codes
    bid: Floats
    """Infinite on demand."""
    runs_at: Codes
    works_from: Codes
    """When it has joined the training."""
    warned_at: Codes
    """When the provider will say that it takes the machines; nobody is told before."""
    until: Codes
    """End of the hour it is held for."""
    leaves_at: Codes
    """When it will be safe to end, once it is given up; ``NEVER`` while it stays."""
    number: Codes
    """From 1, in the order of requests."""
    refused: Flags
    """Asked for in vain, of which the job has not heard yet."""

    @classmethod
    def empty(cls, jobs: int) -> Places:
        """No allocation at all."""

        def column() -> Codes:
            return np.zeros((jobs, _FIRST_PLACES), np.int64)

        bids = np.zeros((jobs, _FIRST_PLACES))
        never = np.full((jobs, _FIRST_PLACES), NEVER)
        heard = np.zeros((jobs, _FIRST_PLACES), np.bool_)
        return cls(
            column(), column(), bids, column(), column(), never, column(), never.copy(), column(), heard
        )

    @property
    def staying(self) -> Flags:
        """Held, neither warned nor given up."""
        stays: Flags = (self.count > 0) & (self.leaves_at == NEVER)
        return stays

    def rows(self, chosen: Codes) -> Places:
        """Copies of the footprints at ``chosen``."""
        return Places(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def free(self, rows: Codes) -> Codes:
        """An empty place in each of ``rows``; makes room where there is none."""
        if (self.count[rows] > 0).all(axis=1).any():
            for f in fields(self):
                column = getattr(self, f.name)
                setattr(self, f.name, np.concatenate([column, np.zeros_like(column)], axis=1))
        found: Codes = (self.count[rows] > 0).argmin(axis=1)
        return found
