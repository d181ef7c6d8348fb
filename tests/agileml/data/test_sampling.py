"""Tests what a part of an input tells of the whole."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from agileml.api import Columns, Kind
from agileml.apps import bags
from agileml.data.sampling import Sample
from agileml.data.tables import Table

RATINGS = Columns({"user": Kind.KEY, "item": Kind.KEY, "value": Kind.NUMBER})
ROWS = 300_000


def _ratings() -> dict[str, np.ndarray]:
    number = np.arange(ROWS)
    return {"user": number // 50, "item": number % 977, "value": number % 5 + 0.5}


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "npz"])
def test_the_rows_of_a_large_input_are_known_from_a_part_of_it(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"ratings.{kind}"
    if kind == "npz":
        np.savez(file, allow_pickle=False, **_ratings())
    elif kind == "parquet":
        pd.DataFrame(_ratings()).to_csv(tmp_path / "ratings.csv", index=False)
        import duckdb

        duckdb.sql(f"copy (from '{tmp_path}/ratings.csv') to '{file}'")
    else:
        pd.DataFrame(_ratings()).to_csv(file, index=False)
    sample = Sample(file, RATINGS, most_values=200_000)
    counts = sample.count_input()
    assert counts.rows_read == sample.rows < ROWS / 2
    assert counts.columns == ("user", "item", "value")
    assert counts.exact is (kind in ("parquet", "npz"))
    assert counts.rows == pytest.approx(ROWS, rel=0.0 if counts.exact else 0.05)
    assert counts.distinct["item"] == 977
    first = next(Table(file, RATINGS).batches())
    for name, values in next(sample.batches()).items():
        assert np.array_equal(first[name][: len(values)], values)


def test_a_small_input_is_counted_to_the_last_row_of_the_last_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,item,value\n1,2,3\n1,3,4\n")
    with gzip.open(tmp_path / "b.csv.gz", "wt") as out:
        out.write("2,2,5\n")
    counts = Sample(tmp_path, RATINGS).count_input()
    assert (counts.files, counts.rows, counts.rows_read, counts.values, counts.exact) == (2, 3, 3, 9, True)
    assert counts.distinct == {"user": 2, "item": 2}


@pytest.mark.parametrize("name", ["docword.a.txt", "a.svmlight", "a.svmlight.gz"])
def test_the_rows_of_a_large_bag_of_words_are_its_pairs_and_not_its_lines(name: str, tmp_path: Path) -> None:
    documents, words = 3000, 50
    if name.startswith("docword"):
        lines = [f"{doc} {word} 3" for doc in range(1, documents + 1) for word in range(1, words + 1)]
        text = "\n".join((str(documents), str(words), str(documents * words), *lines, ""))
    else:
        text = ("1 " + " ".join(f"{word}:3" for word in range(1, words + 1)) + "\n") * documents
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    counts = Sample(tmp_path / name, bags.COLUMNS, most_values=60_000).count_input()
    assert counts.exact is name.startswith("docword")
    assert counts.rows == pytest.approx(documents * words, rel=0.0 if counts.exact else 0.05)
    assert counts.values == 3 * counts.rows
    assert counts.distinct.keys() == {"doc", "word"}, "counts are no keys"


def test_words_of_a_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("text\none two three\nfour\n")
    assert Sample(tmp_path / "texts.csv", Columns({"text": Kind.TEXT})).count_input().values == 4


@pytest.mark.parametrize("name", ["a.csv", "a.npz"])
def test_names_are_told_apart_in_a_sample_without_a_pass_over_all_of_them(name: str, tmp_path: Path) -> None:
    keys = np.array([f"u{number % 700}" for number in range(5000)])
    if name == "a.csv":
        (tmp_path / name).write_text("key\n" + "".join(f"{key}\n" for key in keys))
    else:
        np.savez(tmp_path / name, key=keys)
    sample = Sample(tmp_path / name, Columns({"key": Kind.KEY}), most_values=2000)
    counts = sample.count_input()
    assert (counts.distinct["key"], counts.exact) == (700, name == "a.npz")
