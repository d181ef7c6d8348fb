"""Reads exports of a store, Parquet and CSV, back into batches: one for each source and semantics.

Does not judge rows. A Parquet file is read or rejected as a whole. A CSV file may have been edited: its
unreadable lines are reported, and the others are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pricing_data.errors import TraceError
from pricing_data.formats.batches import Batch
from pricing_data.formats.csv_columns import CsvTable, parse_prices, parse_times
from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import Flaw, UnreadableRow
from pricing_data.model.market import Market
from pricing_data.store import parquet
from pricing_data.store.frames import EXPORT_COLUMNS

_NAMES: Final = ("cloud", "region", "zone", "instance_type", "source", "semantics")
_TRUTH: Final = {"true": True, "false": False}
_AGAIN: Final = "Export it again."


@dataclass(frozen=True, slots=True, eq=False)
class Export:
    """Holds rows column by column, shape (n,)."""

    names: tuple[tuple[str, ...], ...]
    """Distinct (cloud, region, zone, instance type, source, semantics)."""
    columns: dict[str, Any]
    """``code`` is a row's position among ``names``; the other columns have the store's names."""
    unreadable: tuple[UnreadableRow, ...] = ()

    def split_batches(self) -> Iterator[Batch]:
        """Yields the rows by source and semantics."""
        codes = self.columns["code"]
        kinds = sorted({name[4:] for name in self.names})
        for source, semantics in kinds:
            places = [place for place, name in enumerate(self.names) if name[4:] == (source, semantics)]
            code_of = np.full(len(self.names), -1, np.int64)
            code_of[places] = np.arange(len(places))
            # A slice copies nothing, and most exports have one source.
            mine = slice(None) if len(kinds) == 1 else np.flatnonzero(code_of[codes] >= 0)
            yield Batch(
                source=source,
                semantics=Semantics(semantics),
                markets=tuple(Market(*self.names[place][:4]) for place in places),
                codes=code_of[codes[mine]],
                times=self.columns["time_s"][mine],
                prices=self.columns["price_usd_hour"][mine],
                observed=self.columns["observed_s"][mine],
                approximate=self.columns["approximate"][mine],
            )


def read_export_csv(table: CsvTable) -> Export:
    """Reads a CSV file whose header has all of ``frames.EXPORT_COLUMNS``."""
    times, time_known = parse_times(table.columns["time_utc"])
    observed, observed_known = parse_times(table.columns["observed_utc"])
    prices, price_known, listed = parse_prices(table.columns["price_usd_hour"], may_be_empty=True)
    understood = table.is_in("semantics", list(Semantics))
    exact = [_TRUTH.get(text.lower()) for text in table.columns["approximate"]]
    understood &= np.array([truth is not None for truth in exact], np.bool_)
    flaws = {
        Flaw.FIELDS: table.misshapen,
        Flaw.TIME: table.numbers[~(time_known & observed_known)],
        Flaw.PRICE: table.numbers[time_known & observed_known & ~price_known],
        Flaw.NOT_UNDERSTOOD: table.numbers[time_known & observed_known & price_known & ~understood],
    }
    good = np.flatnonzero(time_known & observed_known & price_known & understood)
    code_of: dict[tuple[str, ...], int] = {}
    names = zip(*(table.columns[name] for name in _NAMES), strict=True)
    codes = np.array([code_of.setdefault(name, len(code_of)) for name in names], np.int64)
    columns = {
        "code": codes[good],
        "time_s": times[good],
        "price_usd_hour": np.where(listed, prices, np.nan)[good],
        "approximate": np.array([bool(truth) for truth in exact], np.bool_)[good],
        "observed_s": observed[good],
    }
    return _drop_unused_names(Export(tuple(code_of), columns, table.unreadable_rows(flaws)))


def _drop_unused_names(export: Export) -> Export:
    """Drops the names of unreadable rows, which may be no names at all."""
    used, codes = np.unique(export.columns["code"], return_inverse=True)
    names = tuple(export.names[place] for place in used.tolist())
    return Export(names, {**export.columns, "code": codes}, export.unreadable)


def read_export_parquet(path: Path) -> Export:
    """Reads an exported Parquet file; raises TraceError where it is not an export."""
    names = ", ".join(_NAMES)
    texts = ", ".join(f"coalesce({name}::VARCHAR, '') AS {name}" for name in _NAMES)
    moment = "coalesce(epoch({0}_utc)::BIGINT, 0) AS {0}_s"
    numbers = (
        f"{moment.format('time')}, price_usd_hour::DOUBLE AS price_usd_hour, "
        f"coalesce(approximate, false) AS approximate, {moment.format('observed')}"
    )
    file = parquet.scan_expression([path])
    database = parquet.open_database()
    try:
        with parquet.translate_interrupt():
            # One thread returns rows in the order of the file, which is sorted: several would mix them, and
            # the store would have to sort millions of rows again.
            database.execute("SET threads = 1")
            _check_columns(
                path, [row[0] for row in database.execute(f"DESCRIBE SELECT * FROM {file}").fetchall()]
            )
            database.execute(
                f"CREATE TABLE names AS SELECT row_number() OVER () - 1 AS code, * FROM "
                f"(SELECT DISTINCT {texts} FROM {file} ORDER BY ALL)"
            )
            groups = database.execute(f"SELECT {names} FROM names ORDER BY code").fetchall()
            columns = database.execute(
                "SELECT code, time_s, price_usd_hour, approximate, observed_s FROM "
                f"(SELECT {texts}, {numbers} FROM {file}) JOIN names USING ({names})"
            ).fetchnumpy()
    except parquet.database_error() as error:
        found = str(error).splitlines()[0]
        raise TraceError(str(path), None, found, "a Parquet file exported by spotctl", _AGAIN) from error
    finally:
        database.close()
    strange = sorted({group[5] for group in groups} - set(Semantics))
    if strange:
        found = f"the semantics {strange[0][:80]!r}"
        raise TraceError(str(path), None, found, " or ".join(map(repr, map(str, Semantics))), _AGAIN)
    return Export(
        tuple(groups), {**columns, "price_usd_hour": np.ma.filled(columns["price_usd_hour"], np.nan)}
    )


def _check_columns(path: Path, columns: list[str]) -> None:
    missing = [name for name in EXPORT_COLUMNS if name not in columns]
    if missing:
        found = f"no column {missing[0]!r} among {', '.join(columns)[:120]}"
        raise TraceError(
            str(path), None, found, f"the columns of an export: {', '.join(EXPORT_COLUMNS)}", _AGAIN
        )
