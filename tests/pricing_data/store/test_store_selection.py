"""Some of the markets of a large month, read at once, are what each of them is when read alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pricing_data.formats.batches import Batch
from pricing_data.formats.layouts import Semantics
from pricing_data.model.market import Market
from pricing_data.model.units import parse_instant
from pricing_data.store.store import PriceStore


def test_many_markets_at_once_keep_their_rows_in_order(tmp_path: Path) -> None:
    """A condition on many names is a join to DuckDB, and a join may return rows in any order."""
    markets = tuple(
        Market("aws", "us-east-1", f"us-east-1{z}", f"m{n}.xlarge") for n in range(40) for z in "abc"
    )
    each = 500
    start, rng = parse_instant("2016-05-01"), np.random.default_rng(1)
    codes = np.repeat(np.arange(len(markets)), each)
    times = start + np.tile(np.arange(each), len(markets)) * 7000
    prices = np.round(rng.uniform(0.01, 0.05, len(codes)), 4)
    store = PriceStore(tmp_path / "prices")
    store.add_prices(Batch("test", Semantics.EVENT_STREAM, markets, codes, times, prices, times))
    some = markets[::2]
    for _ in range(3):
        history = store.history(some)
        assert history.markets == tuple(sorted(some))
        for market in some[::6]:
            alone = store.series(market)
            together = history.series(market)
            assert np.array_equal(together.times, alone.times)
            assert np.array_equal(together.prices, alone.prices)
