"""Keeps what a server cannot answer or carry out yet, and tries it again when its partition changes.

Every message to a server is about one partition or names its partitions, and no change of one releases what
waits for another. So a message costs what waits for its own partitions, however many others there are.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from agileml.protocol.commands import BackUp, Handover, Restore, Rollback, SaveModel
from agileml.protocol.messages import (
    EndOfLife,
    Inquiry,
    Install,
    Push,
    Read,
    ReadPart,
    Unknown,
    Update,
    UpdatePart,
)

Move: TypeAlias = Handover | BackUp | Restore | Rollback


@dataclass(frozen=True, slots=True)
class RequestPart:
    """One part of a request, with what the whole request said."""

    sender: str
    request: int
    generation: int
    clock: int
    cut: bool
    part: ReadPart | UpdatePart

    @property
    def slot_key(self) -> tuple[str, int, bool]:
        """Identifies the older part that this one replaces: a worker has one read and one update per
        partition under way.
        """
        return self.sender, self.part.partition, isinstance(self.part, UpdatePart)


@dataclass(frozen=True, slots=True)
class PeerMessage:
    """A message from another server, which is told when it is dealt with."""

    sender: str
    message: Push | Install | EndOfLife


Item: TypeAlias = RequestPart | PeerMessage | Move


class PendingRequests:
    """Holds what waits, by partition, numbered in the order in which it came; and saves, which need several
    partitions.

    That order holds across partitions: a worker whose request came first has all its answers first, and
    computes while the link carries those of others.
    """

    def __init__(self) -> None:
        self._items: defaultdict[int, dict[int, Item]] = defaultdict(dict)
        self._asked: dict[tuple[str, int, bool], int] = {}
        """By its place, the number of each part of a request that waits."""
        self._saves: list[SaveModel] = []
        self._next = 0
        self._untried = 0
        """From this number on nothing has been tried yet."""

    def add_item(self, item: PeerMessage | Move | SaveModel) -> None:
        match item:
            case SaveModel():
                self._saves.append(item)
            case PeerMessage(message=message):
                self._insert_item(message.partition, item)
            case move:
                self._insert_item(move.partition, move)

    def try_request(
        self, sender: str, request: Read | Update, attempt: Callable[[RequestPart], bool]
    ) -> None:
        """Tries every part once, and keeps those that are not done with.

        A newer request of a worker replaces what of an older one still waits.
        """
        cut = isinstance(request, Update) and request.cut
        for part in request.parts:
            asked = RequestPart(sender, request.request, request.generation, request.clock, cut, part)
            place = asked.slot_key
            older = self._asked.get(place)
            # The worker has given up the older request, and would ignore its answer.
            if older is not None:
                self._remove_item(older, part.partition)
            if not attempt(asked):
                self._asked[place] = self._insert_item(part.partition, asked)
        self._untried = self._next

    def retry_partitions(
        self, partitions: Iterable[int], attempt: Callable[[Item | SaveModel], bool]
    ) -> None:
        """Tries what waits for these partitions until no attempt changes anything any more, and then every
        save.

        What was tried before waits for something new. So what came since goes first, and then the others, in
        their order and over again. ``attempt`` returns whether an item is done with.
        """
        due = deque(sorted((number, p) for p in set(partitions) for number in self._items.get(p, ())))
        due.rotate(sum(number >= self._untried for number, _ in due))
        self._untried = self._next
        in_vain = 0
        while in_vain < len(due):
            number, partition = place = due.popleft()
            if attempt(self._items[partition][number]):
                self._remove_item(number, partition)
                # It may have released any of those that were tried before it.
                in_vain = 0
            else:
                due.append(place)
                in_vain += 1
        self._saves = [save for save in self._saves if not attempt(save)]

    def _insert_item(self, partition: int, item: Item) -> int:
        number, self._next = self._next, self._next + 1
        self._items[partition][number] = item
        return number

    def _remove_item(self, number: int, partition: int) -> None:
        item = self._items[partition].pop(number)
        if isinstance(item, RequestPart):
            del self._asked[item.slot_key]

    def drop_pushes(self, partition: int) -> None:
        """Drops pushes to a replica that is gone."""
        kept = {number: item for number, item in self._items[partition].items() if not _is_push(item)}
        self._items[partition] = kept

    def find_unknown(self, sender: str, inquiry: Inquiry) -> list[Unknown]:
        """Returns an answer for each partition asked after for which nothing of the request waits here."""
        request = inquiry.request
        return [Unknown(request, p) for p in inquiry.partitions if not self._is_waiting(p, sender, request)]

    def has_transfer(self, partition: int, epoch: int) -> bool:
        messages = (item.message for item in self._items[partition].values() if isinstance(item, PeerMessage))
        return any(
            isinstance(message, Install | EndOfLife) and message.epoch == epoch for message in messages
        )

    def _is_waiting(self, partition: int, sender: str, request: int) -> bool:
        return any(
            isinstance(item, RequestPart) and (item.sender, item.request) == (sender, request)
            for item in self._items[partition].values()
        )


def _is_push(item: Item) -> bool:
    return isinstance(item, PeerMessage) and isinstance(item.message, Push)
