"""Price files read by pandas: the same as line by line, whatever is written in them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pricing_data.errors import TraceError
from pricing_data.formats.large_csv import LARGE, LargeTable, read_table
from pricing_data.formats.traces import COLUMN_TYPES, Recording, price_rows, sort_markets
from pricing_data.model.market import Market
from tests.pricing_data.formats.test_recorded_traces import PRICE_FILES

HEADER = "timestamp_utc,region,zone,instance_type,product,price_usd_hour"

_DATES = ("2016-06-01T00:00:00Z", "2016-06-01T01:00:00Z", "2016-06-02T00:00:00Z", "2016-13-01T00:00:00Z")
_TIMES = st.sampled_from([*_DATES, "2016-06-01 03:00:00", "2016-06-01T00:00:00+00:00", "yesterday", ""])
_PRICES = st.sampled_from(
    ["0.04", "0.5", "1", ".25", "3.", "0.1234567", "-1", "1e-2", "nan", "", ".", "1.2.3", "1_0"]
)
_ZONES = st.sampled_from(["us-east-1a", "us-east-1b", "us-east-1", "", "NA", "nan", "1", "01"])
_TYPES = st.sampled_from(["m4.xlarge", "c4.large", "m4.xlarge-of-a-very-long-name"])
_PRODUCTS = st.sampled_from(["Linux/UNIX", "Linux/UNIX (Amazon VPC)", "Windows"])
_ROW = st.builds(",".join, st.tuples(_TIMES, st.just("us-east-1"), _ZONES, _TYPES, _PRODUCTS, _PRICES))
_GOOD = st.builds(
    lambda hour, kind, price: (
        f"2016-06-01T{hour:02d}:00:00Z,us-east-1,us-east-1a,{kind},Linux/UNIX,{price / 1000}"
    ),
    st.integers(0, 23),
    _TYPES,
    st.integers(0, 999),
)
_LINE = st.one_of(
    _GOOD, _GOOD, _ROW, st.sampled_from(["", "a,b", '"a",b,c,d,e,f', " " + HEADER, "ü,b,c,d,e,f"])
)


def _read(path: Path, large: int) -> Recording | str:
    """Reads the file, or returns its error. ``large``: bytes from which on pandas may read it."""
    name = str(path)
    try:
        return sort_markets(price_rows(read_table(path, name, COLUMN_TYPES, large), name)).pick_markets(None)
    except TraceError as error:
        return str(error)


def _both_agree(path: Path) -> bool:
    return _same_result(_read(path, large=0), _read(path, large=sys.maxsize))


def _same_result(one: Recording | str, other: Recording | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    plain = [field.name for field in fields(one) if field.name not in ("series", "delisted")]
    return (
        all(getattr(one, name) == getattr(other, name) for name in plain)
        and list(one.series) == list(other.series)
        and all(np.array_equal(one.series[m].times, other.series[m].times) for m in one.series)
        and all(np.array_equal(one.series[m].prices, other.series[m].prices) for m in one.series)
        and all(np.array_equal(one.delisted[m], other.delisted[m]) for m in one.series)
    )


@example([], ["2016-06-01T00:00:00Z,us-east-1,01,m4.xlarge,Linux/UNIX,0.04"], "\n")
@given(
    st.lists(st.one_of(_GOOD, _ROW), max_size=30),
    st.lists(_LINE, max_size=3),
    st.sampled_from(["", "\n", "\r\n"]),
)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pandas_says_what_lines_say(tmp_path: Path, rows: list[str], odd: list[str], end: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(("\n".join([HEADER, *rows, *odd]) + end).encode())
    assert _both_agree(path)


@given(st.lists(st.one_of(_GOOD, _ROW), min_size=1, max_size=30))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_choice_of_markets_is_the_same_before_and_after_sorting_out(
    tmp_path: Path, rows: list[str]
) -> None:
    """Tests that a row's verdict depends on rows of its own market alone."""
    path = tmp_path / "prices.csv"
    path.write_text("\n".join([HEADER, *rows]))

    def only(market: Market) -> bool:
        return market.instance_type == "m4.xlarge"

    def picked(early: bool) -> Recording | str:
        table = read_table(path, str(path), COLUMN_TYPES, large=0)
        try:
            return sort_markets(price_rows(table, str(path), only=only if early else None)).pick_markets(only)
        except TraceError as error:
            return str(error)

    assert _same_result(picked(early=True), picked(early=False))


