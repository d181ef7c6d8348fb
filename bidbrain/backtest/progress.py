"""Tracks how far n jobs have come: work done, work that is not safe yet, and pauses.

Mutable on purpose and private to the engine, as ``footprint_table.py``. Knows rates of work and moments, but
no machines.
"""

from __future__ import annotations

import math

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.backtest.job import BacktestJob
from bidbrain.backtest.price_tape import NEVER
from bidbrain.bidding.decision_batch import Codes
from bidbrain.strategies.recovery import Checkpointing, Recovery

_WHOLE = 1e-9
"""Part of a clock within which work counts as whole clocks; sums of floats miss by less."""
_ALL = 1 - 1e-12
"""Share of a job's work that counts as all of it, for the same reason."""


class JobProgress:
    """Holds arrays (n,), one entry for each job that is not done."""

    def __init__(self, job: BacktestJob, recovery: Recovery, lambda_s: float, begins: Codes) -> None:
        self._job = job
        self._checkpoints = recovery if isinstance(recovery, Checkpointing) else None
        self._pause_s = math.ceil(self._checkpoints.restart_s if self._checkpoints else lambda_s)
        self.now = begins.copy()
        self._paused_until = begins.copy()
        self._work = np.zeros(len(begins))
        self._unsaved = np.zeros(len(begins))
        """Work since the last checkpoint."""
        self._running_s = np.zeros(len(begins))
        """Seconds at work since the last checkpoint, or the last loss.

        Pauses and times without a machine do not count: nothing is done in them that could be saved.
        """

    def work_rate(self, ideal: Floats) -> Floats:
        """Returns core-seconds of work per second, given what machines do that never checkpoint."""
        return ideal * (1.0 - self._checkpoints.overhead) if self._checkpoints else ideal

    def finish_time(self, rate: Floats) -> Codes:
        """Returns, (n,), the first second at which all work is done if the rate stays."""
        from_then = np.maximum(self.now, self._paused_until)
        left = np.maximum(self._job.work * _ALL - self._work, 0.0)
        needed = np.full(len(left), np.inf)
        np.divide(left, rate, out=needed, where=rate > 0)
        # Infinite times must not be cast to integers.
        soon = needed < 1e12
        return np.where(soon, from_then + np.ceil(np.where(soon, needed, 0)).astype(np.int64), NEVER)

    def advance_to(self, rate: Floats, to: Codes) -> None:
        """Adds the work done at ``rate`` until ``to`` (n,), pauses left out."""
        seconds = np.maximum(to - np.maximum(self.now, self._paused_until), 0)
        self._work += seconds * rate
        self.now = to
        if self._checkpoints is not None:
            interval_s = self._checkpoints.interval_s
            self._running_s += np.where(rate > 0, seconds, 0)
            self._unsaved += seconds * rate
            # Only the last checkpoint of the stretch matters: what came after it is at risk.
            saved = self._running_s >= interval_s
            self._running_s = np.where(saved, self._running_s % interval_s, self._running_s)
            self._unsaved = np.where(saved, self._running_s * rate, self._unsaved)

    def pause_jobs(self, rows: Codes) -> None:
        """Stops work for a while: lambda, or a restart."""
        self._paused_until[rows] = self.now[rows] + self._pause_s

    def lose_unsaved(self, rows: Codes) -> None:
        """Takes machines from ``rows``: what was not saved is done again."""
        self.pause_jobs(rows)
        if self._checkpoints is not None:
            # A job that loses two allocations at once loses its unsaved work only once.
            rows = np.unique(rows)
            self._work[rows] -= self._unsaved[rows]
            self._unsaved[rows], self._running_s[rows] = 0.0, 0.0

    def clocks_done(self, rows: Codes) -> Codes:
        """Returns the clocks that are done; the job must have clocks."""
        assert self._job.core_seconds_per_clock is not None
        done: Codes = np.floor(self._work[rows] / self._job.core_seconds_per_clock + _WHOLE).astype(np.int64)
        return done

    def restart_from(self, rows: Codes, clocks: Codes) -> None:
        """Continues after ``clocks``: what came later is done again."""
        assert self._job.core_seconds_per_clock is not None
        self._work[rows] = clocks * self._job.core_seconds_per_clock
        # The wait for the new machines replaces any pause: nothing works before they have joined.
        self._paused_until[rows] = self.now[rows]

    def work_left(self, rows: Codes) -> Floats:
        """Returns core-seconds to go, as a decision knows them: by whole clocks where the job has clocks."""
        per_clock, work = self._job.core_seconds_per_clock, self._work[rows]
        if per_clock is not None:
            work = np.floor(work / per_clock + _WHOLE) * per_clock
        return np.maximum(self._job.work - work, 0.0)

    def keep_rows(self, rows: Codes) -> None:
        """Drops all jobs but ``rows``."""
        self.now, self._paused_until = self.now[rows], self._paused_until[rows]
        self._work, self._unsaved = self._work[rows], self._unsaved[rows]
        self._running_s = self._running_s[rows]
