"""Runs tasks in threads, which report through one queue to the thread that started them.

The starting thread receives everything, an exception of a task included. The threads share nothing else. They
are daemons, so they never keep a program from ending.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Said = TypeVar("Said")
Task = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


@dataclass(frozen=True, slots=True)
class _Gone:
    """Says that one thread has found no more to do."""


class WorkerPool(Generic[Said]):
    """Works through one pile of tasks after the other; tasks ``report_back`` what they find."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        """Once set, no thread begins another task, and threads at work end when they can."""
        self._heard: queue.SimpleQueue[Said | _Failed | _Gone] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def report_back(self, said: Said) -> None:
        """Passes a report to the starting thread; called by tasks."""
        self._heard.put(said)

    def run_tasks(self, tasks: Sequence[Task], width: int) -> Iterator[Said]:
        """Runs ``tasks``, ``width`` at a time; yields their reports, until the last is through.

        Raises what a task raised.
        """
        todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in tasks:
            todo.put(task)
        # Never more threads than tasks.
        working = min(width, len(tasks))
        self._threads = [
            threading.Thread(target=self._work_off, args=(todo,), daemon=True) for _ in range(working)
        ]
        for thread in self._threads:
            thread.start()
        while working:
            heard = self._heard.get()
            if isinstance(heard, _Gone):
                working -= 1
            elif isinstance(heard, _Failed):
                raise heard.error
            else:
                yield heard

    def stop_workers(self, grace_s: float) -> Iterator[Said]:
        """Asks all threads to end, gives them ``grace_s`` in all, and yields their last reports."""
        self.stop.set()
        deadline = time.monotonic() + grace_s
        for thread in self._threads:
            # One deadline for all threads together, not one each.
            thread.join(max(0.0, deadline - time.monotonic()))
        while not self._heard.empty():
            heard = self._heard.get()
            if isinstance(heard, _Failed):
                raise heard.error
            if not isinstance(heard, _Gone):
                yield heard

    def _work_off(self, todo: queue.SimpleQueue[Task]) -> None:
        try:
            while not self.stop.is_set():
                try:
                    task = todo.get_nowait()
                except queue.Empty:
                    return
                task()
        except BaseException as error:
            # Raised again in the thread that runs the pool.
            self._heard.put(_Failed(error))
        finally:
            # Always the last word of a thread, or the pool would wait for ever.
            self._heard.put(_Gone())
