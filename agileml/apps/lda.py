"""Implements latent Dirichlet allocation by collapsed Gibbs sampling (Griffiths and Steyvers, 2004, equation
5).

Every word of every document has a topic z, drawn from the probability of each topic given all others: (n_dk +
alpha) (n_wk + eta) / (n_k + V eta), where the counts leave the word itself out. The model's rows are the
counts n_wk of V words, their sums n_k, and then the topics z themselves, K words a row and plus one, so that
0 means not drawn yet; columns are the K topics.

The topics are the state of a shard, and they are kept in the model because there they already have all that
they need. The next owner of the shard reads them, and a roll-back takes them back to B together with the
counts that belong to them. They cost as many bytes a clock as four per word of the input.

A shard draws its words in ``stripes``, those of a stripe at once and in NumPy. Each word sees the draws of
the stripes before, of its own shard; those of other shards it sees a clock later (AD-LDA, Newman et al. 2009,
section 3.1). With s > 0 a worker's death in the middle of a push may leave counts and topics a few words
apart; with s = 0 they always agree.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import numpy.typing as npt

from agileml.api import ApplicationError, Arrays, Columns, Counts, Kind, Outcome, Survey
from agileml.apps import bags
from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch

if TYPE_CHECKING:
    from agileml.data.tables import Table

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_WORD: Final = re.compile(r"[^\W\d_]\w+")


@dataclass(frozen=True, slots=True)
class LatentDirichletAllocation:
    """Learns topics of documents. Rows of the input are documents, or counts of a word in a document.

    ``alpha``, ``eta``: the priors of topics in a document and of words in a topic. Of the words in at least
    ``documents`` of them and in no more than ``share`` of them, the ``vocabulary`` most frequent are kept.
    """

    metric: ClassVar[str] = "perplexity"
    columns: ClassVar[Columns] = Columns(
        {"text": Kind.TEXT}, aliases={"text": ("document", "body", "content")}, instead=bags.COLUMNS
    )

    topics: int = 10
    alpha: float = 0.1
    eta: float = 0.1
    documents: int = 2
    share: float = 0.5
    vocabulary: int = 10_000
    stripes: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("topics", "documents", "vocabulary", "stripes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least 1")

    def survey(self, table: Table, shards: int) -> Survey:
        """Makes one pass for the vocabulary, and one for the length of every document."""
        if table.layout is bags.COLUMNS:
            return self._survey_bags(table, shards)
        often: Counter[str] = Counter()
        within: Counter[str] = Counter()
        for texts in _tokenized_batches(table):
            often.update(chain.from_iterable(texts))
            within.update(chain.from_iterable(map(set, texts)))
        # ``table.rows`` is known now without another pass: the batches above were a whole one.
        most = self.share * table.rows
        fit = [word for word in often if self.documents <= within[word] <= most]
        if not fit:
            raise ApplicationError(f"{table.location}: no word is in {self.documents} to {most:g} documents")
        # Ties go by the alphabet, so that the vocabulary follows from the input alone.
        kept = sorted(sorted(fit, key=lambda word: (-often[word], word))[: self.vocabulary])
        # Bound once: it is called for every word of the input.
        is_kept = frozenset(kept).__contains__
        lengths = np.array([sum(map(is_kept, text)) for texts in _tokenized_batches(table) for text in texts])
        first = self._first_rows(len(kept), lengths)
        return Survey(Shape(int(first[-1]), self.topics), {"words": np.array(kept)}, {"first": first})

    def _survey_bags(self, table: Table, shards: int) -> Survey:
        """Surveys bags of words. Shards are ranges of documents with about equally many words."""
        words, documents = bags.count_words(table)
        most = self.share * len(documents)
        fit = np.flatnonzero((self.documents <= words.documents) & (words.documents <= most))
        if not len(fit):
            raise ApplicationError(f"{table.location}: no word is in {self.documents} to {most:g} documents")
        best = fit[np.lexsort((words.keys[fit], -words.often[fit]))][: self.vocabulary]
        kept = np.sort(words.keys[best])
        lengths = bags.measure_documents(table, documents, kept)
        first, total = self._first_rows(len(kept), lengths), np.cumsum(lengths)
        ends = np.searchsorted(total, np.arange(1, shards) * total[-1] / shards)
        return Survey(
            Shape(int(first[-1]), self.topics),
            index={"words": table.named("word", kept), "documents": table.named("doc", documents)},
            common={"first": first, "words": kept, "documents": documents},
            key="doc",
            splits=documents[np.minimum(ends, len(documents) - 1)],
        )

    def _first_rows(self, words: int, lengths: Ints) -> Ints:
        """Returns the model's row at which each document's topics begin, and the end of the last."""
        first: Ints = words + 1 + np.concatenate([[0], np.cumsum(-(-lengths // self.topics))])
        return first

    def largest_model(self, words: int) -> int:
        """Counts a row for each kept word, one more, and at most one for each word of a document."""
        return (self.vocabulary + 1 + words) * self.topics

    def clock_core_seconds(self, counts: Counts) -> float:
        """Estimates from measurements on one core, with 5 to 50 topics, per word of the text."""
        return counts.values * (0.2 + 0.012 * self.topics) * 1e-6

    def prepare(self, rows: Arrays, numbers: Rows, survey: Survey) -> Arrays:
        """Returns the kept words of the shard's documents, one after the other: arrays of shape (words,).

        ``word``: its place among the shard's distinct words; ``document``; ``at``: its place in the cells of
        the topics' rows, where each document begins a row; ``stripe``. Beside them ``rows``, the model's: the
        counts of the distinct words, then the sums, then the topics; and ``sizes``: how many distinct words,
        documents, and words of the whole vocabulary.
        """
        if "doc" in rows:
            word, lengths, numbers = bags.expand_counts(
                rows, survey.common["documents"], survey.common["words"]
            )
        else:
            word, lengths = _number_words(rows, survey)
        within = _from_zero(lengths)
        rows_of = -(-lengths // self.topics)
        state = np.repeat(survey.common["first"][numbers], rows_of) + _from_zero(rows_of)
        held = rows_of * self.topics
        words, place = np.unique(word, return_inverse=True)
        return {
            "rows": np.concatenate([words, [len(survey.index["words"])], state]).astype(np.int64),
            "word": place,
            "document": np.repeat(np.arange(len(lengths)), lengths),
            "at": np.repeat(np.cumsum(held) - held, lengths) + within,
            "stripe": within % self.stripes,
            "sizes": np.array([len(words), len(lengths), len(survey.index["words"])]),
        }

    def initial(self, rows: Rows, shape: Shape) -> Matrix:
        return np.zeros((len(rows), shape.columns), np.float32)

    def rows(self, shard: Arrays) -> Rows:
        return shard["rows"]

    def process(self, shard: Arrays, values: Matrix, seed: tuple[int, int]) -> Outcome:
        """Draws the topic of each word once, stripe after stripe.

        ``values``: (len(rows), topics), as ``prepare`` orders them. The total is the log-likelihood of the
        shard's words, which are the count, before any was drawn.
        """
        words = int(shard["sizes"][0])
        counts = _Counts(self, shard, values)
        total = counts.log_likelihood()
        # By shard and clock alone: whichever machine computes it draws the same.
        chance = np.random.default_rng([self.seed, *seed])
        # Topics are plus one with 0 for none, so a difference is the delta of the first draw too.
        before = counts.topic.copy()
        for stripe in range(self.stripes):
            # Stripes deal out neighbouring words, so that words of one document see each other's draws.
            mine = np.flatnonzero(shard["stripe"] == stripe)
            counts.draw_topics(mine, chance.random(len(mine)))
        delta = np.zeros_like(values)
        delta[:words] = counts.of_words - values[:words]
        delta[words] = counts.of_topics - values[words]
        delta[words + 1 :].reshape(-1)[shard["at"]] = counts.topic - before
        return Outcome(Patch(shard["rows"], delta), total, float(len(before)))

    def objective(self, total: float, count: float) -> float:
        """Returns the perplexity of the words, by the expected topics of documents and words of topics."""
        return math.exp(-total / count)


class _Counts:
    """Holds the counts of a shard while its words are drawn.

    ``topic`` (words,): z + 1, and 0 where none was drawn yet; ``of_words`` (distinct words, topics): n_wk;
    ``of_topics`` (topics,): n_k; by document (documents, topics): n_dk.
    """

    def __init__(self, app: LatentDirichletAllocation, shard: Arrays, values: Matrix) -> None:
        words, documents, vocabulary = shard["sizes"].tolist()
        self._app = app
        self._word = shard["word"]
        self._document = shard["document"]
        self._norm = vocabulary * app.eta
        # A roll-back under staleness may leave a count below zero; there is no such probability.
        self.of_words = np.maximum(values[:words].astype(np.float64), 0)
        self.of_topics = np.maximum(values[words].astype(np.float64), 0)
        self.topic = values[words + 1 :].reshape(-1)[shard["at"]].astype(np.int64)
        drawn = self.topic > 0
        self._of_documents = self._count_cells(self._document[drawn], self.topic[drawn] - 1, documents)

    def log_likelihood(self) -> float:
        """Returns the sum over all words of the log of each one's expected probability."""
        in_document = self._of_documents + self._app.alpha
        in_document /= in_document.sum(axis=1, keepdims=True)
        in_topic = (self.of_words + self._app.eta) / (self.of_topics + self._norm)
        likely = np.einsum("ij,ij->i", in_document[self._document], in_topic[self._word])
        return float(np.sum(np.log(likely)))

    def draw_topics(self, which: Ints, uniform: Floats) -> None:
        """Draws new topics for some words at once, given those of all others."""
        word, document = self._word[which], self._document[which]
        known = self.topic[which] > 0
        # The words of a stripe leave the counts together, so none of them sees the others' new topics.
        self._adjust_counts(word[known], document[known], self.topic[which][known] - 1, -1)
        odds = (self._of_documents[document] + self._app.alpha) * (self.of_words[word] + self._app.eta)
        odds /= self.of_topics + self._norm
        below = np.cumsum(odds, axis=1)
        # Scaled by the last sum instead of normalized: one pass less over words x topics.
        drawn = np.sum(below < (uniform * below[:, -1])[:, None], axis=1)
        self.topic[which] = drawn + 1
        self._adjust_counts(word, document, drawn, 1)

    def _adjust_counts(self, word: Ints, document: Ints, topic: Ints, sign: int) -> None:
        self.of_words += sign * self._count_cells(word, topic, len(self.of_words))
        self._of_documents += sign * self._count_cells(document, topic, len(self._of_documents))
        self.of_topics += sign * np.bincount(topic, minlength=self._app.topics)

    def _count_cells(self, row: Ints, topic: Ints, rows: int) -> Floats:
        cells = np.bincount(row * self._app.topics + topic, minlength=rows * self._app.topics)
        return cells.reshape(rows, self._app.topics).astype(np.float64)


def _number_words(rows: Arrays, survey: Survey) -> tuple[Ints, Ints]:
    """Returns the kept words of texts by their numbers, one text after the other, and how many each has."""
    number = {word: place for place, word in enumerate(survey.index["words"].tolist())}
    texts = [[number[word] for word in _split_words(text) if word in number] for text in rows["text"]]
    lengths = np.array([len(text) for text in texts], np.int64)
    return np.array([place for text in texts for place in text], np.int64), lengths


def _tokenized_batches(table: Table) -> Iterator[list[list[str]]]:
    """Yields the words of each document, some documents at a time."""
    for batch in table.batches():
        yield [_split_words(text) for text in batch["text"]]


def _from_zero(lengths: Ints) -> Ints:
    """Counts from 0 for each length, one after the other."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
