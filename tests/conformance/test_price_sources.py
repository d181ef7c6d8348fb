"""The contract of ``spotctl.job.price_sources``, on every source of prices there is.

A source enters with a line in ``MAKERS``: what puts rows where it finds them, in a folder, and opens it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.errors import NoSuchMarket, TraceError
from pricing_data.formats.traces import Recording
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import Instant, format_instant, parse_instant
from pricing_data.store.importing import import_file
from pricing_data.store.store import PriceStore
from spotctl.job.price_sources import BundledMarket, PriceSource, StoredPrices, TraceFiles
from tests.fakes.listed_prices import ListedPrices

ZONES = ("us-east-1a", "us-east-1b")
MARKETS = tuple(
    Market("aws", "us-east-1", zone, kind) for zone in ZONES for kind in ("c4.xlarge", "m4.xlarge")
)
BEGIN = parse_instant("2016-06-01")
NOW = parse_instant("2026-06-01")
HEADER = "timestamp_utc,region,zone,instance_type,product,price_usd_hour"

Rows: TypeAlias = Mapping[tuple[Market, Instant], float]
Maker: TypeAlias = Callable[[Path, Rows], PriceSource]


def write_file(path: Path, rows: Rows) -> Path:
    lines = [
        f"{format_instant(at)},{market.region},{market.zone},{market.instance_type},Linux/UNIX,{price}"
        for (market, at), price in rows.items()
    ]
    path.write_text("\n".join([HEADER, *lines, ""]))
    return path


def one_file(folder: Path, rows: Rows) -> PriceSource:
    return TraceFiles((write_file(folder / "prices.csv", rows),))


def two_files(folder: Path, rows: Rows) -> PriceSource:
    """Every row is in one of them; a file without any would be refused."""
    halves = [dict(list(rows.items())[part::2]) or dict(rows) for part in (0, 1)]
    return TraceFiles(tuple(write_file(folder / f"{part}.csv", half) for part, half in enumerate(halves)))


def a_store(folder: Path, rows: Rows) -> PriceSource:
    if rows:
        import_file(PriceStore(folder / "store"), write_file(folder / "in.csv", rows), NOW, source="a test")
    return StoredPrices(folder / "store")


def a_list(_: Path, rows: Rows) -> PriceSource:
    return ListedPrices(rows)


MAKERS: dict[str, Maker] = {"file": one_file, "files": two_files, "store": a_store, "list": a_list}
every_source = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())

moments = st.integers(0, 5 * 24 * 60).map(lambda minute: Instant(BEGIN + 60 * minute))
prices = st.integers(1, 1000).map(lambda tenths: tenths / 10_000)
some_rows = st.dictionaries(st.tuples(st.sampled_from(MARKETS), moments), prices, min_size=1, max_size=20)
A_FEW: Rows = {
    (MARKETS[0], Instant(BEGIN + 7200)): 0.03,
    (MARKETS[0], BEGIN): 0.02,
    (MARKETS[1], Instant(BEGIN + 3600)): 0.04,
}


def everything(_: Market) -> bool:
    return True


def steps(history: PriceHistory) -> dict[Market, tuple[list[int], list[float]]]:
    """Returns times and prices of the markets that have any."""
    found = {market: history.series(market) for market in history.markets}
    return {market: (s.times.tolist(), s.prices.tolist()) for market, s in found.items() if len(s)}


def in_force(rows: Rows, market: Market, at: Instant) -> float | None:
    """Returns the price of the newest row of ``market`` until ``at``."""
    return max(
        ((when, price) for (of, when), price in rows.items() if of == market and when <= at),
        default=(0, None),
    )[1]


@every_source
@settings(max_examples=25, deadline=None)
@given(rows=some_rows, now=moments)
def test_prices_at_a_moment_are_the_newest_until_then_whatever_comes_later(
    make: Maker, rows: Rows, now: Instant
) -> None:
    with TemporaryDirectory() as whole, TemporaryDirectory() as cut:
        known = make(Path(whole), rows).read_prices(everything).history.as_of(now)
        assert {market: known.price(market, now) for market in MARKETS} == {
            market: in_force(rows, market, now) for market in MARKETS
        }
        past = {(market, at): price for (market, at), price in rows.items() if at <= now}
        if past:
            assert steps(make(Path(cut), past).read_prices(everything).history) == steps(known)


@every_source
@settings(max_examples=25, deadline=None)
@given(rows=some_rows)
def test_times_increase_within_what_the_source_covers(make: Maker, rows: Rows) -> None:
    with TemporaryDirectory() as folder:
        check_order(make(Path(folder), rows).read_prices(everything))


def check_order(found: Recording) -> None:
    for series in found.series.values():
        assert len(series)
        assert (np.diff(series.times) > 0).all()
        assert found.first <= series.times[0] <= series.times[-1] <= found.last


@every_source
def test_each_market_that_is_listed_answers_alone_as_among_others(make: Maker, tmp_path: Path) -> None:
    check_markets(make(tmp_path, A_FEW), {MARKETS[0], MARKETS[1]})


def check_markets(source: PriceSource, expected: set[Market]) -> None:
    together = source.read_prices(everything)
    assert set(together.series) == set(together.history.markets) == expected
    for market in expected:
        alone = source.read_prices(market.__eq__)
        assert steps(alone.history) == {market: steps(together.history)[market]}
    with pytest.raises(NoSuchMarket) as refused:
        source.read_prices(lambda _: False)
    assert str(min(expected)) in refused.value.offered


def test_the_bundled_market_is_such_a_source() -> None:
    found = BundledMarket().read_prices(everything)
    check_order(found)
    check_markets(BundledMarket(), set(found.series))


@every_source
def test_a_source_without_any_price_says_so(make: Maker, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no (usable )?(row|price)") as refused:
        make(tmp_path, {}).read_prices(everything)
    assert not isinstance(refused.value, NoSuchMarket)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv"):
        TraceFiles((tmp_path / "none.csv",)).read_prices(everything)


@every_source
def test_what_was_read_stays_when_the_source_goes_on(make: Maker, tmp_path: Path) -> None:
    read = make(tmp_path, A_FEW).read_prices(everything)
    before = steps(read.history)
    more = {**A_FEW, (MARKETS[0], Instant(BEGIN + 9000)): 0.5, (MARKETS[2], BEGIN): 0.1}
    later = make(tmp_path, more).read_prices(everything)
    assert steps(read.history) == before
    assert steps(later.history) != before
    assert later.last == BEGIN + 9000
