"""Topics: as good as the trusted library's on real text, counts that always agree, planted topics found."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from pydoc_data.topics import topics as PYTHON_TOPICS  # noqa: N812

import numpy as np
import numpy.typing as npt
import pytest

from agileml.api import ApplicationError
from agileml.apps.lda import LatentDirichletAllocation
from agileml.apps.planted_topics import planted_documents, write_documents
from agileml.data.sharding import cut_input
from tests.agileml.simulated.memory import Trained, train

Floats = npt.NDArray[np.float64]
SEEDS = (0, 1, 2)


def counts(trained: Trained, shards: int, documents: int) -> Floats:
    """Counts how often each document has each word, from the shards."""
    found = np.zeros((documents, len(trained.data.read_index()["words"])))
    first = 0
    for number in range(shards):
        shard = trained.data.read_shard(number)
        word = shard["rows"][: shard["sizes"][0]][shard["word"]]
        np.add.at(found, (first + shard["document"], word), 1)
        first += shard["sizes"][1]
    return found


def perplexity(of_documents: Floats, of_topics: Floats, words: Floats) -> float:
    """Returns the perplexity of the documents' words, by expected topics: both sides are measured by it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(words > 0, words * np.log(of_documents @ of_topics), 0.0)
    return float(np.exp(-logs.sum() / words.sum()))


def trusted(app: LatentDirichletAllocation, words: Floats, seed: int) -> tuple[float, Floats]:
    """scikit-learn's perplexity of the words it is fitted to, and its topics (topics, words)."""
    from sklearn.decomposition import LatentDirichletAllocation as Trusted  # takes a second or two

    fitted = Trusted(
        app.topics, doc_topic_prior=app.alpha, topic_word_prior=app.eta, max_iter=40, random_state=seed
    ).fit(words)
    of_topics = fitted.components_ / fitted.components_.sum(axis=1, keepdims=True)
    return perplexity(fitted.transform(words), of_topics, words), of_topics


def topics_of(app: LatentDirichletAllocation, trained: Trained) -> Floats:
    """Our topics' expected words (topics, words): the model's first rows are the counts."""
    counted = trained.model[: len(trained.data.read_index()["words"])].T + app.eta
    expected: Floats = counted / counted.sum(axis=1, keepdims=True)
    return expected


def halves(texts: list[str], vocabulary: list[str]) -> tuple[Floats, Floats]:
    """Counts how often each text has each word: once in every other of its known words, once in the rest."""
    number = {word: place for place, word in enumerate(vocabulary)}
    found = np.zeros((2, len(texts), len(vocabulary)))
    for row, text in enumerate(texts):
        known = [number[word] for word in re.findall(r"[^\W\d_]\w+", text.lower()) if word in number]
        for half in (0, 1):
            np.add.at(found[half, row], known[half::2], 1)
    return found[0], found[1]


def held_out(of_topics: Floats, alpha: float, seen: Floats, unseen: Floats) -> float:
    """Perplexity of the half of each document that its topics were not taken from (Wallach et al., ICML 2009,
    "document completion"). The topics stay; a document's part in each is iterated to its fixed point."""
    parts = np.full((len(seen), len(of_topics)), 1 / len(of_topics))
    for _ in range(100):
        parts = alpha + parts * ((seen / (parts @ of_topics)) @ of_topics.T)
        parts /= parts.sum(axis=1, keepdims=True)
    return perplexity(parts, of_topics, unseen)


