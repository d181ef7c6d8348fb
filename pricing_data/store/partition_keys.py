"""Splits a batch by region and month.

Pure. Every row gets a place: rows with unusable names or times go to places of their own, where validation
quarantines them with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pricing_data.formats.batches import Batch
from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import Ints
from pricing_data.model.market import Market
from pricing_data.store.commit_log import PartitionKey
from pricing_data.store.validation import EARLIEST, LATEST, RowPool, SeriesKey

_NO_MONTH: Final = "none"
_LONGEST_NAME: Final = 100


def split_by_month(batch: Batch) -> Iterator[tuple[PartitionKey, RowPool]]:
    """Yields the rows of each region and month in the batch."""
    if len(batch) == 0:
        return
    names = [SeriesKey.from_market(_storable_market(market), batch.source) for market in batch.markets]
    series = tuple(sorted(set(names)))
    place_of = {name: code for code, name in enumerate(series)}
    pool = RowPool(
        series=series,
        codes=np.array([place_of[name] for name in names], np.int64)[batch.codes],
        times=batch.times.astype(np.int64, copy=False),
        prices=batch.prices.astype(np.float64, copy=False),
        observed=batch.observed.astype(np.int64, copy=False),
        polled=np.full(len(batch), batch.semantics is Semantics.POLLED),
        approximate=batch.approximate_column,
    )
    regions = sorted({(name.cloud, name.region) for name in series})
    region_of = {region: code for code, region in enumerate(regions)}
    region = np.array([region_of[name.cloud, name.region] for name in series], np.int64)
    months = _month_numbers(pool.times)
    span = int(months.max()) + 2
    # One integer per region and month; + 1 because unusable times have month -1.
    keys = region[pool.codes] * span + months + 1
    order = slice(None) if np.all(np.diff(keys) >= 0) else np.argsort(_narrow_keys(keys), kind="stable")
    keys, pool = keys[order], pool.take_rows(order)
    borders = (np.flatnonzero(np.diff(keys)) + 1).tolist()
    for begin, end in zip([0, *borders], [*borders, len(keys)], strict=True):
        region_code, month = divmod(int(keys[begin]), span)
        yield (
            PartitionKey(*regions[region_code], _month_name(month - 1)),
            pool.take_rows(slice(begin, end)).drop_unused_series(),
        )


def _narrow_keys(keys: Ints) -> np.ndarray[tuple[int], np.dtype[np.int16]] | Ints:
    """Returns the keys as short integers where they fit: numpy sorts those by radix, in linear time."""
    return keys.astype(np.int16) if int(keys.max()) < np.iinfo(np.int16).max else keys


def _month_numbers(times: Ints) -> Ints:
    """Returns months since 1970; -1 for unusable times."""
    sane = (times >= EARLIEST) & (times < LATEST)
    months = np.where(sane, times, 0).astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)
    return np.where(sane, months, -1)


def _month_name(month: int) -> str:
    return _NO_MONTH if month < 0 else str(np.datetime64(month, "M"))


def _storable_market(market: Market) -> Market:
    """Returns the market with names that a file can hold; a changed name stays unusable."""
    return Market(
        *(_storable_text(part) for part in (market.cloud, market.region, market.zone, market.instance_type))
    )


def _storable_text(part: str) -> str:
    if part.isprintable() and 0 < len(part) <= _LONGEST_NAME:
        return part
    # A name that begins with "?" never passes ``is_usable_name``, so the row stays in quarantine.
    return "?" + part.encode("ascii", "backslashreplace").decode()[:_LONGEST_NAME]
