"""Brings a machine's checkpoints to the store and back, one at a time, beside the loop of its agent."""

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
"""A copy from or to the store that gets no further for so long is given up; the next after twice that."""
_TRY_STORE_AGAIN_S: Final = 2.0
_SUPERSEDED_S: Final = 30.0
"""How long an upload may make no progress where a newer checkpoint waits while the machine leaves; or twice
what the last one took, if that is more.
"""
_TOLD_AFTER_S: Final = 60.0
"""A copy that does not get further for so long is reported."""
_LEAST_RESERVE_S: Final = 1.0
"""The part of a notice kept for storing the last checkpoint, where none was timed yet."""


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """What a program begins from (None: from nothing), and the newest in the store, fetched now or not."""

    checkpoint: Checkpoint | None
    stored: StoredCheckpoint | None
    fetched: bool


class CopyTask:
    """Runs one copy at a time in a thread of its own, and watches that it gets further.

    ``machine``: the folder in which stalls are logged. Call ``watch`` at every turn of the loop.
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
        """Starts ``work``; ``watch`` calls ``then`` once it has ended, however it did."""
        self._task, self._then, self.what = BackgroundTask(work), then, what

    def watch(self, may_stall_s: Callable[[], float]) -> float | None:
        """Takes up what has ended. Returns for how many seconds it stalled, where that is longer than it may:
        then it is given up.
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
        """Abandons what runs: nobody waits for it any more."""
        if self._task is not None:
            self._task.abandon()
            self._task = None

    def _report_stall(self, silent_s: float) -> None:
        stalled = self._task is not None and silent_s > _TOLD_AFTER_S
        stalls = [Stall(self.what, silent_s, news=not self._stall_reported)] if stalled else []
        self._stall_reported = stalled
        self._stall_log.report_stalls(stalls, time.time())


class CheckpointKeeper:
    """Knows which checkpoints are in the store. ``machine``: the name of who writes them.

    ``stalled_s``: how long a copy may make no progress. ``say``: takes words for the supervisor.
    """

    def __init__(
        self,
        disk: MachineDisk,
        copying: CopyTask,
        machine: str,
        stalled_s: float,
        say: Callable[[m.Word], None],
    ) -> None:
        self._disk = disk
        self._copying = copying
        self._machine = machine
        self._say = say
        self._store: CheckpointStore | None = None
        self._stored = -1  # the step of the newest checkpoint known to be in the store
        self._storing = -1  # the step of the newest checkpoint that was taken up
        self._again_at = 0.0
        self._took_s = 0.0
        self.stalled_s = stalled_s
        self.refusal = ""
        """Why the newest checkpoint is not in the store, as far as is known."""

    def open(self, store: CheckpointStore) -> None:
        self._store = store

    @property
    def all_stored(self) -> bool:
        """Whether all that the program has written is in the store, and nothing is being copied."""
        newest = self._disk.newest_checkpoint()
        return not self._copying.is_busy and (newest is None or newest.step <= self._stored)

    def reserve_s(self) -> float:
        """Returns how long before the end of a notice a program that does not stop is ended."""
        return max(_LEAST_RESERVE_S, 2 * self._took_s)

    def superseded_within_s(self) -> float | None:
        """Returns how long an upload may stall for which a newer checkpoint waits; None where none does."""
        newest = self._disk.newest_checkpoint()
        waits = newest is not None and newest.step > self._storing
        return max(_SUPERSEDED_S, 2 * self._took_s) if waits else None

    def try_at_once(self) -> None:
        """Tries to store the next time round, whatever failed just now."""
        self._again_at = 0.0

    def give_up(self, silent_s: float) -> None:
        """Notes that a copy stalled. A dead store has nothing else to offer, and a dead connection is made
        anew; where it was slow and nothing else, it has longer the next time.
        """
        self.stalled_s *= 2
        self._again_at = time.monotonic() + _TRY_STORE_AGAIN_S
        self.refusal = f"{self._copying.what}: nothing came of it for {silent_s:.0f} s, and it was given up"
        log_note(self.refusal)

    def store_newest(self) -> None:
        """Starts storing the newest complete checkpoint that is not in the store."""
        newest = self._disk.newest_checkpoint()
        if newest is None or newest.step <= self._stored or time.monotonic() < self._again_at:
            return
        began, self._storing = time.monotonic(), newest.step
        self._copying.start(
            lambda goes_on: self._opened.publish(newest, self._machine, goes_on),
            lambda task: self._take_published(task, newest, began),
            f"storing step-{newest.step}",
        )

    def _take_published(self, task: BackgroundTask[Any], checkpoint: Checkpoint, began: float) -> None:
        try:
            stored: StoredCheckpoint = task.result()
        except (CheckpointError, OSError) as error:
            if checkpoint.path.exists():  # else its program removed it for a newer one
                self.refusal = f"step-{checkpoint.step} was not stored: {error}"
                log_note(f"{self.refusal}; it is tried again")
                self._again_at = time.monotonic() + _TRY_STORE_AGAIN_S
            return
        self._took_s = time.monotonic() - began
        self._stored = checkpoint.step
        self._say(m.Saved(stored.step, stored.machine, stored.size_bytes))

    def fetch_newest(self, goes_on: NoteProgress) -> FetchOutcome:
        """Fetches what a program is to begin from. For a thread beside the loop. Raises CheckpointError.

        On the machine it ran on before, the program's own folder may be ahead of the store.
        """
        here = self._disk.newest_checkpoint()
        for stored in self._opened.list_complete(goes_on):
            if here is not None and here.step >= stored.step:
                return FetchOutcome(here, stored, fetched=False)
            try:
                restored = self._opened.restore(stored, self._disk.checkpoints, goes_on)
            except CheckpointError as error:
                log_note(f"{error}; falling back on an older one")
            else:
                return FetchOutcome(restored, stored, fetched=True)
        return FetchOutcome(here, None, fetched=False)

    def take_fetched(self, outcome: FetchOutcome) -> None:
        """Takes note of what came of ``fetch_newest``, in the loop."""
        stored = outcome.stored
        self._stored = -1 if stored is None else stored.step
        if stored is not None and outcome.fetched:
            self._say(m.Fetched(stored.step, stored.machine, stored.size_bytes))

    def record_end(self, steps: int | None) -> None:
        """Puts the end of the work on record. For a thread beside the loop. Raises CheckpointError."""
        self._opened.record_end(steps)

    @property
    def _opened(self) -> CheckpointStore:
        assert self._store is not None, "files are put in place first"
        return self._store


def log_note(text: str) -> None:
    """Writes a line to the agent's log."""
    print(text, file=sys.stderr, flush=True)