def test_real_text_is_explained_and_foretold_as_well_as_by_scikit_learn(tmp_path: Path) -> None:
    """Python's own language reference, as pydoc ships it; the middle of three seeds on either side.

    Both sides' topics are posterior means under the same priors. They are measured by the perplexity of the
    very words they were fitted to, and by that of a fifth of the documents, which they never saw: from half
    of a document's words the other half is foretold, by the same arithmetic for both. Variational Bayes and
    Gibbs sampling end in local optima that differ by several percent from seed to seed, hence the seeds.
    """
    texts = [PYTHON_TOPICS[name] for name in sorted(PYTHON_TOPICS)]
    kept_back = texts[::5]
    texts = [text for number, text in enumerate(texts) if number % 5]
    write_documents(texts, tmp_path / "topics.csv.gz")
    fitted: dict[str, list[float]] = {"ours": [], "theirs": []}
    foretold: dict[str, list[float]] = {"ours": [], "theirs": []}
    for seed in SEEDS:
        app = LatentDirichletAllocation(topics=10, seed=seed)
        trained = train(app, tmp_path / "topics.csv.gz", tmp_path / "cut", 3, 120)
        of_words, their_topics = trusted(app, counts(trained, 3, len(texts)), seed)
        fitted["ours"].append(trained.objectives[-1])
        fitted["theirs"].append(of_words)
        seen, unseen = halves(kept_back, trained.data.read_index()["words"].tolist())
        for side, of_topics in (("ours", topics_of(app, trained)), ("theirs", their_topics)):
            foretold[side].append(held_out(of_topics, app.alpha, seen, unseen))
    print(f"perplexity over seeds {SEEDS}: {fitted} of what was fitted, {foretold} of what was held out")
    for found in (fitted, foretold):
        assert statistics.median(found["ours"]) <= 1.02 * statistics.median(found["theirs"])


def test_planted_topics_are_found(tmp_path: Path) -> None:
    """The fit is as good as the true topics, but for what fitting gains."""
    texts, of_documents, of_topics = planted_documents(300, 100, 200, 5, seed=1)
    write_documents(texts, tmp_path / "in.csv")
    app = LatentDirichletAllocation(topics=5, alpha=0.2, eta=0.05, documents=1, share=1.0)
    trained = train(app, tmp_path / "in.csv", tmp_path / "cut", 4, 60)
    kept = [int(word.removeprefix("word")) for word in trained.data.read_index()["words"].tolist()]
    known = perplexity(of_documents, of_topics[:, kept], counts(trained, 4, 300))
    assert trained.objectives[-1] <= 1.02 * known


@pytest.mark.parametrize("shards", [1, 3, 9])
def test_counts_are_those_of_the_topics_after_every_clock(shards: int, tmp_path: Path) -> None:
    texts, _, _ = planted_documents(7, 30, 40, 3, seed=2)
    write_documents(texts, tmp_path / "in.csv")
    app = LatentDirichletAllocation(topics=4, documents=1, share=1.0)
    for clocks in (1, 2, 5):
        trained = train(app, tmp_path / "in.csv", tmp_path / f"cut {clocks}", shards, clocks)
        recount = np.zeros_like(trained.model)
        for number in range(shards):
            shard = trained.data.read_shard(number)
            words = shard["sizes"][0]
            topic = trained.model[shard["rows"][words + 1 :]].reshape(-1)[shard["at"]].astype(int) - 1
            assert topic.min(initial=0) >= 0
            np.add.at(recount, (shard["rows"][:words][shard["word"]], topic), 1)
        vocabulary = len(trained.data.read_index()["words"])
        recount[vocabulary] = recount[:vocabulary].sum(axis=0)
        assert np.array_equal(recount[: vocabulary + 1], trained.model[: vocabulary + 1])
        assert recount[vocabulary].sum() == 7 * 30


def test_the_first_perplexity_is_that_of_guessing(tmp_path: Path) -> None:
    texts, _, _ = planted_documents(10, 30, 40, 3, seed=2)
    write_documents(texts, tmp_path / "in.csv")
    app = LatentDirichletAllocation(documents=1, share=1.0)
    trained = train(app, tmp_path / "in.csv", tmp_path / "cut", 2, 1)
    assert trained.objectives == [pytest.approx(len(trained.data.read_index()["words"]))]


def test_rare_and_common_words_are_left_out(tmp_path: Path) -> None:
    write_documents(
        ["the cat, the 2 cats", "The DOG and the cat", "the bird’s “song”", ""], tmp_path / "i.csv"
    )
    app = LatentDirichletAllocation(documents=2, share=0.5)
    cut_input(app, tmp_path / "i.csv", 2, tmp_path / "cut")
    with np.load(tmp_path / "cut" / "index.npz") as index:
        assert index["words"].tolist() == ["cat"]


def test_an_input_without_words_in_common_is_refused(tmp_path: Path) -> None:
    write_documents(["one", "two"], tmp_path / "in.csv")
    with pytest.raises(ApplicationError, match="no word is in 2 to 1 documents"):
        cut_input(LatentDirichletAllocation(), tmp_path / "in.csv", 2, tmp_path / "cut")
