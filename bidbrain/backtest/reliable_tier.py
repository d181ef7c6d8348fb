"""Tracks the reliable machines of n jobs that may run on spot, and what their loss does to a job.

    requested   boot and join, and the training begins (again)
    warned      a decision is taken; nobody else is told, as the training cannot move what they keep
    ended       everything else is released, work goes back to the newest checkpoint, they are requested anew

Mutable on purpose and private to the engine, as ``footprint_table.py``. After ``MAX_FAILED_RESTARTS``
restarts in a row that reached no newer checkpoint they are on demand (``spotctl.control.restart``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.capacity import NEVER
from bidbrain.backtest.terminations import EndedAllocations
from bidbrain.bidding.decision_batch import Codes
from bidbrain.strategies.base import NO_REQUEST


@dataclass(slots=True, eq=False)
class TierTable:
    """Holds arrays (n,), one entry for each job."""

    market: Codes
    """``NO_REQUEST`` means on demand."""
    bid: Floats
    runs_at: Codes
    joins_at: Codes
    warned_at: Codes
    """``NEVER`` once the warning was given."""
    ends_at: Codes
    asks_at: Codes
    """The moment of the next request, where no market had capacity."""
    checkpoint_clock: Codes
    """Clock of the newest checkpoint."""
    began_from: Codes
    """Clock at which training last began; -1 before the first restart."""
    failed_restarts: Codes
    """Restarts in a row that reached no newer checkpoint."""

    @classmethod
    def for_jobs(cls, jobs: int) -> TierTable:
        def never_column() -> Codes:
            return np.full(jobs, NEVER)

        zero, nowhere = np.zeros(jobs, np.int64), np.full(jobs, NO_REQUEST)
        bids = np.full(jobs, np.inf)
        return cls(
            nowhere,
            bids,
            never_column(),
            never_column(),
            never_column(),
            never_column(),
            never_column(),
            zero,
            zero - 1,
            zero.copy(),
        )

    def select(self, chosen: Codes) -> TierTable:
        """Returns copies of the entries at ``chosen``."""
        return TierTable(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def is_starting(self, now: Codes) -> Flags:
        """Returns, (n,), whether nothing trains because they have not joined yet."""
        waits: Flags = self.joins_at > now
        return waits

    def next_events(self, now: Codes) -> Codes:
        """Returns, (n,), when they join, are warned or end."""
        joins = np.where(self.joins_at > now, self.joins_at, NEVER)
        return np.minimum(np.minimum(joins, self.warned_at), np.minimum(self.ends_at, self.asks_at))


class TierTerminationLog:
    """Records reliable machines that ended."""

    def __init__(self) -> None:
        self._rows: list[tuple[Codes, Codes, Floats, Codes, Codes, Flags]] = []

    def add_ended(self, jobs: Codes, tier: TierTable, rows: Codes, end: Codes, *, evicted: bool) -> None:
        """Ends those of ``rows`` of ``tier`` at ``end``."""
        flags = np.full(len(rows), evicted)
        self._rows.append((jobs, tier.market[rows], tier.bid[rows], tier.runs_at[rows], end, flags))

    def ended_allocations(self, count: int, boot_s: int) -> EndedAllocations:
        """Returns all of them, by job and time; ``count`` machines each."""
        if not self._rows:
            none = np.empty(0, np.int64)
            self._rows.append((none, none, np.empty(0), none, none, np.empty(0, np.bool_)))
        job, market, bid, runs_at, end, evicted = (
            np.concatenate(column) for column in zip(*self._rows, strict=True)
        )
        # The last key of ``lexsort`` sorts first: by job, then by time.
        order = np.lexsort((runs_at, job))
        job, market, bid, runs_at, end, evicted = (
            column[order] for column in (job, market, bid, runs_at, end, evicted)
        )
        return EndedAllocations(
            job=job,
            market=np.maximum(market, 0),
            count=np.full(len(job), count),
            bid=bid,
            number=np.zeros(len(job), np.int64),
            requested_at=runs_at - boot_s,
            runs_at=runs_at,
            # Machines that end while they boot cost nothing.
            end=np.maximum(end, runs_at),
            evicted=evicted & (end > runs_at),
            at_finish=~evicted,
        )
