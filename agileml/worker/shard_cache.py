"""Decides which shards a worker keeps in memory: those it owns, those it may own next, and older ones if
there is room.

Pure: it is told what is wanted, read and used, and answers what to read next and what it holds. Shards that
it owned before stay until the room is needed, since they come back to their previous owners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from agileml.api import Arrays


@dataclass(slots=True)
class _CachedShard:
    arrays: Arrays
    size: int


class ShardCache:
    """Shards in memory. ``room``: bytes of arrays; without it everything that was ever read stays.

    Beyond the room, shards that are neither owned nor ahead go first, then those ahead, then those owned;
    among equals the one used longest ago.
    """

    def __init__(self, room: int | None = None) -> None:
        self._room = room
        self._owned: frozenset[int] = frozenset()
        self._ahead: tuple[int, ...] = ()
        self._books: dict[int, _CachedShard] = {}  # the one used longest ago first
        self._refused: set[int] = set()

    @property
    def cached_shards(self) -> frozenset[int]:
        return frozenset(self._books)

    @property
    def size_bytes(self) -> int:
        return sum(book.size for book in self._books.values())

    def set_wanted(self, owned: Iterable[int], ahead: Iterable[int]) -> None:
        """Sets what is wanted from now on; ``ahead`` in the order in which to read."""
        self._owned, self._ahead = frozenset(owned), tuple(ahead)
        self._refused.clear()

    @property
    def is_full(self) -> bool:
        """Whether there is no room for some of what is wanted."""
        return bool(self._refused)

    def next_to_read(self) -> int | None:
        """Returns the shard to read while there is time; None when all is there that there is room for."""
        wanted = (*sorted(self._owned), *self._ahead)
        return next((n for n in wanted if n not in self._books and n not in self._refused), None)

    def add_shard(self, shard: int, arrays: Arrays) -> None:
        """Adds a shard that was read. It does not stay where others are worth more."""
        self._books.pop(shard, None)
        self._books[shard] = _CachedShard(arrays, _size_bytes(arrays))
        if self._room is None:
            return
        while self.size_bytes > self._room:
            victim = min(self._books, key=self._eviction_rank)
            del self._books[victim]
            self._refused.add(victim)

    def get_shard(self, shard: int) -> Arrays | None:
        """Returns a shard to be used now; None where it has to be read first."""
        book = self._books.pop(shard, None)
        if book is None:
            return None
        # Put back at the end: the dictionary's order is that of last use.
        self._books[shard] = book
        return book.arrays

    def _eviction_rank(self, shard: int) -> int:
        """Returns how much a shard is worth. Among equals ``min`` takes the first, which was used longest
        ago.
        """
        return 2 if shard in self._owned else int(shard in self._ahead)


def _size_bytes(arrays: Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]) -> int:
    return sum(array.nbytes for array in arrays.values())
