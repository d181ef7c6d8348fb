"""What a server cannot answer or carry out yet: it waits, and is tried again when its partition changes.

Whatever is said to a server is about one partition or names them, and nothing that is done for one releases
what waits for another. So a message costs what waits for its own partitions, however many others there are.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from agileml.commands import BackUp, Handover, Restore, Rollback, SaveModel
from agileml.messages import EndOfLife, Inquiry, Install, Push, Read, ReadPart, Unknown, Update, UpdatePart

Move: TypeAlias = Handover | BackUp | Restore | Rollback


@dataclass(frozen=True, slots=True)
class Asked:
    """One part of a request, with what the whole request said."""

    sender: str
    request: int
    generation: int
    clock: int
    cut: bool
    part: ReadPart | UpdatePart

    @property
    def place(self) -> tuple[str, int, bool]:
        """A worker has one read and one update per partition under way."""
        return self.sender, self.part.partition, isinstance(self.part, UpdatePart)


@dataclass(frozen=True, slots=True)
class Came:
    """From another server, which is told when it is dealt with."""

    sender: str
    message: Push | Install | EndOfLife


Item: TypeAlias = Asked | Came | Move


class HeldBack:
    """By partition, numbered in the order in which it came; and what needs several partitions, the last save.

    That order holds across partitions: a worker whose request came first has all its answers first, and
    computes while the link carries those of others.
    """

    def __init__(self) -> None:
        self._items: defaultdict[int, dict[int, Item]] = defaultdict(dict)
        self._saves: list[SaveModel] = []
        self._numbers = itertools.count()

    def add(self, item: Came | Move | SaveModel) -> None:
        match item:
            case SaveModel():
                self._saves.append(item)
            case Came(message=message):
                self._items[message.partition][next(self._numbers)] = item
            case move:
                self._items[move.partition][next(self._numbers)] = move

    def ask(self, sender: str, request: Read | Update) -> list[tuple[int, int]]:
        """A newer request of a worker replaces what of an older one still waits.

        Returns the number and the partition of each of its parts.
        """
        cut, places = isinstance(request, Update) and request.cut, []
        for part in request.parts:
            asked = Asked(sender, request.request, request.generation, request.clock, cut, part)
            place, waiting = asked.place, self._items[part.partition]
            for older, old in tuple(waiting.items()):
                if isinstance(old, Asked) and old.place == place:
                    del waiting[older]
            waiting[number := next(self._numbers)] = asked
            places.append((number, part.partition))
        return places

    def try_alone(self, places: Iterable[tuple[int, int]], attempt: Callable[[Item], bool]) -> None:
        """As ``settle``, for these parts of a request and nothing else."""
        for number, partition in places:
            if attempt(self._items[partition][number]):
                del self._items[partition][number]

    def settle(self, partitions: Iterable[int], attempt: Callable[[Item | SaveModel], bool]) -> None:
        """Try what waits for these partitions until nothing more gets done, and then every save.

        ``attempt`` says whether an item is done with.
        """
        about, tried = tuple(set(partitions)), -1
        while len(due := self._due(about)) != tried:
            tried = len(due)
            for number, partition in due:
                item = self._items[partition].get(number)
                if item is not None and attempt(item):
                    self._items[partition].pop(number, None)
        self._saves = [save for save in self._saves if not attempt(save)]

    def _due(self, partitions: Iterable[int]) -> list[tuple[int, int]]:
        return sorted((number, p) for p in partitions for number in self._items.get(p, ()))

    def drop_pushes(self, partition: int) -> None:
        """What came for a copy that is gone."""
        kept = {number: item for number, item in self._items[partition].items() if not _is_push(item)}
        self._items[partition] = kept

    def unknown(self, sender: str, inquiry: Inquiry) -> list[Unknown]:
        """Of the partitions asked after, those for which nothing of the request waits here."""
        request = inquiry.request
        return [Unknown(request, p) for p in inquiry.partitions if not self._waits(p, sender, request)]

    def has_transfer(self, partition: int, epoch: int) -> bool:
        messages = (item.message for item in self._items[partition].values() if isinstance(item, Came))
        return any(
            isinstance(message, Install | EndOfLife) and message.epoch == epoch for message in messages
        )

    def _waits(self, partition: int, sender: str, request: int) -> bool:
        return any(
            isinstance(item, Asked) and (item.sender, item.request) == (sender, request)
            for item in self._items[partition].values()
        )


def _is_push(item: Item) -> bool:
    return isinstance(item, Came) and isinstance(item.message, Push)
