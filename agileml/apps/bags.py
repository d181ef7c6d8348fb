"""Reads documents as bags of words: rows of document, word and count, for the topic model of ``lda.py``.

The counts say all that collapsed Gibbs sampling needs: words of a document may come in any order. Documents
and words are whole numbers or names; a pair of them is on one row, or else on rows that are added up. Rows of
one document should lie together, since the number of documents that have a word is counted batch after batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from agileml.api import ApplicationError, Arrays, Columns, Kind
from agileml.apps.tally import Tally

if TYPE_CHECKING:
    from agileml.data.tables import Table

Ints = npt.NDArray[np.int64]

COLUMNS: Final = Columns(
    {"doc": Kind.KEY, "word": Kind.KEY, "count": Kind.INTEGER},
    aliases={
        "doc": ("docId", "document", "documentId"),
        "word": ("wordId", "term", "termId"),
        "count": ("n", "frequency"),
    },
)


@dataclass(frozen=True, slots=True)
class Words:
    """All words of an input: their keys, sorted, how often each occurs, and in how many documents."""

    keys: Ints
    often: Ints
    documents: Ints


def count_words(table: Table) -> tuple[Words, Ints]:
    """Returns the words of ``table``, and its documents' keys, sorted.

    Raises ApplicationError where a count is below zero.
    """
    often, documents, within, pairs = Tally(), Tally(), Tally(), _Pairs()
    for batch in table.batches():
        wrong = np.flatnonzero(batch["count"] < 0)
        if len(wrong):
            found = batch["count"][wrong[0]]
            raise ApplicationError(f"{table.location}: found the count {found}, expected 0 or more")
        often.add_keys(batch["word"], batch["count"])
        there = batch["count"] > 0
        within.add_keys(pairs.words_of_new(batch["doc"][there], batch["word"][there]))
        documents.add_keys(batch["doc"])
    keys, counts = often.sums_by_key()
    in_documents = np.zeros(len(keys), np.int64)
    found, documents_of = within.sums_by_key()
    in_documents[np.searchsorted(keys, found)] = documents_of
    return Words(keys, counts, in_documents), documents.sums_by_key()[0]


class _Pairs:
    """Finds the pairs of a document and a word that are new, batch after batch.

    It remembers the words of the document that the last batch ended with. So a pair counts once where the
    rows of its document lie together, else once for each batch that has it.
    """

    def __init__(self) -> None:
        self._document = 0
        self._words: Ints = np.empty(0, np.int64)

    def words_of_new(self, document: Ints, word: Ints) -> Ints:
        """Returns the word of each pair that is new; ``document`` and ``word`` have one a row."""
        if not len(document):
            return word
        order = np.lexsort((word, document))
        documents, words = document[order], word[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (documents[1:] != documents[:-1]) | (words[1:] != words[:-1])
        documents, words = documents[first], words[first]
        # Only the document that the last batch ended with can go on in this one.
        known = (documents == self._document) & np.isin(words, self._words)
        last = int(document[-1])
        of_last = words[documents == last]
        self._words = np.union1d(self._words, of_last) if last == self._document else of_last
        self._document = last
        new: Ints = words[~known]
        return new


def measure_documents(table: Table, documents: Ints, words: Ints) -> Ints:
    """Returns how many of the sorted ``words`` each of ``documents`` has, repetitions included."""
    lengths = np.zeros(len(documents), np.int64)
    for batch in table.batches():
        kept = np.isin(batch["word"], words, assume_unique=False)
        place = np.searchsorted(documents, batch["doc"][kept])
        lengths += np.bincount(place, weights=batch["count"][kept], minlength=len(documents)).astype(np.int64)
    return lengths


def expand_counts(rows: Arrays, documents: Ints, words: Ints) -> tuple[Ints, Ints, Ints]:
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
