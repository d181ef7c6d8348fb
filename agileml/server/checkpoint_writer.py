"""Writes a server's checkpoints in a thread beside its loop, so that training goes on meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

from agileml.data.checkpoint_store import Manifest, drop_older, seal_checkpoint, write_partition
from agileml.model_shape import Shape
from agileml.node.agent.watchdog import Activity
from agileml.protocol.commands import DropCheckpoints, SealCheckpoint
from agileml.protocol.events import CheckpointRefused, CheckpointSealed, CheckpointWritten, Setup
from agileml.protocol.messages import Snapshot

Task: TypeAlias = Snapshot | SealCheckpoint | DropCheckpoints
TaskOutcome: TypeAlias = CheckpointWritten | CheckpointSealed | CheckpointRefused


class CheckpointWriter:
    """Carries out one task after the other, in the order in which they came."""

    def __init__(self, machine: str, setup: Setup, shape: Shape, activity: Activity) -> None:
        """``activity``: that of its thread. Nobody awaits a checkpoint, but none comes after one that never
        ends.
        """
        self._activity = activity
        self._machine = machine
        self._setup = setup
        self._shape = shape
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._under_way: list[Future[TaskOutcome | None]] = []

    def submit_task(self, task: Task) -> None:
        self._under_way.append(self._thread.submit(self._run_task, task))

    def finished_outcomes(self) -> Iterator[TaskOutcome]:
        """Yields the outcomes of tasks that ended since the last call."""
        # In order: an outcome is reported only after those of the tasks before it.
        while self._under_way and self._under_way[0].done():
            outcome = self._under_way.pop(0).result()
            if outcome is not None:
                yield outcome

    def _run_task(self, task: Task) -> TaskOutcome | None:
        """Performs a task, and turns whatever the file system raises (it has errors of its own kinds) into
        text.
        """
        try:
            with self._activity.while_doing("keeping a checkpoint in {}", task.folder):
                return self._perform_task(task)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            if isinstance(task, DropCheckpoints):  # they only take room; the next one tries again
                print(f"checkpoints before {task.folder} are still there: {why}", file=sys.stderr, flush=True)
                return None
            return CheckpointRefused(self._machine, task.attempt, f"{task.folder}: {why}")

    def _perform_task(self, task: Task) -> TaskOutcome | None:
        match task:
            case Snapshot():
                for partition, values in task.partitions:
                    write_partition(task.folder, partition, values)
                return CheckpointWritten(self._machine, task.attempt)
            case SealCheckpoint():
                setup, shape = self._setup, self._shape
                seal_checkpoint(
                    task.folder,
                    Manifest(task.clock, setup.partitions, setup.shards, shape.rows, shape.columns),
                )
                return CheckpointSealed(self._machine, task.attempt)
            case DropCheckpoints():
                drop_older(task.folder, task.attempt)
                return None
