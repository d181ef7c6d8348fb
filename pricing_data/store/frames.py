"""Converts the store's rows for users: DataFrames, files, a catalogue.

The columns of ``PriceStore.frame()``, and of an exported file:

    cloud, region, zone, instance_type   text; where prices are per region, the zone is the region
    time_utc         datetime64[s, UTC]  when the price took effect (event stream) or was seen (polled)
    price_usd_hour   float64             US dollars per instance-hour, Linux; NaN: no longer listed
    source           text                where the row comes from
    semantics        text                "event stream" or "polled change log"
    approximate      bool                whether the time is approximate
    observed_utc     datetime64[s, UTC]  when the row was recorded, by spotctl or by the file's author

Rows are sorted by market, then source, then time. All believed rows of all sources are there, repetitions of
a price included; ``PriceStore.history`` chooses between the sources.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pricing_data.catalogue import Catalogue
from pricing_data.errors import ExportRefused
from pricing_data.model.market import InstanceType, Market
from pricing_data.model.units import Instant, UsdPerHour
from pricing_data.store import parquet
from pricing_data.store.commit_log import StoreFolder, replace_file
from pricing_data.store.queries import select_rows
from pricing_data.store.reference_tables import Row

if TYPE_CHECKING:
    import pandas as pd
    from duckdb import DuckDBPyConnection

EXPORT_COLUMNS: Final = (
    "cloud",
    "region",
    "zone",
    "instance_type",
    "time_utc",
    "price_usd_hour",
    "source",
    "semantics",
    "approximate",
    "observed_utc",
)
_FORMATS: Final = {
    ".csv": "(FORMAT csv, HEADER)",
    ".gz": "(FORMAT csv, HEADER, COMPRESSION gzip)",
    ".parquet": "(FORMAT parquet, COMPRESSION zstd)",
}


def read_frame(
    database: DuckDBPyConnection,
    disk: StoreFolder,
    markets: Collection[Market] | None,
    since: Instant | None,
    until: Instant | None,
) -> pd.DataFrame:
    """Returns the rows in [since, until] as a DataFrame with the columns above."""
    import pandas as pd

    files, where, values = select_rows(disk, markets, since, until)
    if not files:
        kinds = {"price_usd_hour": "float64", "approximate": "bool"}
        frame = pd.DataFrame({name: pd.Series(dtype=kinds.get(name, "str")) for name in EXPORT_COLUMNS})
    else:
        query = _rows_query(files, where, "time_s AS time_utc", "observed_s AS observed_utc")
        with database.cursor() as cursor:
            frame = parquet.fetch_frame(cursor, query, files, values)
    for column in ("time_utc", "observed_utc"):
        frame[column] = pd.to_datetime(frame[column].astype("int64"), unit="s", utc=True).astype(
            "datetime64[s, UTC]"
        )
    return frame


def export_rows(
    database: DuckDBPyConnection, disk: StoreFolder, path: Path, markets: Collection[Market] | None
) -> int:
    """Writes the rows to ``path``, with times as RFC 3339 in CSV and as timestamps (UTC) in Parquet."""
    options = _FORMATS.get(path.suffix)
    if options is None:
        raise ExportRefused(str(path), f"a name that ends in {path.suffix!r}", ".csv, .csv.gz or .parquet")
    files, where, values = select_rows(disk, markets, None, None)
    if not files:
        raise ExportRefused(str(path), "a store without prices", "prices, fetched or imported")
    moment = "make_timestamp({0}_s * 1000000)"
    if path.suffix != ".parquet":
        moment = f"strftime({moment}, '%Y-%m-%dT%H:%M:%SZ')"
    columns = [f"{moment.format(name)} AS {name}_utc" for name in ("time", "observed")]
    # Written beside its place and then renamed, so that no reader sees half an export.
    new = path.with_name(f".{path.name}.new")
    with database.cursor() as cursor:
        query = f"COPY ({_rows_query(files, where, *columns)}) TO {parquet.sql_literal(new)} {options}"
        try:
            count = parquet.fetch_rows(cursor, query, files, values)[0][0]
            replace_file(new, path)
        finally:
            new.unlink(missing_ok=True)
    return int(count)


def _rows_query(files: Sequence[Path], where: str, time: str, observed: str) -> str:
    columns = ", ".join(
        {"time_utc": time, "observed_utc": observed}.get(name, name) for name in EXPORT_COLUMNS
    )
    order = "cloud, region, zone, instance_type, source, time_s"
    return f"SELECT {columns} FROM {parquet.scan_expression(files)} WHERE {where} ORDER BY {order}"


def overlay_catalogue(types: Sequence[Row], list_prices: Sequence[Row]) -> Catalogue:
    """Returns the bundled catalogue, overlaid with rows of ``reference_tables.py``."""
    bundled = Catalogue.bundled()
    known = dict(bundled.instance_types)
    gpu_names = dict(bundled.gpu_names)
    for cloud, name, vcpus, memory_gib, gpus, gpu_name, *_ in types:
        known[cloud, name] = InstanceType(cloud, name, vcpus, memory_gib, gpus)
        # Some sources describe a type and not its GPU: the bundled name stays then.
        if gpu_name:
            gpu_names[cloud, name] = gpu_name
    prices = {key: dict(valid) for key, valid in bundled.list_prices.items()}
    for cloud, region, name, valid_from, price, *_ in list_prices:
        prices.setdefault((cloud, region, name), {})[Instant(valid_from)] = UsdPerHour(price)
    timelines = {key: tuple(sorted(valid.items())) for key, valid in prices.items()}
    return Catalogue(known, timelines, gpu_names)
