"""Imports files into the store: recordings of every known layout, and exports of a store.

A file is added in whole batches, one for each source it names, and each of its rows is accounted for. Judges
nothing: the store believes rows or quarantines them. Reads no clock: ``now`` is only the bound above which
times are in the future.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from pricing_data.errors import TraceError
from pricing_data.formats.batches import (
    Batch,
    LifetimeBatch,
    ListPrice,
    OnDemandBatch,
    ProbeBatch,
    RateBatch,
    UnreadableBatch,
)
from pricing_data.formats.capacity_rows import (
    LIFETIME_COLUMNS,
    PROBE_COLUMNS,
    is_of_sightings,
    read_sightings,
)
from pricing_data.formats.csv_columns import CsvTable, parse_prices, read_lines
from pricing_data.formats.layouts import LAYOUTS, Semantics, recognise_layout
from pricing_data.formats.quality import Flaw, Mask
from pricing_data.formats.reference_files import FACT_LAYOUTS, FactLayout, read_facts, recognise_facts
from pricing_data.formats.traces import Filter, RawRows, price_rows
from pricing_data.model.market import Times
from pricing_data.model.units import Instant, UsdPerHour
from pricing_data.store import exports
from pricing_data.store.exports import Export
from pricing_data.store.frames import EXPORT_COLUMNS
from pricing_data.store.store import AddedRows, PriceStore

_PARQUET: Final = b"PAR1"
_NONE: Final = AddedRows(0, 0, 0)


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """Reports an import: ``rows_read = added.new + added.known + added.quarantined + rows_left_out``."""

    path: str
    sources: tuple[str, ...]
    rows_read: int
    added: AddedRows
    rows_left_out: int
    """Rows of other products than Linux, or of markets that were not requested."""
    first: Instant | None
    last: Instant | None
    """First and last time of the rows, believed or not; None where no row has a time."""
    list_prices: AddedRows = _NONE
    """Counts of the on-demand prices that stand beside spot prices in some layouts."""


def import_file(
    store: PriceStore,
    path: Path,
    now: Instant,
    *,
    source: str | None = None,
    only: Filter | None = None,
    as_of: Instant | None = None,
) -> ImportedFile:
    """Adds a file to ``store``. Raises TraceError where it cannot be read.

    Args:
        source: the source of its rows; by default "file", its folder's name and its own. Rows of an export
            keep their sources.
        only: selects markets; None imports all.
        as_of: the date from which facts without dates hold; required for such files.
    """
    name, origin = str(path), source or _source_name(path)
    # The content decides, never the file's name.
    if _first_bytes(path) == _PARQUET:
        return _import_export(store, name, origin, exports.read_export_parquet(path), only)
    table = CsvTable.parse(name, read_lines(path, name))
    if set(EXPORT_COLUMNS) <= set(table.header):
        return _import_export(store, name, origin, exports.read_export_csv(table), only)
    if recognise_layout(table.header) is not None:
        return _import_prices(store, price_rows(table, name, only=only), table, origin, now)
    if is_of_sightings(table.header):
        return _import_sightings(store, name, origin, table, only, now)
    layout = recognise_facts(table.header)
    if layout is not None:
        return _import_facts(store, name, origin, table, layout, as_of)
    layouts = [*(each.columns for each in (*LAYOUTS, *FACT_LAYOUTS)), PROBE_COLUMNS, LIFETIME_COLUMNS]
    known = "; or ".join(",".join(columns) for columns in (*layouts, EXPORT_COLUMNS))
    found = f"the columns {','.join(table.header)[:120]!r}"
    raise TraceError(name, 1, found, f"those of a known layout: {known}", "Rename its columns.")


def _source_name(path: Path) -> str:
    """Returns the name of a file as a source."""
    resolved = path.resolve()
    text = f"file {resolved.parent.name}/{resolved.name}"
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(len(_PARQUET))
    except OSError:
        return b""  # whoever reads it next reports the error


def _import_prices(
    store: PriceStore, raw: RawRows, table: CsvTable, origin: str, now: Instant
) -> ImportedFile:
    observed, rows = _observed_times(raw, now), raw.rows
    # The text "nan" parses as a number, but NaN in a batch means that the market was no longer listed.
    no_number = rows.listed & np.isnan(rows.prices)
    batch = Batch(
        source=origin,
        semantics=raw.semantics,
        markets=raw.markets,
        codes=rows.codes,
        times=rows.times,
        prices=np.where(rows.listed, rows.prices, np.nan),
        observed=observed,
        approximate=raw.approximate,
    )
    if no_number.any():
        batch = _take_rows(batch, ~no_number)
    seen = Instant(int(observed.max())) if len(observed) else now
    listed = _list_prices(raw, table, observed)  # first, because spot prices are checked against them
    beside = store.add_on_demand(OnDemandBatch(origin, listed, seen)) if listed else _NONE
    lines = table.unreadable_rows({**raw.unreadable, Flaw.NOT_FINITE: rows.lines[no_number]})
    added = store.add_prices(batch) + store.add_unreadable(UnreadableBatch(origin, lines, seen))
    return ImportedFile(
        path=raw.label,
        sources=(origin,),
        rows_read=raw.rows_read,
        added=added,
        rows_left_out=raw.rows_left_out,
        first=Instant(int(rows.times.min())) if len(rows.times) else None,
        last=Instant(int(rows.times.max())) if len(rows.times) else None,
        list_prices=beside,
    )


def _list_prices(raw: RawRows, table: CsvTable, observed: Times) -> tuple[ListPrice, ...]:
    """Returns the on-demand prices of a polled log, each valid from when it was first seen."""
    if not raw.layout.on_demand:
        return ()
    place = np.searchsorted(table.numbers, raw.rows.lines)
    prices, known, listed = parse_prices(table.columns[raw.layout.on_demand], may_be_empty=True)
    prices = np.where(known, prices, np.nan)  # NaN: the store sets these aside
    # A row with a time in the future was observed at another time, and its list price does not count.
    seen = np.flatnonzero(listed[place] & (raw.rows.times == observed))
    order = seen[np.lexsort((raw.rows.times[seen], raw.rows.codes[seen]))]
    codes, times, prices = raw.rows.codes[order], raw.rows.times[order], prices[place][order]
    # A polled log repeats its list prices; only the first row of each price counts.
    news = np.ones(len(order), np.bool_)
    news[1:] = (np.diff(codes) != 0) | (prices[1:] != prices[:-1])
    rows = zip(codes[news].tolist(), times[news].tolist(), prices[news].tolist(), strict=True)
    markets = ((raw.markets[code], at, price) for code, at, price in rows)
    return tuple(
        ListPrice(market.cloud, market.region, market.instance_type, UsdPerHour(price), Instant(at))
        for market, at, price in markets
    )


def _observed_times(raw: RawRows, now: Instant) -> Times:
    """Returns when each row was seen.

    A row of a polled log was seen at its own time, and an event stream when its last event had come. No row
    was seen after ``now``: one with a later time was seen with the last row before ``now``.
    """
    times = raw.rows.times
    past = times[times <= now]
    last = int(past.max()) if len(past) else now
    if raw.semantics is Semantics.EVENT_STREAM:
        return np.full(len(times), last, np.int64)
    return np.minimum(times, last)


def _import_facts(
    store: PriceStore, name: str, origin: str, table: CsvTable, layout: FactLayout, as_of: Instant | None
) -> ImportedFile:
    if as_of is None and not layout.dated:
        advice = "State the date from which its figures hold: --as-of DATE."
        raise TraceError(name, None, f"no dates in a file of {','.join(layout.columns)}", "dates", advice)
    facts = read_facts(table, layout, as_of or Instant(0))
    ends = [rate.end for rate in facts.rates] or ([] if as_of is None else [as_of])
    observed = max(ends, default=Instant(0))
    added = store.add_unreadable(UnreadableBatch(origin, facts.unreadable, observed))
    for batch in facts.as_batches(origin, observed):
        if isinstance(batch, RateBatch):
            added += store.add_rates(batch)
        elif isinstance(batch, OnDemandBatch):
            added += store.add_on_demand(batch)
        else:
            added += store.add_types(batch)
    first, last = (min(ends), max(ends)) if layout.dated and ends else (None, None)
    return ImportedFile(name, (origin,), table.row_count, added, facts.rows_left_out, first, last)


def _import_sightings(
    store: PriceStore, name: str, origin: str, table: CsvTable, only: Filter | None, now: Instant
) -> ImportedFile:
    found = read_sightings(table, now)
    probes = tuple(probe for probe in found.probes if only is None or only(probe.market))
    lifetimes = tuple(life for life in found.lifetimes if only is None or only(life.market))
    begins = [probe.at for probe in probes] or [life.begin for life in lifetimes]
    ends = [probe.at for probe in probes] or [life.end for life in lifetimes]
    last = max(ends, default=None)
    lines = table.unreadable_rows(found.flawed)
    added = store.add_unreadable(UnreadableBatch(origin, lines, Instant(0) if last is None else last))
    if probes:
        added += store.add_probes(ProbeBatch(origin, probes))
    if lifetimes:
        added += store.add_lifetimes(LifetimeBatch(origin, lifetimes))
    left_out = len(found.probes) + len(found.lifetimes) - len(probes) - len(lifetimes)
    return ImportedFile(name, (origin,), table.row_count, added, left_out, min(begins, default=None), last)


def _import_export(
    store: PriceStore, name: str, origin: str, export: Export, only: Filter | None
) -> ImportedFile:
    read, left_out = len(export.unreadable), 0
    added = store.add_unreadable(UnreadableBatch(origin, export.unreadable, Instant(0)))
    sources: list[str] = []
    spans: list[int] = []
    for batch in export.split_batches():
        read += len(batch)
        wanted = np.array([only is None or only(market) for market in batch.markets], np.bool_)
        if not wanted.all():
            # Copied only if some market was not requested: most imports take whole batches.
            kept = wanted[batch.codes]
            left_out += int(np.sum(~kept))
            batch = _take_rows(batch, kept)
        if len(batch):
            added += store.add_prices(batch)
            sources.append(batch.source)
            spans += [int(batch.times.min()), int(batch.times.max())]
    first, last = (Instant(min(spans)), Instant(max(spans))) if spans else (None, None)
    return ImportedFile(name, tuple(dict.fromkeys(sources)), read, added, left_out, first, last)


def _take_rows(batch: Batch, kept: Mask) -> Batch:
    return replace(
        batch,
        codes=batch.codes[kept],
        times=batch.times[kept],
        prices=batch.prices[kept],
        observed=batch.observed[kept],
        approximate=batch.approximate_column[kept],
    )
