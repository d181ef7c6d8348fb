"""Implements the worker of one machine, without sockets and application: what to read, compute and push.

A *task* is one clock of the shards that are due. It reads their rows (one request per server), computes each
shard's delta from that same snapshot, and pushes everything (one request per server). Only when every
partition acknowledged is the next clock computed. So nobody pushes a clock before all of the last one is
delivered. Therefore a server that is a clock further knows the requested one to be over everywhere.

The rows of the next clock are requested together with the push: their request is on its way while the servers
sum, and the answer is there as soon as the clock is complete, not a round trip later. An answer that overtook
the acknowledgement of the same partition may lack what was pushed, so it is requested again.

A new assignment may come at any time. Within a generation what was delivered stays delivered; a new
generation starts over at its clock. The shell calls ``take_work()``, runs the application between polls, and
hands back ``take_result(...)``; results of a task that is no longer wanted are ignored.

A request or its answer may be lost with a connection although both ends live. So the shell says when time has
passed (``retry_unanswered``), and what was not answered since the last time but one is asked after. A server
that has nothing of it says so (``Unknown``), and it is sent again. A server may get any request twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from agileml.node.arrays import Matrix, Rows
from agileml.protocol.commands import Assign, Route
from agileml.protocol.events import Drained
from agileml.protocol.messages import (
    LEADING_SHARD,
    Answer,
    Behind,
    Inquiry,
    Moved,
    Outgoing,
    Patch,
    Peer,
    Read,
    ReadDone,
    ReadPart,
    Send,
    ShardDelta,
    Unknown,
    Update,
    UpdateDone,
    UpdatePart,
)
from agileml.sync.base import Barrier
from agileml.worker.read_plan import ReadPlan, ReadPlanner


@dataclass(frozen=True, slots=True)
class ShardWork:
    """Compute ``shard`` in ``clock`` from the ``values`` of its rows, which are read only.

    ``task`` tells tasks apart.
    """

    task: int
    shard: int
    clock: int
    values: Matrix


_Content: TypeAlias = Rows | list[ShardDelta]
"""What is read of a partition, or added to it."""


@dataclass(slots=True)
class _PendingPart:
    """A part under way, and where it went last; ``request`` 0: nowhere, or it was refused there.

    ``recent``: asked, or asked after, since the shell last said that time has passed; ``again``: to be asked
    again when what is pushed is acknowledged.
    """

    content: _Content
    route: Route | None = None
    request: int = 0
    recent: bool = True
    again: bool = False


@dataclass(slots=True)
class _Task:
    number: int
    clock: int
    shards: tuple[int, ...]
    plan: ReadPlan
    snapshot: Matrix | None = None
    deltas: dict[int, Patch] = field(default_factory=dict)
    asked: dict[int, _PendingPart] = field(default_factory=dict)
    pushing: bool = False

    @property
    def is_reading(self) -> bool:
        return not self.pushing and bool(self.asked)

    @property
    def uncomputed_shards(self) -> list[int]:
        return [shard for shard in self.shards if shard not in self.deltas]


class Worker:
    """Decides what to read, compute and push.

    ``rows(shard)``: the global rows a shard reads, sorted and unique (constant over the job).
    """

    def __init__(
        self,
        machine: str,
        incarnation: int,
        partitions: int,
        columns: int,
        rows: Callable[[int], Rows],
        barrier: Barrier,
    ) -> None:
        self._machine = machine
        self._incarnation = incarnation
        self._columns = columns
        self._barrier = barrier
        self._planner = ReadPlanner(partitions, rows)
        self._assigned: Assign | None = None
        self._routes: dict[int, Route] = {}
        self._over = 0  # clocks up to here are complete everywhere
        self._delivered: dict[int, int] = {}  # shard -> last clock acknowledged, in this generation
        self._task: _Task | None = None
        self._ahead: _Task | None = None  # the next one, which reads while the one in hand ends
        self._numbers = 0
        self._drained = False
        self._behind: dict[int, bool] = {}  # partition -> what its server said last
        self._out: list[Outgoing] = []

    # ---- what the shell sees -------------------------------------------------------------------

    @property
    def current_clock(self) -> int | None:
        """The clock in hand."""
        return None if self._task is None else self._task.clock

    def take_assignment(self, assign: Assign) -> tuple[Outgoing, ...]:
        """Takes on a newer assignment; an older version than the last is ignored."""
        last = self._assigned
        if last is not None and assign.version <= last.version:
            return ()
        if last is None or assign.generation > last.generation:
            # A roll-back: whatever was delivered since is undone on the servers.
            self._over, self._delivered = assign.clock - 1, {}
            self._task = self._ahead = None
            self._behind.clear()
        self._assigned = assign
        self._over = max(self._over, assign.clock - 1)
        for shard, clock in assign.delivered:
            self._delivered[shard] = max(clock, self._delivered.get(shard, 0))
        self._routes = {route.partition: route for route in assign.routes}
        if not assign.drain:
            self._drained = False
        self._review_task(assign)
        self._review_next_task(assign)
        return self._advance_tasks()

    def handle_answer(self, answer: Answer) -> tuple[Outgoing, ...]:
        """Takes a server's answer; one to a request that is no longer under way is ignored."""
        for task in (self._task, self._ahead):
            if task is not None:
                self._apply_answer(task, answer)
        return self._advance_tasks()

    def retry_unanswered(self) -> tuple[Outgoing, ...]:
        """Asks servers after what has had no answer since before the last call."""
        silent: dict[tuple[Peer, int], list[int]] = defaultdict(list)
        for task in (self._task, self._ahead):
            for partition, asked in () if task is None else task.asked.items():
                if not asked.recent and asked.request and asked.route is not None:
                    server = Peer(asked.route.machine, asked.route.endpoint)
                    silent[server, asked.request].append(partition)
                asked.recent = False
        return tuple(
            Send(server, Inquiry(request, tuple(partitions)))
            for (server, request), partitions in silent.items()
        )

    @property
    def uncomputed_count(self) -> int:
        """The number of shards of the clock in hand that are not computed yet."""
        task = self._task
        return 0 if task is None or task.pushing else len(task.uncomputed_shards)

    @property
    def computable_count(self) -> int:
        """The number of shards that can be computed now: all that remain, once they are read."""
        return 0 if self._task is None or self._task.asked else self.uncomputed_count

    def take_work(self, at_most: int | None = None) -> tuple[ShardWork, ...]:
        """Returns what can be computed now, in the order of shards."""
        task = self._task
        if task is None or task.pushing or task.asked:
            return ()
        shards = task.uncomputed_shards[:at_most]
        return tuple(
            ShardWork(task.number, shard, task.clock, self._shard_values(task, shard)) for shard in shards
        )

    def take_result(self, work: ShardWork, delta: Patch) -> tuple[Outgoing, ...]:
        """Takes the delta of a piece of work: global rows, sorted and unique."""
        task = self._task
        if task is None or task.number != work.task or work.shard not in task.shards or task.pushing:
            return ()
        task.deltas[work.shard] = delta
        return self._advance_tasks()

    def abandon_task(self) -> tuple[Outgoing, ...]:
        """Gives up what is not pushed yet: the notice is too short to finish it."""
        if self._task is not None and not self._task.pushing:
            self._task = None
        return self._advance_tasks()

    # ---- the task in hand ----------------------------------------------------------------------

    def _apply_answer(self, task: _Task, answer: Answer) -> None:
        if isinstance(answer, Behind):
            if any(asked.request == answer.request for asked in task.asked.values()):
                self._over = max(self._over, answer.clock)
                self._drop_task(task)
            return
        asked = task.asked.get(answer.partition)
        if asked is None or asked.request != answer.request:
            return
        match answer:
            case Moved():  # it is sent again when an assignment says where to
                asked.request = 0
            case Unknown():
                asked.route = None
            case UpdateDone(partition=partition, behind=behind):
                del task.asked[partition]
                self._behind[partition] = behind
            case ReadDone() if self._may_overtake_push(task, answer.partition):
                asked.route, asked.request, asked.again = None, 0, True
            case ReadDone():
                del task.asked[answer.partition]
                self._store_rows(task, answer)

    def _may_overtake_push(self, ahead: _Task, partition: int) -> bool:
        """Whether what is read may lack an earlier clock that is being pushed there."""
        task = self._task
        return task is not None and task.pushing and task.clock < ahead.clock and partition in task.asked

    def _drop_task(self, task: _Task) -> None:
        if task is self._task:
            self._task = None
        else:
            self._ahead = None

    def _review_task(self, assign: Assign) -> None:
        """Keeps the part of the task that the new assignment still wants, and what is done: all of a drained
        clock.

        Machines that join or leave one by one change assignments many times in a clock. So a read goes on for
        the shards that stay, and gained ones make a task of their own after this one. Deltas that were
        computed are pushed although their shards have another owner by now, who may still have to begin.
        The leading shard's are not: its owner alone decides where ranges for the backups end. A draining
        worker goes on reading for a clock that others await, but waits for nobody: the workers it would wait
        for may drain too.
        """
        task = self._task
        if task is None or task.pushing:
            return
        waits = assign.drain and not self._barrier.is_awaited(task.clock, self._over)
        if task.is_reading and (waits or task.clock != self._due_clock()):
            self._task = None
        elif not assign.drain:
            wanted = {*assign.shards, *(task.deltas.keys() - {LEADING_SHARD})}
            task.shards = tuple(shard for shard in task.shards if shard in wanted)
            if not task.shards:
                self._task = None

    def _review_next_task(self, assign: Assign) -> None:
        """Does the same for what is read ahead, which is dropped as soon as something else comes first."""
        ahead = self._ahead
        if ahead is None:
            return
        if not assign.drain and ahead.clock == self._due_clock() and ahead.clock <= assign.until:
            ahead.shards = tuple(shard for shard in ahead.shards if shard in assign.shards)
            if ahead.shards:
                return
        self._ahead = None

    def _advance_tasks(self) -> tuple[Outgoing, ...]:
        task = self._task
        if task is not None and task.pushing and not task.asked:
            for shard in task.shards:
                self._delivered[shard] = max(task.clock, self._delivered.get(shard, 0))
            self._task = None
        elif task is not None and not task.pushing and not task.uncomputed_shards:
            self._start_push(task)
        if self._task is None:
            self._task, self._ahead = self._ahead or self._make_next_task(), None
            self._report_drained()
        # While this clock is pushed, or for shards gained meanwhile, the next task may already read.
        if self._task is not None and not self._task.is_reading and self._ahead is None:
            self._ahead = self._make_next_task()
        for some in (self._task, self._ahead):
            if some is not None:
                self._send_requests(some)
        out, self._out = tuple(self._out), []
        return out

    def _delivered_clock(self, shard: int) -> int:
        """Returns the last clock that all servers have of the shard, as far as is known here."""
        return max(self._over, self._delivered.get(shard, 0))

    def _next_clock(self, shard: int) -> int:
        """Returns the first clock that the shard lacks when all that is under way is delivered."""
        delivered = self._delivered.get(shard, 0)
        if self._task is not None and self._task.pushing and shard in self._task.shards:
            delivered = max(delivered, self._task.clock)
        return self._barrier.next_clock(delivered, self._over)

    def _due_clock(self) -> int | None:
        shards = () if self._assigned is None else self._assigned.shards
        return min((self._next_clock(shard) for shard in shards), default=None)

    def _make_next_task(self) -> _Task | None:
        """Returns a task to be read from now on, if anything is due that is not in hand."""
        assign, task = self._assigned, self._task
        in_hand = () if task is None or task.pushing else task.shards
        if assign is None or assign.drain or set(in_hand).issuperset(assign.shards):
            return None
        clock = self._due_clock()
        if clock is None or clock > assign.until:
            return None
        due = (shard for shard in sorted(assign.shards) if self._next_clock(shard) == clock)
        shards = tuple(shard for shard in due if shard not in in_hand)
        if not shards:
            return None
        plan = self._planner.plan(shards)
        self._numbers += 1
        task = _Task(self._numbers, clock, shards, plan)
        for share in plan.shares.values():
            task.asked[share.partition] = _PendingPart(share.local)
        return task

    def _report_drained(self) -> None:
        assign = self._assigned
        if self._task is None and assign is not None and assign.drain and not self._drained:
            delivered = tuple((shard, self._delivered_clock(shard)) for shard in assign.shards)
            self._out.append(Drained(self._machine, self._incarnation, assign.generation, delivered))
            self._drained = True

    def _store_rows(self, task: _Task, answer: ReadDone) -> None:
        """Stores rows that were read. Where one partition has them all, its answer is the snapshot."""
        plan = task.plan
        if len(plan.shares) == 1:
            task.snapshot = answer.values
            return
        if task.snapshot is None:
            task.snapshot = np.empty((len(plan.rows), self._columns), np.float32)
        task.snapshot[plan.shares[answer.partition].places] = answer.values

    def _shard_values(self, task: _Task, shard: int) -> Matrix:
        if task.snapshot is None:  # there is nothing to read
            return np.empty((0, self._columns), np.float32)
        values: Matrix = task.snapshot[task.plan.places[shard]]
        values.flags.writeable = False
        return values

    def _start_push(self, task: _Task) -> None:
        """Pushes a task. From here on its snapshot is not needed any more, while the next may come."""
        task.pushing, task.snapshot = True, None
        parts: dict[int, list[ShardDelta]] = defaultdict(list)
        for shard in task.shards:
            for partition, patch in enumerate(self._planner.split_delta(shard, task.deltas[shard])):
                parts[partition].append(ShardDelta(shard, patch))
        task.asked = {partition: _PendingPart(deltas) for partition, deltas in parts.items()}

    # ---- requests ------------------------------------------------------------------------------

    def _send_requests(self, task: _Task) -> None:
        """Sends every part that its present route has not been asked for, one message per server."""
        batches: dict[str, list[tuple[Route, _PendingPart]]] = {}
        for partition, asked in task.asked.items():
            route = self._routes.get(partition)
            # Without a route the partition is on its way; the assignment that names its new owner comes here
            # again.
            if route is None or route is asked.route or route == asked.route:
                continue
            if not (asked.again and self._may_overtake_push(task, partition)):
                asked.route, asked.again = route, False
                batches.setdefault(route.endpoint, []).append((route, asked))
        for endpoint, batch in batches.items():
            self._numbers += 1
            for _, asked in batch:
                asked.request, asked.recent = self._numbers, True
            self._out.append(Send(Peer(batch[0][0].machine, endpoint), self._make_request(task, batch)))

    def _make_request(self, task: _Task, batch: list[tuple[Route, _PendingPart]]) -> Read | Update:
        generation = 0 if self._assigned is None else self._assigned.generation
        updates, reads = [], []
        for route, asked in batch:
            if isinstance(asked.content, list):
                updates.append(UpdatePart(route.partition, route.epoch, tuple(asked.content)))
            else:
                reads.append(ReadPart(route.partition, route.epoch, asked.content))
        if task.pushing:
            return Update(self._numbers, generation, task.clock, self._ends_range(task), tuple(updates))
        return Read(self._numbers, generation, task.clock, tuple(reads))

    def _ends_range(self, task: _Task) -> bool:
        """Whether the clock ends a range: the last one does, and every one that the backups keep up with."""
        until = 0 if self._assigned is None else self._assigned.until
        return task.shards[0] == LEADING_SHARD and (task.clock == until or not any(self._behind.values()))
