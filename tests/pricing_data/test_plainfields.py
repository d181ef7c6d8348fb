"""Price files read by their bytes: the same as line by line, whatever is written in them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pricing_data.csvfile import Table, read_lines
from pricing_data.errors import TraceError
from pricing_data.market import Market
from pricing_data.plainfields import PlainFields
from pricing_data.traces import Recording, price_rows, read_trace, sort_markets

HEADER = "timestamp_utc,region,zone,instance_type,product,price_usd_hour"

_DATES = ("2016-06-01T00:00:00Z", "2016-06-01T01:00:00Z", "2016-06-02T00:00:00Z", "2016-13-01T00:00:00Z")
_TIMES = st.sampled_from([*_DATES, "2016-06-01 03:00:00", "2016-06-01T00:00:00+00:00", "yesterday", ""])
_PRICES = st.sampled_from(
    ["0.04", "0.5", "1", ".25", "3.", "0.1234567", "-1", "1e-2", "nan", "", ".", "1.2.3", "1_0"]
)
_ZONES = st.sampled_from(["us-east-1a", "us-east-1b", "us-east-1", ""])
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


def _line_by_line(path: Path) -> Recording | str:
    try:
        return sort_markets(price_rows(Table.parse(str(path), read_lines(path, str(path))), str(path))).pick(
            None
        )
    except TraceError as error:
        return str(error)


def _by_bytes(path: Path) -> Recording | str:
    try:
        return read_trace(path)
    except TraceError as error:
        return str(error)


def _same(one: Recording | str, other: Recording | str) -> bool:
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


@given(
    st.lists(st.one_of(_GOOD, _ROW), max_size=30),
    st.lists(_LINE, max_size=3),
    st.sampled_from(["", "\n", "\r\n"]),
)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bytes_say_what_lines_say(tmp_path: Path, rows: list[str], odd: list[str], end: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(("\n".join([HEADER, *rows, *odd]) + end).encode())
    assert _same(_by_bytes(path), _line_by_line(path))


@given(st.lists(st.one_of(_GOOD, _ROW), min_size=1, max_size=30))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_choice_of_markets_is_the_same_before_and_after_sorting_out(
    tmp_path: Path, rows: list[str]
) -> None:
    """What becomes of a row depends on rows of its own market alone."""
    path = tmp_path / "prices.csv"
    path.write_text("\n".join([HEADER, *rows]))

    def only(market: Market) -> bool:
        return market.instance_type == "m4.xlarge"

    def picked(early: bool) -> Recording | str:
        table = Table.read(path, str(path))
        try:
            return sort_markets(price_rows(table, str(path), only=only if early else None)).pick(only)
        except TraceError as error:
            return str(error)

    assert _same(picked(early=True), picked(early=False))


@pytest.mark.parametrize("digits", range(1, 16))
def test_decimals_are_right_to_the_last_bit(digits: int) -> None:
    rng = np.random.default_rng(digits)
    whole = rng.integers(0, 10**digits, 2000)
    texts = [f"{number:0{digits}d}" for number in whole]
    texts = [
        text if (at := n % (digits + 1)) == 0 or digits == 15 else text[:at] + "." + text[at:]
        for n, text in enumerate(texts)
    ]
    found = PlainFields.of("\n".join(["a,b", *(f"x,{text}" for text in texts)]).encode())
    assert found is not None
    numbers = found.decimals(1, np.arange(len(texts)))
    assert numbers is not None
    assert numbers.tolist() == [float(text) for text in texts]


def test_sets_of_fields_are_told_apart_by_where_their_commas_are() -> None:
    found = PlainFields.of(b"a,b,c\nx,yz,1\nxy,z,1\nx,yz,2\n,xyz,1\n")
    assert found is not None
    first, group = found.groups([0, 1])
    assert (first.tolist(), group.tolist()) == ([0, 1, 3], [0, 1, 0, 2])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a,b\n",
        b"a\n1\n",
        b'a,b\n"1",2\n',
        b"a,b\n1, 2\n",
        b"a,b\n 1,2\n",
        b"a,b\r\n1,2\r\n",
        b"a,b\n1,2\n\n",
        b"a,b\n1\n2,3,4\n",
        "a,b\nü,2\n".encode(),
    ],
)
def test_what_is_not_plain_is_left_to_others(content: bytes) -> None:
    assert PlainFields.of(content) is None
