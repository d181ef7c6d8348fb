"""The store holds what was added, whole batches of it, whatever the order and whoever else is at it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.errors import ExportRefused, StoreDamaged
from pricing_data.formats.batches import (
    Batch,
    ListPrice,
    OnDemandBatch,
    Rate,
    RateBatch,
    TypeBatch,
    TypeRow,
    UnreadableBatch,
)
from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import Flaw, UnreadableRow
from pricing_data.model.market import InstanceType, Market
from pricing_data.model.units import Instant, Seconds, UsdPerHour, parse_instant
from pricing_data.store.frames import EXPORT_COLUMNS
from pricing_data.store.store import AddedRows, PriceStore

MAY = parse_instant("2016-05-31T23:00:00Z")
"""An hour before the end of a month."""
EAST = Market("aws", "us-east-1", "us-east-1a", "m4.large")
WEST = Market("aws", "us-west-2", "us-west-2b", "m4.large")
NOWHERE = Market("azure", "eastus", "eastus", "Standard_D2s_v4")
NAN = float("nan")


def batch(
    *rows: tuple[int, float],
    market: Market = EAST,
    source: str = "feed",
    semantics: Semantics = Semantics.EVENT_STREAM,
    observed: int | None = None,
) -> Batch:
    times = np.array([row[0] for row in rows], np.int64)
    seen = times if observed is None else np.full(len(rows), observed, np.int64)
    prices = np.array([row[1] for row in rows], np.float64)
    return Batch(source, semantics, (market,), np.zeros(len(rows), np.int64), times, prices, seen)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.parquet")}


def test_a_batch_is_kept_by_month_with_its_source_and_comes_back_as_steps(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    rows = [(MAY, 0.03), (MAY + 60, 0.03), (MAY + 3600, 0.04), (MAY + 7200, NAN), (MAY + 9000, 0.05)]
    assert store.add_prices(batch(*rows)) == AddedRows(5, 0, 0)
    months = [path.parent.name for path in sorted(tmp_path.rglob("rows.parquet"))]
    assert months == ["month=2016-05", "month=2016-06"]
    series = PriceStore(tmp_path).series(EAST)
    assert series.times.tolist() == [MAY, MAY + 3600, MAY + 9000]
    assert series.prices.tolist() == [0.03, 0.04, 0.05]
    assert store.history(until=Instant(MAY + 100)).series(EAST).times.tolist() == [MAY]
    (summary,) = store.markets()
    assert (summary.rows, summary.price, summary.source) == (5, 0.05, "feed")
    assert store.newest_time("feed", "aws", "us-east-1") == MAY + 9000
    assert store.newest_time("other", "aws", "us-east-1") is None


def test_a_source_speaks_of_a_region_with_old_rows_too(tmp_path: Path) -> None:
    """In any order: what counts is when it last spoke."""
    for turn, order in enumerate(((0, 5), (5, 0))):
        store = PriceStore(tmp_path / str(turn))
        rows = [batch((MAY, 0.03), source="feed") for _ in order]
        for later_s, same in zip(order, rows, strict=True):
            store.add_prices(replace(same, observed=same.observed + later_s))
        assert store.last_seen() == {("feed", "aws", EAST.region): int(rows[0].observed[0]) + 5}
    assert files(tmp_path / "0")["tables/seen.parquet"] == files(tmp_path / "1")["tables/seen.parquet"]


def test_a_market_that_is_gone_has_no_price(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    store.add_prices(batch((MAY, 0.03), (MAY + 60, NAN)))
    assert store.markets()[0].price is None
    assert store.series(EAST).prices.tolist() == [0.03]


_ROWS = st.tuples(
    st.sampled_from([EAST, WEST, NOWHERE]),
    st.sampled_from(["a", "b"]),
    st.integers(MAY, MAY + 7200),
    st.sampled_from([0.03, 0.04, 0.0, NAN, 70.0]),
)


@given(st.lists(_ROWS, min_size=1, max_size=8), st.integers())
@settings(max_examples=6, deadline=None)
def test_any_order_and_any_repetition_give_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Market, str, int, float]], seed: int
) -> None:
    batches = [batch((time, price), market=market, source=source) for market, source, time, price in rows]
    one, other = (PriceStore(tmp_path_factory.mktemp("store")) for _ in range(2))
    for each in batches:
        one.add_prices(each)
    again = [*batches, *batches[:2]]
    Random(seed).shuffle(again)
    for each in again:
        other.add_prices(each)
    assert files(one.root) == files(other.root)
    assert all(one.add_prices(each).known == 1 for each in batches)


def test_bad_rows_are_kept_aside_and_shown(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    bad = [(MAY + 1, 0.0), (MAY + 2, -1.0), (MAY + 3, float("inf"))]
    assert store.add_prices(batch((MAY, 0.03), *bad)) == AddedRows(1, 0, 3)
    assert {(found.kind, found.count) for found in store.quality.findings()} == {
        (Flaw.ZERO, 1),
        (Flaw.NEGATIVE, 1),
        (Flaw.NOT_FINITE, 1),
    }
    assert {row.reason for row in store.quality.list_quarantined()} == {
        Flaw.ZERO,
        Flaw.NEGATIVE,
        Flaw.NOT_FINITE,
    }
    assert {row.market for row in store.quality.list_quarantined()} == {EAST}
    assert store.quality.list_quarantined(most=2) == store.quality.list_quarantined()[:2]
    assert store.quality.newest_failures() == {EAST: (MAY + 3, Flaw.NOT_FINITE)}
    assert store.quality.newest_failures(but=[Flaw.NOT_FINITE]) == {EAST: (MAY + 2, Flaw.NEGATIVE)}
    lines = UnreadableBatch("a", tuple(UnreadableRow(Flaw.FIELDS, text, 1) for text in "xyz"), MAY)
    assert store.add_unreadable(lines) == AddedRows(0, 0, 3)
    assert [row.text for row in store.quality.list_quarantined(most=5)[3:]] == ["line 1: x", "line 1: y"]
    assert len(store.quality.newest_failures()) == 1, "lines are of no market"
    assert len(list(tmp_path.rglob("quarantine.parquet"))) == 1


@pytest.mark.parametrize("name", ["", "../../x", "a" * 300, "\ud800", "a\0b", "x,y=z", "ü", "n\nm"])
def test_names_that_are_none_stay_inside_the_store(tmp_path: Path, name: str) -> None:
    store = PriceStore(tmp_path / "inside")
    market = Market(name, name, name, name)
    assert store.add_prices(batch((MAY, 0.03), (-5, 0.03), (2**62, 0.03), market=market)).quarantined == 3
    assert {found.count for found in PriceStore(store.root).quality.findings()} == {3}
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert store.add_prices(batch((MAY, 0.03), market=market)) == AddedRows(0, 1, 0)


def test_approximate_times_are_findings(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    store.add_prices(replace(batch((MAY, 0.03), (MAY + 60, 0.04)), approximate=np.array([False, True])))
    (found,) = store.quality.findings()
    assert (found.kind, found.count, len(found.examples)) == (Flaw.APPROXIMATE, 1, 1)


def test_one_source_is_believed_and_named(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    store.add_prices(batch((MAY, 1.0), (MAY + 60, 1.1), source="a poll", semantics=Semantics.POLLED))
    store.add_prices(batch((MAY, 0.5), (MAY + 90, 0.6), source="events"))
    (summary,) = store.markets()
    assert (summary.source, summary.price, summary.sources) == ("events", 0.6, ("events", "a poll"))
    assert store.series(EAST).prices.tolist() == [0.5, 0.6]


def test_list_prices_judge_what_is_there_as_what_comes_later(tmp_path: Path) -> None:
    prices = OnDemandBatch(
        "list", (ListPrice("azure", "eastus", NOWHERE.instance_type, UsdPerHour(0.1), MAY),), MAY
    )
    rows = batch((MAY - 1, 0.2), (MAY, 0.2), (MAY + 3600, 0.05), (MAY + 3601, 0.2), market=NOWHERE)
    before, after = PriceStore(tmp_path / "before"), PriceStore(tmp_path / "after")
    assert before.add_on_demand(prices) == AddedRows(1, 0, 0)
    assert before.add_prices(rows) == AddedRows(2, 0, 2)
    after.add_prices(rows)
    after.add_on_demand(prices)
    assert files(before.root) == files(after.root)
    assert before.add_on_demand(prices) == AddedRows(0, 1, 0)
    at = Instant(MAY + 5)
    assert PriceStore(before.root).catalogue().on_demand("azure", "eastus", NOWHERE.instance_type, at) == 0.1


def test_types_and_rates_are_replaced_by_later_observations(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    assert store.catalogue().instance_type("aws", "new.large") is None
    for vcpus, observed in ((4, MAY + 1), (2, MAY)):
        row = TypeRow(InstanceType("aws", "new.large", vcpus, 8.0))
        store.add_types(TypeBatch("types", (row,), Instant(observed)))
    found = store.catalogue().instance_type("aws", "new.large")
    assert found is not None
    assert found.vcpus == 4
    rate = Rate(EAST, MAY, Instant(MAY + 86400), 0.05, 0.1, Seconds(3600.0), Instant(MAY + 86400))
    bad = Rate(EAST, MAY, Instant(MAY + 86400), 0.5, 0.1, Seconds(3600.0), Instant(MAY + 86400))
    assert store.add_rates(RateBatch("advisor", (rate,))) == AddedRows(1, 0, 0)
    assert store.add_rates(RateBatch("advisor", (rate, bad))) == AddedRows(0, 1, 1)
    assert store.evictions.rates() == (("advisor", rate),)
    assert {found.kind for found in store.quality.findings()} == {Flaw.RATE}


def test_frames_have_the_columns_that_are_promised(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    assert tuple(store.frame().columns) == EXPORT_COLUMNS
    assert len(store.frame([EAST])) == 0
    store.add_prices(batch((MAY, 0.03), (MAY + 60, NAN), observed=MAY + 70))
    store.add_prices(batch((MAY, 0.03), market=WEST))
    frame = store.frame([EAST], since=Instant(MAY))
    assert tuple(frame.columns) == EXPORT_COLUMNS
    kinds = {"time_utc": "datetime64[s, UTC]", "price_usd_hour": "float64", "approximate": "bool"}
    assert {column: str(frame[column].dtype) for column in kinds} == kinds
    assert frame["time_utc"].astype("int64").tolist() == [MAY, MAY + 60]
    assert frame["price_usd_hour"].isna().tolist() == [False, True]
    assert len(store.frame()) == 3
    assert len(store.frame([])) == 0


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_an_export_is_whole_or_not_there(tmp_path: Path, name: str) -> None:
    store = PriceStore(tmp_path / "store")
    with pytest.raises(ExportRefused, match="without prices"):
        store.export_rows(tmp_path / name)
    store.add_prices(batch((MAY, 0.03)))
    assert store.export_rows(tmp_path / name) == 1
    with pytest.raises(ExportRefused, match=r"\.csv\.gz"):
        store.export_rows(tmp_path / "out.xlsx")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["store", name])


def test_threads_and_stores_may_add_at_once(tmp_path: Path) -> None:
    shared = PriceStore(tmp_path)

    def add(store: PriceStore, offset: int) -> None:
        for step in range(6):
            store.add_prices(batch((MAY + step * 600, 0.03), (MAY + 9000 + offset, 0.04)))

    stores = [shared, shared, PriceStore(tmp_path)]
    threads = [threading.Thread(target=add, args=(store, k)) for k, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.markets()[0].rows == 9
    assert not list((tmp_path / "incoming").iterdir())


def test_a_damaged_month_is_named(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    store.add_prices(batch((MAY, 0.03)))
    (file,) = tmp_path.rglob("rows.parquet")
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(StoreDamaged, match=r"rows\.parquet"):
        store.markets()
    with pytest.raises(StoreDamaged, match=r"fetch or import"):
        store.add_prices(batch((MAY, 0.03)))
