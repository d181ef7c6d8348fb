"""Converts batches to rows of the reference tables, and rows of probes and lifetimes to spells.

``reference_tables.py`` has the columns. Judges nothing (``row_checks.py`` does) and opens no files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from pricing_data.formats.batches import (
    Batch,
    LifetimeBatch,
    MachineLifetime,
    OnDemandBatch,
    Probe,
    ProbeBatch,
    RateBatch,
    TypeBatch,
)
from pricing_data.formats.capacity_rows import build_observations
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market
from pricing_data.store.reference_tables import Row
from pricing_data.store.validation import is_usable_name


def seen_rows(batch: Batch) -> list[Row]:
    """Returns rows of ``reference_tables.SEEN``: when each region was last mentioned."""
    newest: dict[tuple[str, str], int] = {}
    latest = np.full(len(batch.markets), -1, np.int64)
    np.maximum.at(latest, batch.codes, batch.observed)
    for market, at in zip(batch.markets, latest.tolist(), strict=True):
        if at >= 0 and is_usable_name(market.cloud) and is_usable_name(market.region):
            key = (market.cloud, market.region)
            newest[key] = max(at, newest.get(key, at))
    return [(batch.source, *key, at) for key, at in newest.items()]


def rate_rows(batch: RateBatch) -> list[Row]:
    """Returns rows of ``reference_tables.RATES``."""
    return [
        (*_market_names(r.market), batch.source, r.begin, r.end, r.low, r.high, r.per_s, r.observed)
        for r in batch.rates
    ]


def type_rows(batch: TypeBatch) -> list[Row]:
    """Returns rows of ``reference_tables.TYPES``."""
    return [
        (t.cloud, t.name, t.vcpus, t.memory_gib, t.gpus, row.gpu_name, batch.source, batch.observed)
        for row in batch.types
        for t in (row.instance_type,)
    ]


def list_price_rows(batch: OnDemandBatch) -> list[Row]:
    """Returns rows of ``reference_tables.ON_DEMAND``."""
    return [
        (p.cloud, p.region, p.instance_type, p.valid_from, p.price, batch.source, batch.observed)
        for p in batch.prices
    ]


def probe_rows(batch: ProbeBatch) -> list[Row]:
    """Returns rows of ``reference_tables.PROBES``."""
    return [(*_market_names(p.market), batch.source, p.at, p.available, p.at) for p in batch.probes]


def lifetime_rows(batch: LifetimeBatch) -> list[Row]:
    """Returns rows of ``reference_tables.LIFETIMES``; a later batch replaces the row of a running machine."""
    rows: list[Row] = []
    before: tuple[Market, int] | None = None
    rank = 0
    for life in sorted(batch.lifetimes):
        # Machines have no names, so those that began together are numbered in the order of their ends.
        rank = rank + 1 if (life.market, life.begin) == before else 0
        before = life.market, life.begin
        rows.append(
            (*_market_names(life.market), batch.source, life.begin, rank, life.end, int(life.lost), life.end)
        )
    return rows


def read_observations(
    probed: Iterable[Row], lived: Iterable[Row], markets: Collection[Market] | None, nodes: int
) -> Observations:
    """Returns the spells of ``markets`` (or all) from rows of ``PROBES`` and ``LIFETIMES``."""
    names = None if markets is None else {_market_names(market) for market in markets}
    return build_observations(
        (Probe(Market(*row[:4]), row[5], row[6]) for row in probed if names is None or row[:4] in names),
        (
            MachineLifetime(Market(*row[:4]), row[5], row[7], bool(row[8]))
            for row in lived
            if names is None or row[:4] in names
        ),
        nodes,
    )


def _market_names(market: Market) -> tuple[str, str, str, str]:
    return market.cloud, market.region, market.zone, market.instance_type
