"""Sends a worker's tasks to servers: one request for each server, and another try for what was lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator

from agileml.protocol.commands import Assign, Route
from agileml.protocol.messages import (
    LEADING_SHARD,
    Inquiry,
    Peer,
    Read,
    ReadPart,
    Send,
    Update,
    UpdateDone,
    UpdatePart,
)
from agileml.worker.task import PendingPart, Task


class Requests:
    """Numbers requests, and knows by the latest assignment where they go."""

    def __init__(self) -> None:
        self._routes: dict[int, Route] = {}
        self._generation = 0
        self._until = 0
        self._number = 0
        self._behind: dict[int, bool] = {}  # partition -> what its server said last

    def set_assignment(self, assign: Assign) -> None:
        if assign.generation != self._generation:
            self._behind.clear()
        self._routes = {route.partition: route for route in assign.routes}
        self._generation, self._until = assign.generation, assign.until

    def note_lag(self, done: UpdateDone) -> None:
        """Notes whether the partition's backup keeps up."""
        self._behind[done.partition] = done.behind

    def send_task(self, task: Task, held_back: Container[int]) -> Iterator[Send]:
        """Yields a request for every server with parts that its present route has not been asked for.

        ``held_back``: the partitions of which nothing is asked again yet.
        """
        batches: dict[str, list[tuple[Route, PendingPart]]] = {}
        for partition, asked in task.asked.items():
            route = self._routes.get(partition)
            # Without a route the partition is on its way; the assignment that names its new owner comes here
            # again.
            if route is None or route is asked.route or route == asked.route:
                continue
            if not (asked.again and partition in held_back):
                asked.route, asked.again = route, False
                batches.setdefault(route.endpoint, []).append((route, asked))
        for endpoint, batch in batches.items():
            self._number += 1
            for _, asked in batch:
                asked.request, asked.recent = self._number, True
            yield Send(Peer(batch[0][0].machine, endpoint), self._make_request(task, batch))

    def inquire(self, tasks: Iterable[Task]) -> Iterator[Send]:
        """Yields inquiries after what has had no answer since before the last call."""
        silent: dict[tuple[Peer, int], list[int]] = defaultdict(list)
        for task in tasks:
            for partition, asked in task.asked.items():
                if not asked.recent and asked.request and asked.route is not None:
                    server = Peer(asked.route.machine, asked.route.endpoint)
                    silent[server, asked.request].append(partition)
                # What was sent just now may still be answered; it is asked after the next time.
                asked.recent = False
        for (server, request), partitions in silent.items():
            yield Send(server, Inquiry(request, tuple(partitions)))

    def _make_request(self, task: Task, batch: list[tuple[Route, PendingPart]]) -> Read | Update:
        updates, reads = [], []
        for route, asked in batch:
            if isinstance(asked.content, list):
                updates.append(UpdatePart(route.partition, route.epoch, tuple(asked.content)))
            else:
                reads.append(ReadPart(route.partition, route.epoch, asked.content))
        if task.pushing:
            cut = self._ends_range(task)
            return Update(self._number, self._generation, task.clock, cut, tuple(updates))
        return Read(self._number, self._generation, task.clock, tuple(reads))

    def _ends_range(self, task: Task) -> bool:
        """Whether the clock ends a range: the last one does, and every one that the backups keep up with."""
        return task.shards[0] == LEADING_SHARD and (
            task.clock == self._until or not any(self._behind.values())
        )
