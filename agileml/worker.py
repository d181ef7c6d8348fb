"""The worker of one machine, without sockets and without an application: what to read, compute and push.

A *task* is one clock of the shards that are due: read their rows (one request per server), compute each
shard's delta from that same snapshot, push everything (one request per server), and only when every
partition acknowledged take the next clock. So a clock is never started by anyone who has not delivered
the one before, which is why a server that is a clock further knows the asked one to be over everywhere.

A new assignment may come at any time. Within a generation what was delivered stays delivered; a new
generation starts over at its clock. The shell asks for ``work()``, runs the application between polls,
and hands back ``computed(...)``; results of a task that is no longer wanted are ignored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from agileml.commands import Assign, Route
from agileml.events import Drained
from agileml.messages import (
    Answer,
    Behind,
    Matrix,
    Moved,
    Outgoing,
    Patch,
    Peer,
    Read,
    ReadDone,
    ReadPart,
    Rows,
    Send,
    ShardDelta,
    Update,
    UpdateDone,
    UpdatePart,
)
from agileml.rows import index, span


@dataclass(frozen=True, slots=True)
class Work:
    """Compute ``shard`` in ``clock`` from the ``values`` of its rows, which are read only.

    ``task`` tells tasks apart.
    """

    task: int
    shard: int
    clock: int
    values: Matrix


@dataclass(frozen=True, slots=True)
class _Share:
    """What of some rows one partition has: which of its own rows, and where they are among these."""

    partition: int
    local: Rows
    places: slice | Rows


@dataclass(frozen=True, slots=True)
class _Plan:
    """The global rows that a set of shards needs, by partition, and where each shard's are among them."""

    rows: Rows
    shares: Mapping[int, _Share]
    places: Mapping[int, slice | Rows]


_Part: TypeAlias = ReadPart | UpdatePart


@dataclass(slots=True)
class _Asked:
    """A part under way, and where it went last; ``request`` 0: nowhere yet."""

    part: _Part
    route: Route | None = None
    request: int = 0


@dataclass(slots=True)
class _Task:
    number: int
    clock: int
    shards: tuple[int, ...]
    plan: _Plan
    snapshot: Matrix | None = None
    deltas: dict[int, Patch] = field(default_factory=dict)
    asked: dict[int, _Asked] = field(default_factory=dict)
    pushing: bool = False

    @property
    def reading(self) -> bool:
        return not self.pushing and bool(self.asked)


