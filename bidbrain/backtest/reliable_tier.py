"""The reliable machines of n jobs that may run on spot, and what becomes of a job that loses them.

    asked for   boot and join, and the training begins (again)
    warned      a decision is taken; nobody else is told, as the training cannot move what they keep
    ended       everything else is released, work goes back to the newest checkpoint, they are asked for anew

Mutable on purpose and private to the engine, as ``footprint_table.py``. After ``MOST_TAKEN`` restarts in a
row that reached no newer checkpoint they are on demand (``spotctl.control.restart``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.capacity import NEVER
from bidbrain.backtest.terminations import Allotments
from bidbrain.bidding.decision_batch import Codes
from bidbrain.strategies.base import NOTHING


@dataclass(slots=True, eq=False)
class Tier:
    """Arrays (n,)."""

    market: Codes
    """``NOTHING`` on demand."""
    bid: Floats
    runs_at: Codes
    joins_at: Codes
    warned_at: Codes
    """``NEVER`` once it was said."""
    ends_at: Codes
    asks_at: Codes
    """When they are asked for again, where no market had any."""
    kept: Codes
    """Clock of the newest checkpoint."""
    began_from: Codes
    """Clock that training last began from; -1 before the first restart."""
    in_vain: Codes
    """Restarts in a row that reached no newer checkpoint."""

    @classmethod
    def empty(cls, jobs: int) -> Tier:
        def never() -> Codes:
            return np.full(jobs, NEVER)

        zero, nowhere = np.zeros(jobs, np.int64), np.full(jobs, NOTHING)
        bids = np.full(jobs, np.inf)
        return cls(nowhere, bids, never(), never(), never(), never(), never(), zero, zero - 1, zero.copy())

    def rows(self, chosen: Codes) -> Tier:
        """Copies of the entries at ``chosen``."""
        return Tier(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def starting(self, now: Codes) -> Flags:
        """(n,): whether nothing trains, as they did not join yet."""
        waits: Flags = self.joins_at > now
        return waits

    def next_events(self, now: Codes) -> Codes:
        """(n,): when they join, are warned or end."""
        joins = np.where(self.joins_at > now, self.joins_at, NEVER)
        return np.minimum(np.minimum(joins, self.warned_at), np.minimum(self.ends_at, self.asks_at))


class TierEnds:
    """A growing record of reliable machines that ended."""

    def __init__(self) -> None:
        self._rows: list[tuple[Codes, Codes, Floats, Codes, Codes, Flags]] = []

    def add(self, jobs: Codes, tier: Tier, rows: Codes, end: Codes, *, evicted: bool) -> None:
        """Those of ``rows`` of ``tier`` end at ``end``."""
        flags = np.full(len(rows), evicted)
        self._rows.append((jobs, tier.market[rows], tier.bid[rows], tier.runs_at[rows], end, flags))

    def allotments(self, count: int, boot_s: int) -> Allotments:
        """All of them, by job and time; ``count`` machines each."""
        if not self._rows:
            none = np.empty(0, np.int64)
            self._rows.append((none, none, np.empty(0), none, none, np.empty(0, np.bool_)))
        job, market, bid, runs_at, end, evicted = (
            np.concatenate(column) for column in zip(*self._rows, strict=True)
        )
        order = np.lexsort((runs_at, job))
        job, market, bid, runs_at, end, evicted = (
            column[order] for column in (job, market, bid, runs_at, end, evicted)
        )
        return Allotments(
            job=job,
            market=np.maximum(market, 0),
            count=np.full(len(job), count),
            bid=bid,
            number=np.zeros(len(job), np.int64),
            requested_at=runs_at - boot_s,
            runs_at=runs_at,
            end=np.maximum(end, runs_at),
            evicted=evicted & (end > runs_at),
            at_finish=~evicted,
        )
