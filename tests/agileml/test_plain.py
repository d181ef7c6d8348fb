"""A small input read without a database: the same counts and rows as with one, or nothing."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agileml.app import ApplicationError, Columns, Kind
from agileml.plain import PlainInput
from agileml.sampling import Sample

RATINGS = Columns({"user": Kind.KEY, "item": Kind.INTEGER, "value": Kind.NUMBER})
LABELLED = Columns({"label": Kind.KEY}, Kind.NUMBER)

_FIELD = st.sampled_from(
    ["1", "2", "-3", "17", "0", "007", "-07", "1.5", ".5", "2.", "9" * 19, "-", "1-2", "1.2.3"]
)
_NUMBER = st.integers(-50, 50).map(str)
_ROW = st.tuples(_NUMBER, _NUMBER, st.one_of(_NUMBER, st.integers(0, 99).map(lambda n: f"{n / 10}")))


def _same(path: Path, columns: Columns) -> bool:
    """Whether what is read plainly is what is read of the sample; True where it leaves that to others."""
    plain = PlainInput.read(str(path), columns)
    if plain is None:
        return True
    sample = Sample(path, columns)
    (found,) = plain.batches()
    read = [*sample.batches()]
    return (
        plain.counts() == sample.counts()
        and plain.rows == sample.rows
        and plain.layout is sample.layout
        and all(
            np.array_equal(found[name], np.concatenate([batch[name] for batch in read]))
            and found[name].dtype == read[0][name].dtype
            for name in read[0]
        )
    )


@given(
    st.lists(_ROW, min_size=1, max_size=12),
    st.lists(st.tuples(_FIELD, _FIELD, _FIELD), max_size=2),
    st.sampled_from(["user,item,value", ""]),
    st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_plain_is_read_as_a_database_reads_it(
    tmp_path: Path, rows: list[tuple[str, ...]], odd: list[tuple[str, ...]], header: str, end: str
) -> None:
    path = tmp_path / "a.csv"
    lines = [*([header] if header else []), *map(",".join, [*rows, *odd])]
    path.write_text(end.join(lines) + end, newline="")
    try:
        Sample(path, RATINGS)
    except ApplicationError:
        assert PlainInput.read(str(path), RATINGS) is None
    else:
        assert _same(path, RATINGS)


@pytest.mark.parametrize("delimiter", [",", "\t", ";", " ", "|"])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_delimiters_labels_and_packed_files(delimiter: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    lines = ["label,x,y", *(f"{n % 3},{n}.5,{n * n % 7}" for n in range(100))]
    text = "\n".join(lines).replace(",", delimiter).encode()
    path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    assert PlainInput.read(str(path), LABELLED) is not None
    assert _same(path, LABELLED)


def test_files_of_a_folder_are_one_input(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,item,value\n1,2,3\n4,5,6\n")
    (tmp_path / "b.csv").write_text("value,item,user\n1,2,3\n")
    assert PlainInput.read(str(tmp_path), RATINGS) is not None
    assert _same(tmp_path, RATINGS)


@pytest.mark.parametrize(
    "text",
    [
        "user,item,value\nanna,2,3\n",
        "user,item,value\n007,2,3\n",
        'user,item,value\n"1",2,3\n',
        "user,item,value\n1,2,3\n\n1,2,3\n",
        "user,item,value\n1,2\n",
        "user,item,value\n1,2,\n",
        "user,item,value\n1,2.5,3\n",
        "user,item,value\n1,2,1e3\n",
        "user::item::value\n1::2::3\n",
        "user,item,value\n",
    ],
)
def test_what_is_not_plain_is_left_to_others(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert PlainInput.read(str(tmp_path / "a.csv"), RATINGS) is None


def test_an_input_that_would_be_read_in_part_is_left_to_others(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,item,value\n" + "1,2,3\n" * 10)
    assert PlainInput.read(str(path), RATINGS, most_values=31) is not None
    assert PlainInput.read(str(path), RATINGS, most_values=30) is None


def test_no_database_is_loaded_for_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,item,value\n" + "1,2,3\n" * 10)
    code = (
        "import sys\nfrom agileml.app import Columns, Kind\nfrom agileml.plain import PlainInput\n"
        "columns = Columns({name: Kind.NUMBER for name in ('user', 'item', 'value')})\n"
        f"print(PlainInput.read({str(path)!r}, columns).rows)\n"
        "print(sorted({'duckdb', 'pandas', 'scipy'} & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["10", "[]"]
