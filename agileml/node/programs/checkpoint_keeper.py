"""Copies a machine's checkpoints to the store and back, one at a time, beside the loop of its agent."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agileml.node.agent.watchdog import Stall, StallLog
from agileml.node.checkpoint_store import CheckpointError
from agileml.node.programs import messages as m
from agileml.node.programs.background_copy import BackgroundTask, NoteProgress, StallTimer
from agileml.node.programs.checkpoint_folder import Checkpoint
from agileml.node.programs.checkpoint_store import CheckpointStore, StoredCheckpoint
from agileml.node.programs.machine_disk import MachineDisk

STALLED_S: Final = 600.0
"""A copy that makes no progress for this long is given up. Each one that stalls doubles the limit."""
_TRY_STORE_AGAIN_S: Final = 2.0
_SUPERSEDED_S: Final = 30.0
"""The limit while the machine leaves and a newer checkpoint waits; twice the last upload if that is more."""
_REPORT_AFTER_S: Final = 60.0
"""A copy that makes no progress for this long is reported."""
_LEAST_RESERVE_S: Final = 1.0
"""The part of a notice reserved for storing the last checkpoint, before any upload was timed."""


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """Holds where a program resumes (None: from the beginning), and the newest checkpoint in the store.

    ``fetched``: whether ``checkpoint`` came from the store, rather than from this disk.
    """

    checkpoint: Checkpoint | None
    stored: StoredCheckpoint | None
    fetched: bool


class CopyTask:
    """Runs one copy at a time in a thread of its own, and watches its progress.

    ``machine``: the folder for reports of stalls. Call ``watch`` at every turn of the loop.
    """

    def __init__(self, machine: Path) -> None:
        self._task: BackgroundTask[Any] | None = None
        self._then: Callable[[BackgroundTask[Any]], None] = lambda _: None
        self._patience = StallTimer()
        self._stall_log, self._stall_reported = StallLog(machine, "agent"), False
        self.what = ""

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    def start(
        self, work: Callable[[NoteProgress], Any], then: Callable[[BackgroundTask[Any]], None], what: str
    ) -> None:
        """Starts ``work``. ``watch`` calls ``then`` once it has ended, with a result or an error."""
        self._task, self._then, self.what = BackgroundTask(work), then, what

    def watch(self, may_stall_s: Callable[[], float]) -> float | None:
        """Passes on the result of a copy that has ended, and drops one that stalls too long.

        Returns for how many seconds the dropped copy stalled; None if there is none.
        """
        silent_s = self._patience.silent_s(self._task)
        self._report_stall(silent_s)
        if self._task is None:
            return None
        if self._task.is_done:
            task, self._task = self._task, None
            self._then(task)
        elif silent_s > may_stall_s():
            self.drop()
            return silent_s
        return None

    def drop(self) -> None:
        """Abandons the present copy: its result goes nowhere."""
        if self._task is not None:
            self._task.abandon()
            self._task = None

    def _report_stall(self, silent_s: float) -> None:
        stalled = self._task is not None and silent_s > _REPORT_AFTER_S
        stalls = [Stall(self.what, silent_s, news=not self._stall_reported)] if stalled else []
        self._stall_reported = stalled
        self._stall_log.report_stalls(stalls, time.time())


class CheckpointKeeper:
    """Stores a program's checkpoints, and knows which of them are in the store.

    ``machine``: the name of the machine that writes them. ``stalled_s``: how long a copy may make no
    progress. ``report``: sends a message to the supervisor.
    """

    def __init__(
        self,
        disk: MachineDisk,
        copying: CopyTask,
        machine: str,
        stalled_s: float,
        report: Callable[[m.Word], None],
    ) -> None:
        self._disk = disk
        self._copying = copying
        self._machine = machine
        self._report = report
        self._store: CheckpointStore | None = None
        self._stored = -1  # the step of the newest checkpoint known to be in the store
        self._storing = -1  # the step of the newest checkpoint whose upload was started
        self._again_at = 0.0
        self._upload_s = 0.0  # the duration of the last upload
        self.stalled_s = stalled_s
        self.refusal = ""
        """Why the newest checkpoint is not in the store; empty if no attempt failed."""

    def open(self, store: CheckpointStore) -> None:
        self._store = store

    @property
    def all_stored(self) -> bool:
        """Whether all complete checkpoints are in the store, and no copy runs."""
        newest = self._disk.newest_checkpoint()
        return not self._copying.is_busy and (newest is None or newest.step <= self._stored)

    def reserve_s(self) -> float:
        """Returns how many seconds before the end of a notice the agent kills a program that still runs."""
        return max(_LEAST_RESERVE_S, 2 * self._upload_s)

    def superseded_within_s(self) -> float | None:
        """Returns how many seconds an upload may stall while a newer checkpoint waits; None if none waits."""
        newest = self._disk.newest_checkpoint()
        waits = newest is not None and newest.step > self._storing
        return max(_SUPERSEDED_S, 2 * self._upload_s) if waits else None

    def try_at_once(self) -> None:
        """Lets the next attempt to store begin at once, even after a failure."""
        self._again_at = 0.0

    def give_up(self, silent_s: float) -> None:
        """Logs that a copy stalled, and delays the next attempt."""
        # A dead connection is made anew by the next attempt; a store that was merely slow needs more time.
        self.stalled_s *= 2
        self._again_at = time.monotonic() + _TRY_STORE_AGAIN_S
        self.refusal = f"{self._copying.what}: no progress for {silent_s:.0f} s; the attempt was given up"
        log_note(self.refusal)

    def store_newest(self) -> None:
        """Starts storing the newest complete checkpoint that is not in the store."""
        newest = self._disk.newest_checkpoint()
        if newest is None or newest.step <= self._stored or time.monotonic() < self._again_at:
            return
        began, self._storing = time.monotonic(), newest.step
        self._copying.start(
            lambda note_progress: self._opened.publish(newest, self._machine, note_progress),
            lambda task: self._take_published(task, newest, began),
            f"storing step-{newest.step}",
        )

    def _take_published(self, task: BackgroundTask[Any], checkpoint: Checkpoint, began: float) -> None:
        try:
            stored: StoredCheckpoint = task.result()
        except (CheckpointError, OSError) as error:
            if checkpoint.path.exists():  # else its program removed it for a newer one
                self.refusal = f"step-{checkpoint.step} was not stored: {error}"
                log_note(f"{self.refusal}; next attempt in {_TRY_STORE_AGAIN_S:g} s")
                self._again_at = time.monotonic() + _TRY_STORE_AGAIN_S
            return
        self._upload_s = time.monotonic() - began
        self._stored = checkpoint.step
        self._report(m.Saved(stored.step, stored.machine, stored.size_bytes))

    def fetch_newest(self, note_progress: NoteProgress) -> FetchOutcome:
        """Fetches the checkpoint at which a program resumes. For a thread. Raises CheckpointError."""
        here = self._disk.newest_checkpoint()
        for stored in self._opened.list_complete(note_progress):
            # On the machine that ran the program before, its folder may be ahead of the store.
            if here is not None and here.step >= stored.step:
                return FetchOutcome(here, stored, fetched=False)
            try:
                restored = self._opened.restore(stored, self._disk.checkpoints, note_progress)
            except CheckpointError as error:
                log_note(f"{error}; trying the checkpoint before")
            else:
                return FetchOutcome(restored, stored, fetched=True)
        return FetchOutcome(here, None, fetched=False)

    def take_fetched(self, outcome: FetchOutcome) -> None:
        """Takes the result of ``fetch_newest``, in the loop."""
        stored = outcome.stored
        self._stored = -1 if stored is None else stored.step
        if stored is not None and outcome.fetched:
            self._report(m.Fetched(stored.step, stored.machine, stored.size_bytes))

    def record_end(self, steps: int | None) -> None:
        """Records in the store that the work is done. For a thread. Raises CheckpointError."""
        self._opened.record_end(steps)

    @property
    def _opened(self) -> CheckpointStore:
        assert self._store is not None, "the preparation opens the store first"
        return self._store


def log_note(text: str) -> None:
    """Writes a line to the agent's log."""
    print(text, file=sys.stderr, flush=True)
