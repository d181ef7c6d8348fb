"""Runs a worker process: the loop around the pure worker core, which runs the application between polls."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

import zmq

from agileml.api import Arrays, Outcome, validated_delta
from agileml.job import JobFolder
from agileml.node.agent.watchdog import Activities
from agileml.node.hosts.nominal_time import Pacer
from agileml.protocol.commands import Assign
from agileml.protocol.endpoints import ControlEnd, DataEnd
from agileml.protocol.events import Loaded, WorkerReady
from agileml.protocol.messages import Answer, Outgoing, Patch, Reply, Save, Send, Snapshot
from agileml.protocol.meters import WorkerMeter
from agileml.protocol.telemetry import ObjectiveReport, ShardObjective
from agileml.sync.bounded_staleness import make_barrier
from agileml.worker.shard_cache import ShardCache
from agileml.worker.shard_loader import ShardLoader
from agileml.worker.worker import ShardWork, Worker

_STANDS_MS: Final = 10
"""The shortest wait where nominal time stands still."""
_DRAIN_MARGIN: Final = 0.5
"""The share of a notice that may go into finishing the clock in hand; the rest is for what follows."""


class WorkerProcess:
    """The loop. Where the job sets a nominal speed, it holds results until their nominal time has passed.

    That is the time which the driver of the job has released (``nominal_time.py``): no machine computes that
    is not paid for, and none is paid for that cannot compute.
    """

    def __init__(
        self, folder: JobFolder, machine: str, incarnation: int, cores: int, activities: Activities
    ) -> None:
        # First of all: making the application and opening the input may take long, or hang.
        self._activity = activities.add_thread("starting: making the application, opening the input")
        job, self._input = folder.read_job(), folder.open_input()
        self._app = job.make_application()
        self._machine = machine
        self._nominal_s = job.core_seconds_per_clock / job.setup.shards / cores
        self._shard_s = self._nominal_s  # what a shard took last
        self._clocks = job.setup.clocks
        self._cores = min(cores, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(self._cores)
        self._loader = ShardLoader(self._input.read_shard, ShardCache(job.input_bytes), self._cores)
        self._unreleased: list[tuple[ShardWork, Patch]] = []
        self._pacer = Pacer(folder.path, machine)
        self._release_at = -math.inf  # in the pacer's time
        self._goes_on = False  # computing, without a pause since the last release
        self._finish_by = math.inf  # until when a draining worker finishes its clock (monotonic seconds)
        self._found: list[ShardObjective] = []
        self._meter = WorkerMeter(machine, incarnation, time.monotonic()) if job.setup.automatic else None
        self._ask_after_s = job.timing.ask_after_s
        self._look_back_at = time.monotonic() + self._ask_after_s
        self._poller = zmq.Poller()
        context = zmq.Context(1)
        name = f"worker/{machine}/{incarnation}"
        self._control = ControlEnd(context, folder, name, job.timing.repeat_s)
        self._poller.register(self._control.socket, zmq.POLLIN)
        self._data = DataEnd(context, name, self._poller, folder.read_keys())
        self._poller.register(self._loader.wake_fd, zmq.POLLIN)
        self._incarnation = incarnation
        columns, rows = self._input.shape.columns, cache(self._input.read_rows)
        self._core = Worker(
            machine, incarnation, job.setup.partitions, columns, rows, make_barrier(job.setup)
        )
        self._control.queue_message(WorkerReady(machine, incarnation))

    def run(self) -> None:
        while True:
            self._activity.start_turn()
            self._data.flush()  # first what somebody waits for
            self._control.flush()
            self._poller.poll(self._wait_ms())
            for _, answer in self._data.receive():
                if isinstance(answer, Answer):
                    if self._meter is not None:
                        self._meter.note_answer(answer, time.monotonic())
                    self._dispatch_outgoing(self._core.handle_answer(answer))
            self._compute_or_release()
            self._data.flush()  # before the rest: others wait for it
            for command in self._control.receive():
                if isinstance(command, Assign):
                    self._take_assignment(command)
            self._control.confirm()
            self._report_loaded()
            if time.monotonic() >= self._look_back_at:
                self._look_back_at = time.monotonic() + self._ask_after_s
                self._dispatch_outgoing(self._core.retry_unanswered())
            if self._meter is not None and (load := self._meter.make_report(time.monotonic())) is not None:
                self._control.queue_message(load)

    def _compute_or_release(self) -> None:
        """Computes what can be computed, and releases what may be pushed by now."""
        self._abandon_late_clock()
        if not self._unreleased and self._core.computable_count:
            self._compute_batch()
        elif not self._unreleased:
            self._goes_on = False
        if self._unreleased and self._pacer.now() >= self._release_at:
            self._release_results()

    def _wait_ms(self) -> int:
        if self._unreleased:
            least_ms = _STANDS_MS if self._pacer.stands_still() else 0
            until_release = int(1000 * (self._release_at - self._pacer.now())) + 1
            return max(least_ms, min(until_release, self._control.wait_ms()))
        return 0 if self._core.computable_count else self._control.wait_ms()

    def _report_loaded(self) -> None:
        loaded = self._loader.collect_loaded()
        if loaded is not None:
            self._control.queue_message(Loaded(self._machine, self._incarnation, *loaded))

    def _take_assignment(self, assign: Assign) -> None:
        self._loader.set_wanted(assign.shards, assign.preload)
        self._dispatch_outgoing(self._core.take_assignment(assign))
        self._data.close_all_but({route.endpoint for route in assign.routes})
        # A notice runs in real seconds, so a draining worker does too.
        self._pacer.free = assign.drain
        if not assign.drain:
            self._finish_by = math.inf
        elif self._finish_by == math.inf:
            self._finish_by = time.monotonic() + assign.notice_s * _DRAIN_MARGIN
            self._abandon_late_clock()

    def _abandon_late_clock(self) -> None:
        """Abandons the clock in hand once it cannot be computed in time any more, or its rows do not come."""
        if self._finish_by == math.inf or not self._core.uncomputed_count:
            return
        now, to_begin = time.monotonic(), self._core.uncomputed_count - len(self._unreleased)
        holds_s = max(0.0, self._release_at - self._pacer.now()) if self._unreleased else 0.0
        if now + holds_s + to_begin * self._shard_s > self._finish_by:
            self._unreleased, self._found = [], []
            self._dispatch_outgoing(self._core.abandon_task())

    def _compute_batch(self) -> None:
        """Computes as many shards as there are cores.

        The nominal time of one batch begins where that of the last one ended: a process that wakes up late to
        release its results loses nothing by it.
        """
        began, nominally = time.monotonic(), self._pacer.now()
        if self._goes_on:
            nominally = self._release_at
        batch = self._core.take_work(self._cores)
        shards = [work.shard for work in batch]
        with self._activity.while_doing("computing shards {} in clock {}", shards, batch[0].clock):
            for work, outcome in zip(batch, self._run_shards(batch), strict=True):
                self._unreleased.append((work, validated_delta(outcome, self._input.shape)))
                self._found.append(ShardObjective(work.shard, float(outcome.total), float(outcome.count)))
        self._shard_s = max(self._nominal_s, (time.monotonic() - began) / len(batch))
        self._release_at = max(self._pacer.now(), nominally + self._nominal_s * len(batch))
        if self._meter is not None:
            self._meter.count_computed(len(batch), self._shard_s * len(batch) * self._cores)

    def _run_shards(self, batch: Sequence[ShardWork]) -> Iterator[Outcome]:
        """Runs the application on shards: in threads only where there are several, as handing over takes time
        too.
        """
        numbers = [work.shard for work in batch]
        with self._activity.while_doing("reading shards {} of the input", numbers):
            shards = self._loader.get_shards(numbers)
        return (map if len(batch) == 1 else self._threads.map)(self._process_shard, batch, shards)

    def _process_shard(self, work: ShardWork, shard: Arrays) -> Outcome:
        return self._app.process(shard, work.values, (work.shard, work.clock))

    def _release_results(self) -> None:
        """Sends the results that were held. The objective goes first: else it might be lost for want of a
        moment.

        That of the last clock does not wait for more news: the job ends once the model is saved.
        """
        unreleased, found = self._unreleased, tuple(self._found)
        self._unreleased, self._found = [], []
        clock = unreleased[0][0].clock
        self._control.queue_message(ObjectiveReport(self._machine, clock, found))
        self._control.flush(at_once=clock == self._clocks)
        for work, delta in unreleased:
            self._dispatch_outgoing(self._core.take_result(work, delta))
        self._goes_on = self._core.computable_count > 0

    def _dispatch_outgoing(self, outgoing: Iterable[Outgoing]) -> None:
        for item in outgoing:
            if self._meter is not None:
                self._meter.note_request(item)
            match item:
                case Send():
                    self._data.queue_message(item)
                case event if not isinstance(event, Reply | Save | Snapshot):
                    self._control.queue_message(event)
        if self._meter is not None:
            self._meter.set_clock(self._core.current_clock, time.monotonic())
