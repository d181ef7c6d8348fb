"""Makes documents whose words were drawn from known topics.

``python -m agileml.apps.planted_topics --documents 300 --topics 5 OUT.csv.gz``
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def planted_documents(
    documents: int, words: int, vocabulary: int, topics: int, seed: int
) -> tuple[list[str], Floats, Floats]:
    """Returns texts, the documents' topics (documents, topics), and the topics' words (topics, vocabulary).

    Word v is written ``word`` and v. A document has ``words`` of them, drawn by the model's own story (Blei,
    Ng and Jordan, 2003, section 3) with priors 0.2 and 0.05.
    """
    rng = np.random.default_rng(seed)
    of_topics = rng.dirichlet(np.full(vocabulary, 0.05), topics)
    of_documents = rng.dirichlet(np.full(topics, 0.2), documents)
    drawn = (rng.choice(vocabulary, words, p=mixed / mixed.sum()) for mixed in of_documents @ of_topics)
    return [" ".join(f"word{word}" for word in text) for text in drawn], of_documents, of_topics


def write_documents(texts: list[str], path: Path) -> None:
    """Writes CSV with the column ``text``; compressed where the name ends in .gz."""
    rows = "".join('"' + text.replace('"', '""') + '"\n' for text in texts)
    data = f"text\n{rows}".encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m agileml.apps.planted_topics", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--words", type=int, default=100, help="in a document")
    parser.add_argument("--vocabulary", type=int, default=200)
    parser.add_argument("--topics", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    chosen = vars(parser.parse_args(arguments))
    out = chosen.pop("out")
    texts, _, _ = planted_documents(**chosen)
    write_documents(texts, out)


if __name__ == "__main__":
    main()
