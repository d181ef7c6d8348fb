"""Records allocations that ended: when, why, and how many machines they were. ``bills.py`` prices them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.footprint_table import FootprintTable
from bidbrain.bidding.decision_batch import Codes


@dataclass(frozen=True, slots=True, eq=False)
class EndedAllocations:
    """Holds allocations that ended, each array (r,)."""

    job: Codes
    market: Codes
    count: Codes
    bid: Floats
    """Infinite on demand."""
    number: Codes
    """From 1 within its job, in the order of requests."""
    requested_at: Codes
    runs_at: Codes
    end: Codes
    """No later than the end of its job."""
    evicted: Flags
    at_finish: Flags
    """Whether it was released because its job was done."""

    def select(self, rows: Flags) -> EndedAllocations:
        """Returns those of ``rows``."""
        return EndedAllocations(*(getattr(self, column.name)[rows] for column in fields(self)))

    @property
    def on_demand(self) -> Flags:
        return np.isinf(self.bid)

    @property
    def traded_market(self) -> Codes:
        """Returns, (r,), the market to read spot prices of; any where machines are on demand."""
        return np.where(self.on_demand, 0, self.market)


class TerminationLog:
    """Records allocations as they end."""

    def __init__(self) -> None:
        none, no_bids = np.empty(0, np.int64), np.empty(0)
        self._rows: list[tuple[Codes | Floats | Flags, ...]] = [
            (none, none, none, no_bids, none, none, none, np.empty(0, np.bool_))
        ]

    def add_ended(
        self, jobs: Codes, places: FootprintTable, where: tuple[Codes, Codes], end: Codes, evicted: bool
    ) -> None:
        """Ends those of ``jobs`` at ``where`` in ``places`` at ``end``, if their jobs last that long."""
        columns = (places.market, places.count, places.bid, places.number, places.runs_at)
        flags = np.full(len(jobs), evicted)
        self._rows.append((jobs, *(column[where] for column in columns), end, flags))

    def ended_allocations(self, finish: Codes, boot_s: int) -> EndedAllocations:
        """Returns all of them, by job and number; ``finish`` (n,) ends jobs, and what they still had."""
        job, market, count, bid, number, runs_at, end, evicted = (
            np.concatenate(column) for column in zip(*self._rows, strict=True)
        )
        # A machine warned shortly before its job is done is released with the job, not evicted.
        evicted = evicted & (end <= finish[job])
        at_finish = ~evicted & (end >= finish[job])
        end = np.minimum(end, finish[job])
        columns = (job, market, count, bid, number, runs_at - boot_s, runs_at, end, evicted, at_finish)
        order = np.lexsort((number, job))
        return EndedAllocations(*(column[order] for column in columns))
