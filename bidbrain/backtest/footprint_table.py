"""Holds the footprints of n jobs as columns: each allocation has a place, which is reused once empty.

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
class FootprintTable:
    """Holds arrays (n, a). An empty place has count 0; its other columns mean nothing."""

    market: Codes
    count: Codes
    bid: Floats
    """Infinite on demand."""
    runs_at: Codes
    works_from: Codes
    """The moment at which it has joined the training."""
    warned_at: Codes
    """The moment at which the provider will warn of the eviction; no strategy sees it before."""
    until: Codes
    """End of the hour it is held for."""
    leaves_at: Codes
    """The moment from which it is safe to end, once given up; ``NEVER`` while it stays."""
    number: Codes
    """From 1, in the order of requests."""
    refused: Flags
    """Refused, and not reported to the job yet."""

    @classmethod
    def for_jobs(cls, jobs: int) -> FootprintTable:
        """Makes a table without any allocation."""

        def zero_column() -> Codes:
            return np.zeros((jobs, _FIRST_PLACES), np.int64)

        bids = np.zeros((jobs, _FIRST_PLACES))
        # A new array for each column: the engine writes into them.
        never = np.full((jobs, _FIRST_PLACES), NEVER)
        heard = np.zeros((jobs, _FIRST_PLACES), np.bool_)
        return cls(
            zero_column(),
            zero_column(),
            bids,
            zero_column(),
            zero_column(),
            never,
            zero_column(),
            never.copy(),
            zero_column(),
            heard,
        )

    @property
    def is_staying(self) -> Flags:
        """Returns which are held, neither warned nor given up."""
        stays: Flags = (self.count > 0) & (self.leaves_at == NEVER)
        return stays

    def clear_gone(self, now: Codes) -> None:
        """Empties the places of machines that were given up and are gone by ``now`` (n,)."""
        self.count[self.leaves_at <= now[:, None]] = 0

    def select(self, chosen: Codes) -> FootprintTable:
        """Returns copies of the footprints at ``chosen``."""
        return FootprintTable(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def empty_place(self, rows: Codes) -> Codes:
        """Returns an empty place in each of ``rows``; makes room where there is none."""
        if (self.count[rows] > 0).all(axis=1).any():
            for f in fields(self):
                column = getattr(self, f.name)
                # Doubling: a footprint rarely grows again after that.
                setattr(self, f.name, np.concatenate([column, np.zeros_like(column)], axis=1))
        # ``argmin`` of booleans is the first False: the first place without machines.
        found: Codes = (self.count[rows] > 0).argmin(axis=1)
        return found
