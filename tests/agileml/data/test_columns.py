"""Inputs as others publish them: MovieLens, Book-Crossing, UCI's bags of words, svmlight, named classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agileml.api import Application, ApplicationError, Called, Columns, ColumnsError, Kind
from agileml.apps import bags
from agileml.apps.lda import LatentDirichletAllocation
from agileml.apps.mf import MatrixFactorization
from agileml.apps.mlr import LogisticRegression
from agileml.data.file_survey import describe_input
from agileml.data.sharding import cut_input
from agileml.data.shards import ShardReader
from agileml.data.tables import Table
from tests.agileml.processes.real_jobs import serial

RNG = np.random.default_rng(4)
N = 400
USER, ITEM, VALUE = RNG.integers(1, 25, N), RNG.integers(1, 15, N), RNG.integers(1, 11, N) / 2
MF = MatrixFactorization(rank=2)
SHARDS = 3


def ratings(layout: str, header: str = "") -> str:
    lines = (layout.format(u=u, i=i, v=v) for u, i, v in zip(USER, ITEM, VALUE, strict=True))
    return header + "".join(f"{line}\n" for line in lines)


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def train(app: Application, source: Path, called: Called | None = None) -> tuple[bytes, Mapping[str, Any]]:
    place = source.parent / f"cut of {source.name}"
    cut_input(app, source, SHARDS, place, called=called or {})
    model, _ = serial(app, ShardReader(place), SHARDS, 4)
    return model.tobytes(), ShardReader(place).read_index()


PLAIN = ("plain.csv", "user,item,value\n", "{u},{i},{v}", None)
MOVIELENS: dict[str, tuple[str, str, str, Called | None]] = {
    "25M": ("ratings.csv", "userId,movieId,rating,timestamp\n", "{u},{i},{v},1112486027", None),
    "1M": ("ratings.dat", "", "{u}::{i}::{v}::978300760", None),
    "100K": ("u.data", "", "{u}\t{i}\t{v}\t881250949", None),
    "its columns named": (
        "r.csv",
        "who,what,how,when\n",
        "{u},{i},{v},9",
        {"user": "who", "item": "what", "value": "how"},
    ),
    "columns by place": ("r.csv", "", "{v},9,{i},{u}", {"user": "3", "item": "2", "value": "0"}),
}


@pytest.mark.parametrize("case", MOVIELENS)
def test_ratings_as_they_are_published_train_the_same_model(case: str, tmp_path: Path) -> None:
    name, header, layout, called = MOVIELENS[case]
    plain = train(MF, write(tmp_path, "plain.csv", ratings("{u},{i},{v}", "user,item,value\n")))
    assert train(MF, write(tmp_path, name, ratings(layout, header)), called)[0] == plain[0]


def test_ids_that_are_names_are_kept_in_the_order_of_the_model_s_rows(tmp_path: Path) -> None:
    """Semicolons, quotes and an ISBN that ends in X, as in Book-Crossing."""
    header = '"User-ID";"ISBN";"Book-Rating"\n'
    source = write(tmp_path, "books.csv", ratings('"{u}";"0{i:02}X";"{v}"', header))
    model, index = train(MF, source)
    assert index["items"].tolist() == sorted({f"0{i:02}X" for i in ITEM})
    assert index["users"].tolist() == sorted(set(USER.tolist())), "numbers stay numbers"
    plain = train(MF, write(tmp_path, "plain.csv", ratings("{u},{i},{v}", "user,item,value\n")))
    assert model == plain[0], "these names have the order of the numbers"


def test_names_are_numbered_alike_whatever_holds_them(tmp_path: Path) -> None:
    """A number among names is a name too; 007 is none of the numbers."""
    keys = np.array(["b", "007", "10", "b", "ä", "7", "a b"])
    wanted = sorted(set(keys), key=str.encode)
    write(tmp_path, "a.csv", "key\n" + "".join(f"{key}\n" for key in keys))
    np.savez(tmp_path / "a.npz", key=keys)
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("create table t (key varchar)")
        connection.executemany("insert into t values (?)", [(key,) for key in keys.tolist()])
        connection.execute(f"copy t to '{tmp_path / 'a.parquet'}' (format parquet)")
    for name in ("a.csv", "a.npz", "a.parquet"):
        table = Table(tmp_path / name, Columns({"key": Kind.KEY}))
        (batch,) = table.batches()
        assert batch["key"].tolist() == [wanted.index(key) for key in keys], name
        assert table.named("key", np.arange(len(wanted))).tolist() == wanted
    both = Table(tmp_path / "a.*", Columns({"key": Kind.KEY}))
    assert [list(batch["key"]) for batch in both.batches()] == [[wanted.index(k) for k in keys]] * 3


def test_a_name_far_down_the_file_makes_all_of_them_names(tmp_path: Path) -> None:
    numbers = [str(number) for number in range(5000)]
    source = write(tmp_path, "a.csv", "key\n" + "\n".join([*numbers, "x"]) + "\n")
    table = Table(source, Columns({"key": Kind.KEY}))
    keys = np.concatenate([batch["key"] for batch in table.batches()])
    assert table.named("key", keys).tolist() == [*numbers, "x"]


def test_classes_may_have_names(tmp_path: Path) -> None:
    x = RNG.normal(size=(120, 2))
    label = np.where(x[:, 0] > x[:, 1], "virginica", "setosa")
    rows = [f"{a:.3f},{b:.3f},{name}" for (a, b), name in zip(x, label, strict=True)]
    named = write(tmp_path, "iris.csv", "sepal,petal,class\n" + "\n".join(rows) + "\n")
    numbered = write(
        tmp_path,
        "numbers.csv",
        "sepal,petal,label\n" + "\n".join(rows).replace("virginica", "1").replace("setosa", "0") + "\n",
    )
    model, index = train(LogisticRegression(), named)
    assert index["classes"].tolist() == ["setosa", "virginica"]
    assert model == train(LogisticRegression(), numbered)[0]
    chosen = train(LogisticRegression(), named, {"label": "class", "others": ("petal",)})[1]
    assert chosen["features"].tolist() == ["petal"]


# ---- bags of words ---------------------------------------------------------------------------------

VOCABULARY = [f"word{number:02}" for number in range(30)]
DOCUMENTS = [RNG.integers(0, 30, 20) for _ in range(40)]
COUNTS = [(d, w, int(np.sum(ws == w))) for d, ws in enumerate(DOCUMENTS) for w in np.unique(ws)]
LDA = LatentDirichletAllocation(topics=3, share=0.9)


def write_docword(folder: Path, name: str = "docword.toy.txt") -> Path:
    head = f"{len(DOCUMENTS)}\n{len(VOCABULARY)}\n{len(COUNTS)}\n"
    return write(folder, name, head + "".join(f"{d + 1} {w + 1} {n}\n" for d, w, n in COUNTS))


def test_bags_of_words_train_the_same_model_in_every_form(tmp_path: Path) -> None:
    docword = train(LDA, write_docword(tmp_path))
    assert set(docword[1]["words"]) <= set(range(1, 31)), "without a vocabulary, words are numbers"
    write(tmp_path, "vocab.toy.txt", "\n".join(VOCABULARY) + "\n")
    named = train(LDA, tmp_path / "docword.toy.txt")
    assert named[0] == docword[0]
    assert named[1]["words"].tolist() == [VOCABULARY[word - 1] for word in docword[1]["words"]]
    rows = "".join(f"{d},{VOCABULARY[w]},{n}\n" for d, w, n in COUNTS)
    triples = train(LDA, write(tmp_path, "a.csv", f"doc,word,count\n{rows}"))
    assert triples[0] == docword[0]
    assert triples[1]["words"].tolist() == named[1]["words"].tolist()
    lines = [[f"{w + 1}:{n}" for d, w, n in COUNTS if d == number] for number in range(len(DOCUMENTS))]
    svm = "".join(f"1 {' '.join(pairs)} # a comment: 1\n" for pairs in lines)
    assert train(LDA, write(tmp_path, "a.svmlight", svm))[0] == docword[0]


def test_a_bag_and_its_text_keep_the_same_words_as_often(tmp_path: Path) -> None:
    texts = "".join(" ".join(VOCABULARY[w] for w in words) + "\n" for words in DOCUMENTS)
    text = write(tmp_path, "text.csv", f"text\n{texts}")
    cut_input(LDA, text, SHARDS, tmp_path / "text")
    bag = write_docword(tmp_path)
    write(tmp_path, "vocab.toy.txt", "\n".join(VOCABULARY) + "\n")
    cut_input(LDA, bag, SHARDS, tmp_path / "bag")
    often = []
    for place in ("text", "bag"):
        cut, counts = ShardReader(tmp_path / place), np.zeros(31, int)
        for number in range(SHARDS):
            shard = cut.read_shard(number)
            counts[:30] += np.bincount(shard["rows"][shard["word"]], minlength=30)
        often.append((cut.read_index()["words"].tolist(), counts.tolist(), cut.shape))
    assert often[0] == often[1]


def test_a_word_is_in_a_document_once_however_many_rows_say_so(tmp_path: Path) -> None:
    """Keeps words in at most 22 of 40 documents; nearly all occur more often than that."""
    app = replace(LDA, share=0.55)
    counted = "".join(f"{d},{w},{n}\n" for d, w, n in COUNTS)
    one_by_one = "".join(f"{d},{w},1\n" * n for d, w, n in COUNTS)
    expected = train(app, write(tmp_path, "counted.csv", f"doc,word,count\n{counted}"))
    found = train(app, write(tmp_path, "tokens.csv", f"doc,word,count\n{one_by_one}"))
    assert found[1]["words"].tolist() == expected[1]["words"].tolist()
    assert found[0] == expected[0]


def test_a_document_that_goes_on_in_the_next_batches_has_its_words_once(tmp_path: Path) -> None:
    rows = "".join(f"{document},{word},1\n" for document in (0, 1) for word in (3, 5) for _ in range(3000))
    table = Table(
        write(tmp_path, "long.csv", f"doc,word,count\n{rows}5,7,0\n"), bags.COLUMNS, batch_rows=2048
    )
    words, documents = bags.count_words(table)
    assert words.keys.tolist() == [3, 5, 7]
    assert words.often.tolist() == [6000, 6000, 0]
    assert words.documents.tolist() == [2, 2, 0]
    assert documents.tolist() == [0, 1, 5]


# ---- what is read is said ------------------------------------------------------------------------


def test_which_columns_are_read_is_told_in_a_line(tmp_path: Path) -> None:
    source = write(tmp_path, "ratings.csv", "userId,movieId,rating,timestamp\n1,2,3.5,9\n")
    told = describe_input(str(source), MF.columns, {})
    assert (
        told
        == "ratings.csv (with a header): user = userId, item = movieId, value = rating; not used: timestamp"
    )
    told = describe_input(str(write_docword(tmp_path)), LDA.columns, {})
    assert told.startswith(f"docword.toy.txt (bag of words, 40 documents, {len(COUNTS)} counts): ")


WRONG: dict[str, tuple[str, str, Called, str]] = {
    "unknown header": ("a.csv", "who,what,how\nx,y,2\n", {}, "like columns: {user: who}"),
    "no such name": ("a.csv", "user,item,value\n1,2,3\n", {"usr": "user"}, "no usr (did you mean user?)"),
    "no such column": ("a.csv", "user,item,value\n1,2,3\n", {"user": "who"}, "and no {user: who}"),
    "no others": ("a.csv", "user,item,value\n1,2,3\n", {"others": ("x",)}, "the application reads no others"),
    "no such header": (
        "a.csv",
        "userId,movieId,rating,time\n1,2,3,4\n",
        {"user": "nope"},
        "has the columns userId, movieId, rating, time, and no {user: nope}",
    ),
    "no place": ("a.csv", "1,2,3\n", {"user": "7"}, "has 3 columns without names"),
    "a missing name": ("a.csv", "user,item,value\nx,2,3\n,2,3\n", {}, "row 2, column user: found nothing"),
}


@pytest.mark.parametrize("case", WRONG)
def test_columns_that_cannot_be_are_refused_with_what_to_write(case: str, tmp_path: Path) -> None:
    name, content, called, expected = WRONG[case]
    with pytest.raises(ApplicationError) as raised:
        list(Table(write(tmp_path, name, content), MF.columns, called=called).batches())
    assert expected in str(raised.value)


def test_a_class_column_that_nobody_named_is_asked_for(tmp_path: Path) -> None:
    source = write(tmp_path, "iris.csv", "sepal,petal,species\n1,2,setosa\n")
    with pytest.raises(ColumnsError, match=r"like columns: \{label: sepal\}"):
        list(Table(source, LogisticRegression.columns).batches())


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        ("1 1 2\n", "found 1 rows, and line 3 says 2"),
        ("1 1 2\n2 9 1\n", "found word 9, and line 2 says 5"),
        ("1 0 2\n2 4 1\n", "found word 0, expected words from 1"),
    ],
)
def test_a_docword_file_that_is_cut_short_or_wrong_is_refused(tail: str, told: str, tmp_path: Path) -> None:
    source = write(tmp_path, "docword.a.txt", f"2\n5\n2\n{tail}")
    with pytest.raises(ApplicationError, match=told):
        list(Table(source, LDA.columns).batches())


def test_notes_in_a_folder_of_data_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", "README.txt", "not data")
    write(tmp_path / "in", "a.csv", "user,item,value\n1,2,3\n")
    assert Table(tmp_path / "in", MF.columns).rows == 1
