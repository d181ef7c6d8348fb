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

from collections.abc import Callable, Collection
from dataclasses import dataclass

from agileml.node.arrays import Matrix, Rows
from agileml.protocol.commands import Assign
from agileml.protocol.events import Drained
from agileml.protocol.messages import (
    LEADING_SHARD,
    Answer,
    Behind,
    Moved,
    Outgoing,
    Patch,
    ReadDone,
    Unknown,
    UpdateDone,
)
from agileml.sync.base import Barrier
from agileml.worker.deliveries import Deliveries
from agileml.worker.read_plan import ReadPlanner
from agileml.worker.requests import Requests
from agileml.worker.task import Task


@dataclass(frozen=True, slots=True)
class ShardWork:
    """Compute ``shard`` in ``clock`` from the ``values`` of its rows, which are read only.

    ``task`` tells tasks apart.
    """

    task: int
    shard: int
    clock: int
    values: Matrix


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
        self._planner = ReadPlanner(partitions, rows)
        self._assigned: Assign | None = None
        self._deliveries = Deliveries(barrier)
        self._requests = Requests()
        self._task: Task | None = None
        self._ahead: Task | None = None  # the next one, which reads while the one in hand ends
        self._tasks_made = 0
        self._drained = False
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
            self._deliveries.start_generation(assign.clock)
            self._task = self._ahead = None
        self._assigned = assign
        self._deliveries.learn_assignment(assign)
        self._requests.set_assignment(assign)
        if not assign.drain:
            self._drained = False
        self._review_task(assign)
        self._review_next_task(assign)
        return self._advance_tasks()

    def handle_answer(self, answer: Answer) -> tuple[Outgoing, ...]:
        """Takes a server's answer; one to a request that is no longer under way is ignored."""
        for task in self._tasks_in_hand():
            self._apply_answer(task, answer)
        return self._advance_tasks()

    def retry_unanswered(self) -> tuple[Outgoing, ...]:
        """Asks servers after what has had no answer since before the last call."""
        return tuple(self._requests.inquire(self._tasks_in_hand()))

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
        return tuple(ShardWork(task.number, shard, task.clock, task.shard_values(shard)) for shard in shards)

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

    def _apply_answer(self, task: Task, answer: Answer) -> None:
        if isinstance(answer, Behind):
            if any(asked.request == answer.request for asked in task.asked.values()):
                self._deliveries.mark_over(answer.clock)
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
            case UpdateDone():
                del task.asked[answer.partition]
                self._requests.note_lag(answer)
            case ReadDone() if answer.partition in self._pushed_before(task):
                asked.route, asked.request, asked.again = None, 0, True
            case ReadDone():
                del task.asked[answer.partition]
                task.store_rows(answer)

    def _pushed_before(self, ahead: Task) -> Collection[int]:
        """Returns the partitions to which an earlier clock is being pushed: what is read of them may lack
        it.
        """
        task = self._task
        return task.asked if task is not None and task.pushing and task.clock < ahead.clock else ()

    def _tasks_in_hand(self) -> list[Task]:
        return [task for task in (self._task, self._ahead) if task is not None]

    def _drop_task(self, task: Task) -> None:
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
        waits = assign.drain and not self._deliveries.is_awaited(task.clock)
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
            self._deliveries.record_push(task)
            self._task = None
        elif task is not None and not task.pushing and not task.uncomputed_shards:
            task.start_push(self._planner)
        if self._task is None:
            self._task, self._ahead = self._ahead or self._make_next_task(), None
            self._report_drained()
        # While this clock is pushed, or for shards gained meanwhile, the next task may already read.
        if self._task is not None and not self._task.is_reading and self._ahead is None:
            self._ahead = self._make_next_task()
        for some in self._tasks_in_hand():
            self._out += self._requests.send_task(some, held_back=self._pushed_before(some))
        out, self._out = tuple(self._out), []
        return out

    def _due_clock(self) -> int | None:
        shards = () if self._assigned is None else self._assigned.shards
        return self._deliveries.due_clock(shards, self._task)

    def _make_next_task(self) -> Task | None:
        """Returns a task to be read from now on, if anything is due that is not in hand."""
        assign, task = self._assigned, self._task
        in_hand = () if task is None or task.pushing else task.shards
        if assign is None or assign.drain or set(in_hand).issuperset(assign.shards):
            return None
        clock = self._due_clock()
        if clock is None or clock > assign.until:
            return None
        due = (shard for shard in sorted(assign.shards) if self._deliveries.next_clock(shard, task) == clock)
        shards = tuple(shard for shard in due if shard not in in_hand)
        if not shards:
            return None
        self._tasks_made += 1
        return Task(self._tasks_made, clock, shards, self._planner.plan(shards), self._columns)

    def _report_drained(self) -> None:
        assign = self._assigned
        if self._task is None and assign is not None and assign.drain and not self._drained:
            delivered = tuple((shard, self._deliveries.delivered_clock(shard)) for shard in assign.shards)
            self._out.append(Drained(self._machine, self._incarnation, assign.generation, delivered))
            self._drained = True
