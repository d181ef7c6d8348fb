"""Prices that were read once: the same as reading them again, and never those of another file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from pricing_data.errors import NoSuchMarket
from pricing_data.formats.traces import Filter, Recording, read_trace
from pricing_data.model.market import Market
from spotctl.records import trace_cache
from spotctl.records.trace_cache import SMALLEST, read_trace_once

HEADER = "timestamp_utc,region,zone,instance_type,product,price_usd_hour\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A large file of four markets with a flaw or two, that nobody has changed for a minute."""
    return written(tmp_path / "prices.csv", 0.04)


def written(path: Path, price: float, settled: bool = True) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        f"2016-06-{1 + n % 28:02d}T{n // 28 % 24:02d}:{n % 60:02d}:00Z,us-east-1,us-east-1{'ab'[n % 2]},"
        f"{kind},Linux/UNIX,{price + rng.integers(9) / 1000:.4f}"
        for n in range(2400)
        for kind in ("c4.xlarge", "m4.xlarge")
    ]
    path.write_text(
        "\n".join([HEADER.strip(), *rows, "yesterday,us-east-1,us-east-1a,c4.xlarge,Linux/UNIX,1"])
    )
    assert path.stat().st_size > SMALLEST
    if settled:
        before = path.stat().st_mtime - 60
        os.utime(path, (before, before))
    return path


def everything(_: Market) -> bool:
    return True


def small(market: Market) -> bool:
    return market.instance_type == "c4.xlarge"


def same(one: Recording, other: Recording) -> bool:
    plain = [field.name for field in fields(one) if field.name not in ("series", "delisted")]
    return (
        [getattr(one, name) for name in plain] == [getattr(other, name) for name in plain]
        and list(one.series) == list(other.series)
        and all(
            np.array_equal(one.series[m].times, other.series[m].times)
            and np.array_equal(one.series[m].prices, other.series[m].prices)
            and np.array_equal(one.delisted[m], other.delisted[m])
            and one.series[m].times.dtype == other.series[m].times.dtype
            for m in one.series
        )
    )


@pytest.mark.parametrize("only", [everything, small])
def test_what_is_kept_is_what_reading_gives(trace: Path, tmp_path: Path, only: Filter) -> None:
    read = read_trace(trace, only=only)
    assert read.findings
    for _ in range(2):
        assert same(read_trace_once(trace, only, tmp_path / "cache"), read)
    assert len(list((tmp_path / "cache").glob("*.prices"))) == 1


def test_it_is_kept_once_for_all_choices_of_markets(trace: Path, tmp_path: Path) -> None:
    for only in (everything, small, everything):
        assert same(read_trace_once(trace, only, tmp_path / "cache"), read_trace(trace, only=only))
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_file_that_is_kept_is_not_read_again(trace: Path, tmp_path: Path) -> None:
    read = read_trace_once(trace, everything, tmp_path / "cache")
    found = trace.stat()
    trace.write_bytes(b"x" * found.st_size)
    os.utime(trace, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert same(read_trace_once(trace, everything, tmp_path / "cache"), read)


def test_a_file_that_was_changed_is_read_again(trace: Path, tmp_path: Path) -> None:
    read_trace_once(trace, everything, tmp_path / "cache")
    written(trace, 0.05)
    found = read_trace_once(trace, everything, tmp_path / "cache")
    assert same(found, read_trace(trace))
    assert min(series.prices.min() for series in found.series.values()) >= 0.05


def test_a_file_that_may_change_within_its_clock_is_not_kept(tmp_path: Path) -> None:
    trace = written(tmp_path / "prices.csv", 0.04, settled=False)
    read_trace_once(trace, everything, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_small_files_are_just_read(tmp_path: Path) -> None:
    (tmp_path / "small.csv").write_text(
        HEADER + "2016-06-01T00:00:00Z,us-east-1,us-east-1a,c4.xlarge,Linux/UNIX,1\n"
    )
    assert read_trace_once(tmp_path / "small.csv", everything, tmp_path / "cache").rows_used == 1
    assert not (tmp_path / "cache").exists()


def test_a_choice_that_is_not_in_the_file_is_refused_as_ever(trace: Path, tmp_path: Path) -> None:
    read_trace_once(trace, everything, tmp_path / "cache")
    for _ in range(2):
        with pytest.raises(NoSuchMarket):
            read_trace_once(trace, lambda _: False, tmp_path / "cache")


def _cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_cut_off, _emptied, Path.unlink])
def test_what_was_damaged_is_made_anew(trace: Path, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    read = read_trace_once(trace, everything, tmp_path / "cache")
    (kept,) = (tmp_path / "cache").glob("*.prices")
    harm(kept)
    assert same(read_trace_once(trace, everything, tmp_path / "cache"), read)
    assert kept.stat().st_size > 100


def test_where_nothing_can_be_kept_it_is_read_all_the_same(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert same(read_trace_once(trace, everything, tmp_path / "cache"), read_trace(trace))


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "newer", "old")):
        with (tmp_path / name).open("wb") as file:
            file.truncate(trace_cache.MOST // 2)  # takes no room on the disk
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    trace_cache.remove_oldest(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "newer"}
