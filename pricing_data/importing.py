"""Files of prices -> the store: recorded files of every layout that is known, and exports of our own.

A file is added in whole batches, one for each source it names, and each of its rows is accounted for.
Refuses to judge: rows are the store's to believe or to set aside. Refuses to read a clock: ``now`` is only
asked for so that a time to come can be told from one that was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from pricing_data import parquet
from pricing_data.batch import Batch, Unreadable, UnreadableBatch
from pricing_data.errors import TraceError
from pricing_data.frames import ROWS
from pricing_data.layouts import Semantics
from pricing_data.market import Market, Times
from pricing_data.quality import Mask
from pricing_data.store import Added, PriceStore
from pricing_data.traces import Filter, RawRows, read_rows
from pricing_data.units import Instant

_PARQUET: Final = b"PAR1"
_AGAIN: Final = "Export it again."


@dataclass(frozen=True, slots=True)
class Imported:
    """``rows_read = added.new + added.known + added.quarantined + rows_left_out``."""

    path: str
    sources: tuple[str, ...]
    rows_read: int
    added: Added
    rows_left_out: int
    """Of other products than Linux, or of markets nobody asked for."""
    first: Instant | None
    last: Instant | None
    """Of the rows that name a time, believed or not; None where none does."""


def import_file(
    store: PriceStore, path: Path, now: Instant, *, source: str | None = None, only: Filter | None = None
) -> Imported:
    """Add a file to ``store``. Raises TraceError where it cannot be read as what it claims to be.

    ``source`` is what its rows are said to be from: by default "file", its folder's name and its own. Rows
    of an export keep the sources they have.
    """
    if _begins(path) == _PARQUET:
        return _import_export(store, path, only)
    raw = read_rows(path, only=only)
    resolved = path.resolve()
    said = source or f"file {resolved.parent.name}/{resolved.name}"
    observed = _observed(raw, now)
    rows = raw.rows
    batch = Batch(
        source=said,
        semantics=raw.semantics,
        markets=raw.markets,
        codes=rows.codes,
        times=rows.times,
        prices=np.where(rows.listed, rows.prices, np.nan),
        observed=observed,
        approximate=raw.approximate,
    )
    lines = tuple(
        Unreadable(flaw, raw.lines[line - 1], line)
        for flaw, where in raw.unreadable.items()
        for line in where.tolist()
    )
    seen = Instant(int(observed.max())) if len(observed) else now
    added = store.add(batch) + store.add_unreadable(UnreadableBatch(said, lines, seen))
    return Imported(
        path=str(path),
        sources=(said,),
        rows_read=raw.rows_read,
        added=added,
        rows_left_out=raw.rows_left_out,
        first=Instant(int(rows.times.min())) if len(rows.times) else None,
        last=Instant(int(rows.times.max())) if len(rows.times) else None,
    )


def _begins(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(len(_PARQUET))
    except OSError:
        return b""  # whoever reads it says what is wrong with it


def _observed(raw: RawRows, now: Instant) -> Times:
    """When the rows were seen: a poller says so; a stream of events was seen no earlier than its last one.

    Nothing was seen after ``now``: a row that claims to be from later was seen with the last one before.
    """
    times = raw.rows.times
    past = times[times <= now]
    last = int(past.max()) if len(past) else now
    if raw.semantics is Semantics.EVENT_STREAM:
        return np.full(len(times), last, np.int64)
    return np.minimum(times, last)


def _import_export(store: PriceStore, path: Path, only: Filter | None) -> Imported:
    added, read, left_out = Added(0, 0, 0), 0, 0
    sources: list[str] = []
    spans: list[int] = []
    for batch in _batches(path):
        read += len(batch)
        wanted = np.array([only is None or only(market) for market in batch.markets], np.bool_)
        if not wanted.all():
            kept = wanted[batch.codes]
            left_out += int(np.sum(~kept))
            batch = _taken(batch, kept)
        if len(batch):
            added += store.add(batch)
            sources.append(batch.source)
            spans += [int(batch.times.min()), int(batch.times.max())]
    first, last = (Instant(min(spans)), Instant(max(spans))) if spans else (None, None)
    return Imported(str(path), tuple(dict.fromkeys(sources)), read, added, left_out, first, last)


def _taken(batch: Batch, kept: Mask) -> Batch:
    return replace(
        batch,
        codes=batch.codes[kept],
        times=batch.times[kept],
        prices=batch.prices[kept],
        observed=batch.observed[kept],
        approximate=batch.inexact[kept],
    )


def _batches(path: Path) -> Iterator[Batch]:
    """The rows of an export, by source and semantics."""
    groups, columns = _export(path)
    codes = columns["code"]
    kinds = sorted({(group[4], group[5]) for group in groups})
    for source, semantics in kinds:
        places = [place for place, group in enumerate(groups) if (group[4], group[5]) == (source, semantics)]
        code_of = np.full(len(groups), -1, np.int64)
        code_of[places] = np.arange(len(places))
        mine = slice(None) if len(kinds) == 1 else np.flatnonzero(code_of[codes] >= 0)
        yield Batch(
            source=source,
            semantics=Semantics(semantics),
            markets=tuple(Market(*groups[place][:4]) for place in places),
            codes=code_of[codes[mine]],
            times=columns["time_s"][mine],
            prices=np.ma.filled(columns["price_usd_hour"], np.nan)[mine],
            observed=columns["observed_s"][mine],
            approximate=columns["approximate"][mine],
        )


def _export(path: Path) -> tuple[list[tuple[str, ...]], dict[str, Any]]:
    """The distinct names in an export, and its columns; ``code`` is a row's place among the names.

    One thread keeps the rows in the order in which they were sorted, so that nobody has to sort them again.
    """
    names = "cloud, region, zone, instance_type, source, semantics"
    texts = ", ".join(f"coalesce({name}::VARCHAR, '') AS {name}" for name in names.split(", "))
    moment = "coalesce(epoch({0}_utc)::BIGINT, 0) AS {0}_s"
    numbers = (
        f"{moment.format('time')}, price_usd_hour::DOUBLE AS price_usd_hour, "
        f"coalesce(approximate, false) AS approximate, {moment.format('observed')}"
    )
    file = parquet.scan([path])
    database = parquet.connect()
    try:
        with parquet.interruptible():
            database.execute("SET threads = 1")
            _check(path, [row[0] for row in database.execute(f"DESCRIBE SELECT * FROM {file}").fetchall()])
            database.execute(
                f"CREATE TABLE names AS SELECT row_number() OVER () - 1 AS code, * FROM "
                f"(SELECT DISTINCT {texts} FROM {file} ORDER BY ALL)"
            )
            groups = database.execute(f"SELECT {names} FROM names ORDER BY code").fetchall()
            columns = database.execute(
                "SELECT code, time_s, price_usd_hour, approximate, observed_s FROM "
                f"(SELECT {texts}, {numbers} FROM {file}) JOIN names USING ({names})"
            ).fetchnumpy()
    except parquet.errors() as error:
        found = str(error).splitlines()[0]
        raise TraceError(str(path), None, found, "a Parquet file that spotctl exported", _AGAIN) from error
    finally:
        database.close()
    strange = sorted({group[5] for group in groups} - set(Semantics))
    if strange:
        found = f"the semantics {strange[0][:80]!r}"
        raise TraceError(str(path), None, found, " or ".join(map(repr, map(str, Semantics))), _AGAIN)
    return groups, columns


def _check(path: Path, columns: list[str]) -> None:
    missing = [name for name in ROWS if name not in columns]
    if missing:
        found = f"no column {missing[0]!r} among {', '.join(columns)[:120]}"
        raise TraceError(str(path), None, found, f"the columns of an export: {', '.join(ROWS)}", _AGAIN)
