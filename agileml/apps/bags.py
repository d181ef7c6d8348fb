"""Documents as bags of words: rows of document, word and count, for the topic model of ``lda.py``.

The counts say all that collapsed Gibbs sampling needs: words of a document may come in any order. Documents
and words are whole numbers or names; a pair of them is on one row, or else on rows that are added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from agileml.app import ApplicationError, Arrays, Columns, Kind

if TYPE_CHECKING:
    from agileml.tables import Table

Ints = npt.NDArray[np.int64]

COLUMNS: Final = Columns(
    {"doc": Kind.KEY, "word": Kind.KEY, "count": Kind.INTEGER},
    aliases={
        "doc": ("docId", "document", "documentId"),
        "word": ("wordId", "term", "termId"),
        "count": ("n", "frequency"),
    },
)


class Tally:
    """Sums weights by key, in memory that follows the number of different keys."""

    def __init__(self) -> None:
        self._keys: list[Ints] = [np.empty(0, np.int64)]
        self._sums: list[Ints] = [np.empty(0, np.int64)]
        self._waiting = 0

    def add(self, keys: Ints, weights: Ints) -> None:
        """Adds a weight to each key. Merges only when as much is waiting as is known: n log n in all."""
        self._keys.append(keys)
        self._sums.append(weights)
        self._waiting += len(keys)
        if self._waiting > len(self._keys[0]) + 1_000_000:
            self._merge()

    def sums(self) -> tuple[Ints, Ints]:
        """Returns the keys, sorted, and their sums."""
        self._merge()
        return self._keys[0], self._sums[0]

    def _merge(self) -> None:
        keys, place = np.unique(np.concatenate(self._keys), return_inverse=True)
        weights = np.concatenate(self._sums)
        sums = np.bincount(place, weights=weights, minlength=len(keys)).astype(np.int64)
        self._keys, self._sums, self._waiting = [keys], [sums], 0


@dataclass(frozen=True, slots=True)
class Words:
    """All words of an input: their keys, sorted, how often each occurs, and in how many documents."""

    keys: Ints
    often: Ints
    documents: Ints


def count_words(table: Table) -> tuple[Words, Ints]:
    """Returns the words of ``table``, and its documents' keys, sorted. Raises ApplicationError."""
    often, documents, within = Tally(), Tally(), Tally()
    for batch in table.batches():
        wrong = np.flatnonzero(batch["count"] < 0)
        if len(wrong):
            found = batch["count"][wrong[0]]
            raise ApplicationError(f"{table.location}: found the count {found}, expected 0 or more")
        often.add(batch["word"], batch["count"])
        within.add(batch["word"], (batch["count"] > 0).astype(np.int64))
        documents.add(batch["doc"], batch["count"])
    keys, counts = often.sums()
    return Words(keys, counts, within.sums()[1]), documents.sums()[0]


def measure_documents(table: Table, documents: Ints, words: Ints) -> Ints:
    """Returns how many of the sorted ``words`` each of ``documents`` has, repetitions included."""
    lengths = np.zeros(len(documents), np.int64)
    for batch in table.batches():
        kept = np.isin(batch["word"], words, assume_unique=False)
        place = np.searchsorted(documents, batch["doc"][kept])
        lengths += np.bincount(place, weights=batch["count"][kept], minlength=len(documents)).astype(np.int64)
    return lengths


def expand(rows: Arrays, documents: Ints, words: Ints) -> tuple[Ints, Ints, Ints]:
    """Returns the kept words of a shard, document after document; each document's length; and its number.

    Words are places in ``words``, and documents are numbered by their places in ``documents``.
    """
    numbers, place = np.unique(np.searchsorted(documents, rows["doc"]), return_inverse=True)
    kept = np.isin(rows["word"], words)
    order = np.argsort(place[kept], kind="stable")
    count = rows["count"][kept][order]
    word = np.repeat(np.searchsorted(words, rows["word"][kept][order]), count)
    lengths = np.bincount(place[kept][order], weights=count, minlength=len(numbers)).astype(np.int64)
    return word.astype(np.int64), lengths, numbers.astype(np.int64)