class Worker:
    """``rows(shard)``: the global rows a shard reads, sorted and unique (constant over the job)."""

    def __init__(
        self, machine: str, incarnation: int, partitions: int, columns: int, rows: Callable[[int], Rows]
    ) -> None:
        self._machine = machine
        self._incarnation = incarnation
        self._columns = columns
        self._partitions = partitions
        self._rows = rows
        self._plan = lru_cache(maxsize=8)(self._make_plan)
        self._own_shares = lru_cache(maxsize=64)(lambda shard: _shares(rows(shard), partitions))
        self._assigned: Assign | None = None
        self._routes: dict[int, Route] = {}
        self._over = 0  # clocks up to here are complete everywhere
        self._delivered: dict[int, int] = {}  # shard -> last clock acknowledged, in this generation
        self._task: _Task | None = None
        self._numbers = 0
        self._drained = False
        self._behind: dict[int, bool] = {}  # partition -> what its server said last
        self._out: list[Outgoing] = []

    # ---- what the shell sees -------------------------------------------------------------------

    @property
    def clock(self) -> int | None:
        """The clock in hand."""
        return None if self._task is None else self._task.clock

    def assign(self, assign: Assign) -> tuple[Outgoing, ...]:
        """Take on a newer assignment; an older version than the last is ignored."""
        last = self._assigned
        if last is not None and assign.version <= last.version:
            return ()
        if last is None or assign.generation > last.generation:
            self._over, self._delivered, self._task = assign.clock - 1, {}, None
            self._behind.clear()
        self._assigned = assign
        self._over = max(self._over, assign.clock - 1)
        self._routes = {route.partition: route for route in assign.routes}
        if not assign.drain:
            self._drained = False
        self._review_task(assign)
        return self._go_on()

    def handle(self, answer: Answer) -> tuple[Outgoing, ...]:
        """Take a server's answer; one to a request that is no longer under way is ignored."""
        task = self._task
        if task is None:
            return ()
        if isinstance(answer, Behind):
            if any(asked.request == answer.request for asked in task.asked.values()):
                self._over = max(self._over, answer.clock)
                self._task = None
            return self._go_on()
        asked = task.asked.get(answer.partition)
        if asked is None or asked.request != answer.request or isinstance(answer, Moved):
            return ()  # what was refused is sent again when an assignment says where to
        del task.asked[answer.partition]
        if isinstance(answer, UpdateDone):
            self._behind[answer.partition] = answer.behind
        if isinstance(answer, ReadDone):
            self._put(task, answer)
        return self._go_on()

    @property
    def uncomputed(self) -> int:
        """How many shards of the clock in hand can be computed now."""
        task = self._task
        if task is None or task.asked or task.pushing:
            return 0
        return len(set(task.shards) - task.deltas.keys())

    def work(self, at_most: int | None = None) -> tuple[Work, ...]:
        """What can be computed now, in the order of shards."""
        task = self._task
        if task is None or not self.uncomputed:
            return ()
        shards = [shard for shard in task.shards if shard not in task.deltas][:at_most]
        return tuple(Work(task.number, shard, task.clock, self._values(task, shard)) for shard in shards)

    def computed(self, work: Work, delta: Patch) -> tuple[Outgoing, ...]:
        """Take the delta of a piece of work: global rows, sorted and unique."""
        task = self._task
        if task is None or task.number != work.task or work.shard not in task.shards or task.pushing:
            return ()
        task.deltas[work.shard] = delta
        return self._go_on()

    def abandon(self) -> tuple[Outgoing, ...]:
        """Give up what is not pushed yet: the notice is too short to finish it."""
        if self._task is not None and not self._task.pushing:
            self._task = None
        return self._go_on()

    # ---- the task in hand ----------------------------------------------------------------------

    def _review_task(self, assign: Assign) -> None:
        """Keep of the task what the new assignment still wants, and what is done: of a drained clock, all.

        Machines that join or leave one by one change assignments many times in a clock. So a read goes on for
        those shards that stay, and gained ones make a task of their own after this one; and deltas that were
        computed are pushed, although their shards are somebody else's by now, who may still have to begin.
        Not so the first shard's: its owner alone says where ranges for the backups end.
        """
        task = self._task
        if task is None or task.pushing:
            return
        if task.reading and (assign.drain or task.clock != self._due_clock()):
            self._task = None
        elif not assign.drain:
            wanted = {*assign.shards, *(task.deltas.keys() - {0})}
            task.shards = tuple(shard for shard in task.shards if shard in wanted)
            if not task.shards:
                self._task = None

    def _go_on(self) -> tuple[Outgoing, ...]:
        task = self._task
        if task is not None and task.pushing and not task.asked:
            for shard in task.shards:
                self._delivered[shard] = max(task.clock, self._delivered.get(shard, 0))
            self._task = None
        elif task is not None and not task.pushing and task.deltas.keys() >= set(task.shards):
            self._start_push(task)
        if self._task is None:
            self._start_task()
        self._send()
        out, self._out = tuple(self._out), []
        return out

    def _next(self, shard: int) -> int:
        return max(self._over, self._delivered.get(shard, 0)) + 1

    def _due_clock(self) -> int | None:
        shards = () if self._assigned is None else self._assigned.shards
        return min((self._next(shard) for shard in shards), default=None)

    def _due(self, clock: int) -> tuple[int, ...]:
        shards = () if self._assigned is None else self._assigned.shards
        return tuple(shard for shard in sorted(shards) if self._next(shard) == clock)

    def _start_task(self) -> None:
        assign = self._assigned
        if assign is not None and assign.drain:
            if not self._drained:
                self._out.append(Drained(self._machine, self._incarnation))
            self._drained = True
            return
        clock = self._due_clock()
        if assign is None or clock is None or clock > assign.until:
            return
        shards = self._due(clock)
        plan = self._plan(shards)
        self._numbers += 1
        self._task = task = _Task(self._numbers, clock, shards, plan)
        for share in plan.shares.values():
            task.asked[share.partition] = _Asked(ReadPart(share.partition, 0, share.local))

    def _make_plan(self, shards: tuple[int, ...]) -> _Plan:
        of = {shard: self._rows(shard) for shard in shards}
        rows = next(iter(of.values())) if len(of) == 1 else np.unique(np.concatenate(tuple(of.values())))
        shares = {share.partition: share for share in _shares(rows, self._partitions) if len(share.local)}
        places = {shard: _places(mine, rows) for shard, mine in of.items()}
        return _Plan(rows, shares, places)

    def _put(self, task: _Task, answer: ReadDone) -> None:
        """Where one partition has it all, its answer is the snapshot."""
        plan = task.plan
        if len(plan.shares) == 1:
            task.snapshot = answer.values
            return
        if task.snapshot is None:
            task.snapshot = np.empty((len(plan.rows), self._columns), np.float32)
        task.snapshot[plan.shares[answer.partition].places] = answer.values

    def _values(self, task: _Task, shard: int) -> Matrix:
        if task.snapshot is None:  # there is nothing to read
            return np.empty((0, self._columns), np.float32)
        values: Matrix = task.snapshot[task.plan.places[shard]]
        values.flags.writeable = False
        return values

    def _start_push(self, task: _Task) -> None:
        task.pushing = True
        parts: dict[int, list[ShardDelta]] = defaultdict(list)
        for shard in task.shards:
            for partition, patch in enumerate(self._split(shard, task.deltas[shard])):
                parts[partition].append(ShardDelta(shard, patch))
        task.asked = {p: _Asked(UpdatePart(p, 0, tuple(deltas))) for p, deltas in parts.items()}

    def _split(self, shard: int, delta: Patch) -> list[Patch]:
        """By partition, in local rows: one for each, which counts shards to know a clock complete."""
        known = self._own_shares(shard)
        same = np.array_equal(delta.rows, self._rows(shard))
        shares = known if same else _shares(delta.rows, self._partitions)
        return [Patch(share.local, delta.values[share.places]) for share in shares]

    # ---- requests ------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send every part that its present route has not been asked for, one message per server."""
        task, assign = self._task, self._assigned
        if task is None or assign is None:
            return
        batches: dict[Peer, list[_Asked]] = defaultdict(list)
        for partition, asked in task.asked.items():
            route = self._routes.get(partition)
            if route is not None and route != asked.route:
                asked.route = route
                batches[Peer(route.machine, route.endpoint)].append(asked)
        for peer, batch in batches.items():
            self._numbers += 1
            for asked in batch:
                asked.request = self._numbers
            parts = [replace(asked.part, epoch=self._routes[asked.part.partition].epoch) for asked in batch]
            self._out.append(Send(peer, self._request(task, assign.generation, parts)))

    def _request(self, task: _Task, generation: int, parts: list[_Part]) -> Read | Update:
        number, clock = self._numbers, task.clock
        if task.pushing:
            updates = tuple(part for part in parts if isinstance(part, UpdatePart))
            return Update(number, generation, clock, self._cuts(task), updates)
        reads = tuple(part for part in parts if isinstance(part, ReadPart))
        return Read(number, generation, clock, reads)

    def _cuts(self, task: _Task) -> bool:
        """Whether the clock ends a range: the last one does, and every one that the backups keep up with."""
        until = 0 if self._assigned is None else self._assigned.until
        return task.shards[0] == 0 and (task.clock == until or not any(self._behind.values()))


def _shares(rows: Rows, partitions: int) -> tuple[_Share, ...]:
    """One for each partition, in order. Of consecutive rows every N-th is a partition's: no lookup needed."""
    run = span(rows)
    if run is None or not len(rows):
        owner = rows % partitions
        found: list[slice | Rows] = [np.flatnonzero(owner == p) for p in range(partitions)]
    else:
        found = [slice((p - run.start) % partitions, None, partitions) for p in range(partitions)]
    return tuple(_Share(p, rows[places] // partitions, places) for p, places in enumerate(found))


def _places(some: Rows, among: Rows) -> slice | Rows:
    """Where ``some`` rows are among others."""
    if len(some) == len(among):
        return slice(None)
    return index(np.searchsorted(among, some))
