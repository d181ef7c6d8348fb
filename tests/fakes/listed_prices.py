"""Prices that a test writes down, as a source beside those that the program has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pricing_data.errors import NoSuchMarket, TraceError
from pricing_data.formats.layouts import Semantics
from pricing_data.formats.traces import Filter, Recording
from pricing_data.model.market import Market, Series
from pricing_data.model.units import Instant


@dataclass(frozen=True, slots=True)
class ListedPrices:
    """``prices``: dollars an hour by market and moment."""

    prices: Mapping[tuple[Market, Instant], float]

    def read_prices(self, only: Filter) -> Recording:
        if not self.prices:
            raise TraceError("the list", None, "no price", "at least one", "Write some down.")
        steps = sorted((market, at, price) for (market, at), price in self.prices.items() if only(market))
        if not steps:
            known = ", ".join(sorted({str(market) for market, _ in self.prices}))
            raise NoSuchMarket("the list", known)
        series = {
            market: Series(
                np.array([at for of, at, _ in steps if of == market], np.int64),
                np.array([price for of, _, price in steps if of == market]),
            )
            for market in {market for market, _, _ in steps}
        }
        first, last = (end(at for _, at, _ in steps) for end in (min, max))
        counts = (len(steps), len(steps), 0, 0, 0, 0, 0)
        return Recording("a list", Semantics.EVENT_STREAM, False, series, {}, (), *counts, first, last)
