"""Counts how often each key of an input occurs, in memory that follows the number of different keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Tally:
    """Sums weights by key, batch after batch."""

    def __init__(self) -> None:
        self._keys: Ints = np.empty(0, np.int64)
        self._sums: Ints = np.empty(0, np.int64)
        self._waiting: list[tuple[Ints, Ints]] = []
        self._keys_waiting = 0

    def add_keys(self, keys: Ints, weights: Ints | None = None) -> None:
        """Adds a weight to each key; None: 1.

        Waiting keys are merged when they are as many as the known ones. So each key is merged few times, and
        many batches of many keys take little longer than one.
        """
        if weights is None:
            found, sums = np.unique(keys, return_counts=True)
        else:
            found, place = np.unique(keys, return_inverse=True)
            sums = np.zeros(len(found), np.int64)
            np.add.at(sums, place, weights)
        self._waiting.append((found, sums))
        self._keys_waiting += len(found)
        # Doubling keeps the total cost of merging linear in the number of keys.
        if self._keys_waiting > len(self._keys):
            self._merge_waiting()

    def sums_by_key(self) -> tuple[Ints, Ints]:
        """Returns all keys, sorted, and the sum of each."""
        self._merge_waiting()
        return self._keys, self._sums

    def _merge_waiting(self) -> None:
        if not self._waiting:
            return
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._waiting)])
        sums = np.concatenate([self._sums, *(sums for _, sums in self._waiting)])
        self._waiting, self._keys_waiting = [], 0
        order = np.argsort(keys, kind="stable")
        self._keys, firsts = np.unique(keys[order], return_index=True)
        self._sums = np.add.reduceat(sums[order], firsts) if len(firsts) else sums
