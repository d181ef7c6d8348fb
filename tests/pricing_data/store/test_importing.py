"""Recorded files and exports go into the store whole: every row imported, set aside or named."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pricing_data.errors import TraceError
from pricing_data.formats.quality import Flaw
from pricing_data.formats.traces import read_trace
from pricing_data.model.units import Instant, parse_instant
from pricing_data.store.importing import import_file
from pricing_data.store.store import AddedRows, PriceStore
from tests.pricing_data.formats.test_recorded_traces import PRICE_FILES
from tests.pricing_data.formats.test_reference_files import FACTS
from tests.pricing_data.store.test_store import files

NOW = parse_instant("2026-11-20")
HEADER = "timestamp_utc,region,zone,instance_type,product,price_usd_hour"
SMALL = [
    "aws-gpu-spot-2020/spot_prices.csv.gz",
    "aws-spot-2013/spot_prices.csv.gz",
    "aws-spot-2016mid/spot_prices.csv.gz",
    "aws-spot-2023-c5a/spot_prices.csv.gz",
    "aws-v100-prices-2023/spot_prices.csv.gz",
    "azure-gpu-lowpriority-2020/prices.csv.gz",
]


@pytest.fixture(scope="module")
def imported(recorded_data: Path, tmp_path_factory: pytest.TempPathFactory) -> PriceStore:
    """A store with the recorded files that are quickly read."""
    store = PriceStore(tmp_path_factory.mktemp("imported"))
    for file in SMALL:
        import_file(store, recorded_data / file, NOW)
    return store


def manifest(recorded_data: Path) -> dict[str, dict[str, str]]:
    with (recorded_data / "MANIFEST.csv").open() as lines:
        return {row["path"]: row for row in csv.DictReader(lines)}


@pytest.mark.parametrize("file", PRICE_FILES)
def test_every_row_of_a_recorded_file_is_accounted_for(
    recorded_data: Path, tmp_path: Path, file: str, campaign: bool
) -> None:
    if file.startswith("gcp") and not campaign:
        pytest.skip("1361 months take a while: with --campaign")
    expected = manifest(recorded_data)[file]
    store = PriceStore(tmp_path)
    result = import_file(store, recorded_data / file, NOW)
    added = result.added
    assert result.rows_read == int(expected["rows"])
    assert result.rows_read == added.new + added.known + added.quarantined + result.rows_left_out
    assert result.first == parse_instant(expected["first_time"])
    assert result.last == parse_instant(expected["last_time"])
    assert sum(market.rows for market in store.markets()) == added.new
    assert len(store.quality.list_quarantined()) == added.quarantined + result.list_prices.quarantined
    again = import_file(store, recorded_data / file, NOW).added
    assert again == AddedRows(0, result.rows_read - result.rows_left_out, 0)


@pytest.mark.parametrize("file", SMALL)
def test_the_store_gives_the_steps_that_the_file_has(recorded_data: Path, tmp_path: Path, file: str) -> None:
    store, recording = PriceStore(tmp_path), read_trace(recorded_data / file)
    import_file(store, recorded_data / file, NOW)
    history = store.history()
    assert history.markets == recording.history.markets
    if not store.quality.list_quarantined():
        for market in history.markets:
            assert history.series(market).times.tolist() == recording.history.series(market).times.tolist()
            assert history.series(market).prices.tolist() == recording.history.series(market).prices.tolist()


def test_the_order_of_files_does_not_matter(
    recorded_data: Path, imported: PriceStore, tmp_path: Path
) -> None:
    store = PriceStore(tmp_path)
    for file in reversed(SMALL):
        import_file(store, recorded_data / file, NOW)
    assert files(store.root) == files(imported.root)


@pytest.mark.parametrize("form", ["parquet", "csv", "csv.gz"])
def test_an_export_brings_everything_back(imported: PriceStore, tmp_path: Path, form: str) -> None:
    exported = tmp_path / f"all.{form}"
    rows = imported.export_rows(exported)
    store = PriceStore(tmp_path / "store")
    result = import_file(store, exported, NOW)
    assert (result.rows_read, result.added) == (rows, AddedRows(rows, 0, 0))
    mine, theirs = (
        {name: held for name, held in files(each.root).items() if name.endswith("rows.parquet")}
        for each in (store, imported)
    )
    assert mine == theirs
    assert import_file(imported, exported, NOW).added == AddedRows(0, rows, 0)


def test_lines_of_an_export_that_were_spoilt_keep_no_other_back(imported: PriceStore, tmp_path: Path) -> None:
    exported = tmp_path / "some.csv"
    rows = imported.export_rows(exported, [m.market for m in imported.markets(region="eu-west-1")])
    lines = exported.read_text().splitlines()
    spoils = {
        1: ("event stream", "hearsay"),
        2: ("false", "perhaps"),
        3: ("2019", "soon"),
        4: (",4.", ",cheap"),
    }
    for number, (good, bad) in spoils.items():
        assert good in lines[number]
        lines[number] = lines[number].replace(good, bad)
    lines[5] += ",more"
    exported.write_text("\n".join(lines))
    store = PriceStore(tmp_path / "store")
    result = import_file(store, exported, NOW)
    assert (result.rows_read, result.added) == (rows, AddedRows(rows - 5, 0, 5))
    assert [row.text for row in store.quality.list_quarantined()] == [
        f"line {n + 1}: {lines[n]}" for n in range(1, 6)
    ]
    assert import_file(store, exported, NOW).added == AddedRows(0, rows, 0)


def test_lines_that_are_no_rows_are_kept_too(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    good = "2016-05-01T00:00:00Z,us-east-1,us-east-1a,m4.large,Linux/UNIX,0.03"
    bad = [
        "yesterday" + good[20:],
        good[:-4] + "cheap",
        good + ",more",
        good.replace("Linux/UNIX", "Windows"),
    ]
    file.write_text("\n".join([HEADER, good, good, *bad, good.replace("2016", "2098")]) + "\n")
    store = PriceStore(tmp_path / "store")
    result = import_file(store, file, NOW, source="mine")
    assert (result.rows_read, result.added, result.rows_left_out) == (7, AddedRows(1, 1, 4), 1)
    assert {found.kind for found in store.quality.findings()} == {
        Flaw.TIME,
        Flaw.PRICE,
        Flaw.FIELDS,
        Flaw.FUTURE,
    }
    assert {row.source for row in store.quality.list_quarantined()} == {"mine"}
    again = import_file(store, file, Instant(NOW + 86400), source="mine").added
    assert again == AddedRows(0, 6, 0)


@pytest.mark.parametrize("name", ["nan", "NaN", "-nan"])
def test_a_price_that_is_not_a_number_does_not_delist_the_market(tmp_path: Path, name: str) -> None:
    good = "2016-05-01T00:00:00Z,us-east-1,us-east-1a,m4.large,Linux/UNIX,0.03"
    bad = f"2016-05-01T01:00:00Z,us-east-1,us-east-1a,m4.large,Linux/UNIX,{name}"
    (tmp_path / "a.csv").write_text(f"{HEADER}\n{good}\n{bad}\n")
    store = PriceStore(tmp_path / "store")
    assert import_file(store, tmp_path / "a.csv", NOW).added == AddedRows(1, 0, 1)
    assert [row.reason for row in store.quality.list_quarantined()] == [Flaw.NOT_FINITE]
    assert store.markets()[0].price == 0.03


@pytest.mark.parametrize("time", ["2016-05-01T00:00:+1Z", "2016-05-01T00:00:0ZZ", "2016-05-01T00:00Q00Z"])
def test_a_time_with_half_a_zone_is_no_time(tmp_path: Path, time: str) -> None:
    (tmp_path / "a.csv").write_text(f"{HEADER}\n{time},us-east-1,us-east-1a,m4.large,Linux/UNIX,0.03\n")
    store = PriceStore(tmp_path / "store")
    assert import_file(store, tmp_path / "a.csv", NOW).added == AddedRows(0, 0, 1)
    assert [row.reason for row in store.quality.list_quarantined()] == [Flaw.TIME]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"a,b\n1,2\n", b"\x1f\x8b\x08", b"\xff\xfe"])
def test_what_is_no_price_file_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    store = PriceStore(tmp_path / "store")
    with pytest.raises(TraceError):
        import_file(store, tmp_path / "file", NOW)
    with pytest.raises(TraceError, match="no such file"):
        import_file(store, tmp_path / "none", NOW)
    assert files(store.root) == {}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("originals")
    line = "2016-05-{:02}T0{}:00:00Z,us-east-1,us-east-1a,m4.large,Linux/UNIX,0.0{}"
    text = "\n".join([HEADER, *(line.format(day, day % 9, day) for day in range(1, 29))]) + "\n"
    (folder / "a.csv").write_text(text)
    store = PriceStore(folder / "store")
    import_file(store, folder / "a.csv", NOW)
    exported = []
    for name in ("a.parquet", "a.csv", "a.csv.gz"):
        store.export_rows(folder / name)
        exported.append((folder / name).read_bytes())
    return [text.encode(), gzip.compress(text.encode()), *exported, *(table.encode() for table in FACTS)]


@given(
    st.integers(0, 4 + len(FACTS)),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_bytes_are_refused_or_set_aside(
    tmp_path_factory: pytest.TempPathFactory,
    originals: list[bytes],
    which: int,
    changes: list[tuple[int, int]],
    cut: int,
) -> None:
    content = bytearray(originals[which])
    for place, value in changes:
        content[place % len(content)] = value
    if cut % 3 == 0:
        del content[cut % len(content) :]
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "file").write_bytes(content)
    store = PriceStore(folder / "store")
    try:
        result = import_file(store, folder / "file", NOW, as_of=NOW)
    except TraceError:
        assert files(store.root) == {}
    else:
        added = result.added
        assert result.rows_read == added.new + added.known + added.quarantined + result.rows_left_out
        if which < len(originals) - len(FACTS):
            assert sum(market.rows for market in store.markets()) == added.new
        assert len(store.quality.list_quarantined()) == added.quarantined
