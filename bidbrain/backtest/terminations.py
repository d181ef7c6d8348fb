"""Allocations that ended: when, why, and how many machines they were. What they cost is ``bills.py``'s."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.footprint_table import Places
from bidbrain.bidding.decision_batch import Codes


@dataclass(frozen=True, slots=True, eq=False)
class Allotments:
    """Allocations that ended, each array (r,)."""

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

    def only(self, rows: Flags) -> Allotments:
        """Those of ``rows``."""
        return Allotments(*(getattr(self, column.name)[rows] for column in fields(self)))

    @property
    def on_demand(self) -> Flags:
        return np.isinf(self.bid)

    @property
    def traded(self) -> Codes:
        """(r,): the market to read spot prices of; any where machines are on demand."""
        return np.where(self.on_demand, 0, self.market)


class Ends:
    """A growing record of them."""

    def __init__(self) -> None:
        none, no_bids = np.empty(0, np.int64), np.empty(0)
        self._rows: list[tuple[Codes | Floats | Flags, ...]] = [
            (none, none, none, no_bids, none, none, none, np.empty(0, np.bool_))
        ]

    def add(self, jobs: Codes, places: Places, where: tuple[Codes, Codes], end: Codes, evicted: bool) -> None:
        """Those of ``jobs`` at ``where`` in ``places`` end at ``end``, if their jobs go on so long."""
        columns = (places.market, places.count, places.bid, places.number, places.runs_at)
        flags = np.full(len(jobs), evicted)
        self._rows.append((jobs, *(column[where] for column in columns), end, flags))

    def allotments(self, finish: Codes, boot_s: int) -> Allotments:
        """All of them, by job and number; jobs end at ``finish`` (n,), and with them what they still had."""
        job, market, count, bid, number, runs_at, end, evicted = (
            np.concatenate(column) for column in zip(*self._rows, strict=True)
        )
        evicted = evicted & (end <= finish[job])
        at_finish = ~evicted & (end >= finish[job])
        end = np.minimum(end, finish[job])
        columns = (job, market, count, bid, number, runs_at - boot_s, runs_at, end, evicted, at_finish)
        order = np.lexsort((number, job))
        return Allotments(*(column[order] for column in columns))
