"""What a server cannot answer or carry out yet: it waits, and is tried again after every change."""

from __future__ import annotations

from collections.abc import Callable
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


Item: TypeAlias = Asked | Came | Move | SaveModel


class HeldBack:
    """In the order in which it came."""

    def __init__(self) -> None:
        self._items: list[Item] = []

    def add(self, item: Item) -> None:
        self._items.append(item)

    def ask(self, sender: str, request: Read | Update) -> None:
        """A newer request of a worker replaces what of an older one still waits."""
        cut = isinstance(request, Update) and request.cut
        for part in request.parts:
            asked = Asked(sender, request.request, request.generation, request.clock, cut, part)
            self._items = [
                old for old in self._items if not isinstance(old, Asked) or old.place != asked.place
            ]
            self._items.append(asked)

    def settle(self, attempt: Callable[[Item], bool]) -> None:
        """Try everything until nothing more gets done; ``attempt`` says whether an item is done with."""
        tried = -1
        while tried != len(self._items):
            tried = len(self._items)
            self._items = [item for item in self._items if not attempt(item)]

    def drop_pushes(self, partition: int) -> None:
        """What came for a copy that is gone."""
        self._items = [item for item in self._items if not _push_for(item, partition)]

    def unknown(self, sender: str, inquiry: Inquiry) -> list[Unknown]:
        """Of the partitions asked after, those for which nothing of the request waits here."""
        waiting = {
            item.part.partition
            for item in self._items
            if isinstance(item, Asked) and (item.sender, item.request) == (sender, inquiry.request)
        }
        return [Unknown(inquiry.request, p) for p in inquiry.partitions if p not in waiting]

    def has_transfer(self, partition: int, epoch: int) -> bool:
        messages = (item.message for item in self._items if isinstance(item, Came))
        return any(
            isinstance(message, Install | EndOfLife)
            and (message.partition, message.epoch) == (partition, epoch)
            for message in messages
        )


def _push_for(item: Item, partition: int) -> bool:
    return isinstance(item, Came) and isinstance(item.message, Push) and item.message.partition == partition