@pytest.mark.parametrize("file", PRICE_FILES)
def test_recorded_files_are_read_alike(recorded_data: Path, file: str) -> None:
    path = recorded_data / file
    if not path.is_file():
        pytest.skip(f"{path} is not among the recorded data")
    assert isinstance(_read(path, large=0), Recording)
    assert _both_agree(path)


@given(
    st.lists(
        st.builds("2016-06-01T00:{:02d}:00Z,us-east-1,b,c,x,{}".format, st.integers(0, 59), st.floats(0))
    )
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_prices_are_right_to_the_last_bit(tmp_path: Path, rows: list[str]) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("\n".join([HEADER, *rows]))
    assert _both_agree(path)


@pytest.mark.parametrize("long", [0, 1, 7000, 19_999])
@pytest.mark.parametrize("short", [0, 1, 7001, 19_998])
def test_a_field_too_many_and_one_too_few_are_found_wherever_they_are(
    long: int, short: int, tmp_path: Path
) -> None:
    """Together they have as many commas as they should."""
    lines = [f"2016-06-01T00:00:00Z,us-east-1,us-east-1a,t{n % 7},Linux/UNIX,0.5" for n in range(20_000)]
    lines[long] += ",more"
    lines[short] = lines[short].rpartition(",")[0]
    path = tmp_path / "prices.csv"
    path.write_text("\n".join([HEADER, *lines]))
    assert _both_agree(path)


@pytest.mark.parametrize(
    ("row", "plain"),
    [
        ("2016-06-01T00:00:00Z,a,b,c,d,1", True),
        ("2016-06-01T00:00:00Z,a,,c c,d,", True),
        ("2016-06-01T00:00:00Z,a,b,c,d,1\n", True),
        ('2016-06-01T00:00:00Z,a,"b",c,d,1', False),
        ("2016-06-01T00:00:00Z,a, b,c,d,1", False),
        ("2016-06-01T00:00:00Z,a,b,c,d,1\n 2016-06-01T00:00:00Z,a,b,c,d,1", False),
        ("2016-06-01T00:00:00Z,a,b,c,d,1\r", False),
        ("2016-06-01T00:00:00Z,a,b,c,d,1\n\n", False),
        ("2016-06-01T00:00:00Z,a,b,c,d,1,2", False),
        ("2016-06-01T00:00:00Z,a,b,c,1", False),
        ("2016-06-01T00:00:00Z,a,ü,c,d,1", False),
        ("2016-06-01T00:00:00Z0,a,b,c,d,1", False),
        ("2016-06-01,a,b,c,d,1", False),
        ("2016-13-01T00:00:00Z,a,b,c,d,1", False),
        (f"2016-06-01T00:00:00Z,a,b,c,d,{'1' * 32}", False),
        ("", False),
    ],
)
def test_what_is_not_plain_is_read_by_line(row: str, plain: bool, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(f"{HEADER}\n{row}", newline="")
    assert isinstance(read_table(path, str(path), COLUMN_TYPES, large=0), LargeTable) is plain
    assert _both_agree(path)


@pytest.mark.parametrize("size", [LARGE - 1, LARGE])
def test_pandas_is_loaded_for_large_files_alone(size: int, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    row = "2016-06-01T00:00:00Z,us-east-1,us-east-1a,m4.xlarge,Linux/UNIX,0.0400\n"
    text = HEADER + "\n" + row * (size // len(row) + 1)
    path.write_text(text[:size].rpartition("\n")[0].ljust(size, "0"))
    code = (
        "import sys\nfrom pricing_data.formats.traces import read_trace\n"
        f"read_trace({str(path)!r})\nprint('pandas' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(size >= LARGE)]
