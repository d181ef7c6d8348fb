"""Lays price series end to end, so that a thousand jobs read a thousand moments at once.

    m       markets, by code
    i       a step: position in the arrays, over all markets
    p_i     its price; the step that ends each market's series is infinite in time and price

The last step's sentinel makes "the first price above" exist always, and lets one sparse table of maxima serve
all markets: no leap can pass it. A tape includes the future; strategies never see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Floats
from bidbrain.backtest.capacity import NEVER as NEVER
from bidbrain.backtest.capacity import CapacityTape
from bidbrain.bidding.decision_batch import Codes
from bidbrain.eviction.price.range_maximum import first_above, sparse_table
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import Instant

UNLIMITED: Final = Observations()
"""Stands for markets that always have capacity."""
_BUCKET_S: Final = 300
"""Width of the buckets of ``PriceTape.first``: about as long as a price lasts."""


@dataclass(frozen=True, slots=True, eq=False)
class PriceTape:
    """Holds the steps of all markets; made by ``from_history``."""

    begin: int
    end: int
    """The last moment with known prices."""
    times: Codes
    prices: Floats
    first: npt.NDArray[np.int64]
    """(buckets, m): the step in force when the bucket begins."""
    maxima: tuple[Floats, ...]
    """``maxima[k][i]`` is the highest of the 2**k prices from i on."""
    capacity: CapacityTape

    @classmethod
    def from_history(
        cls,
        history: PriceHistory,
        markets: tuple[Market, ...],
        begin: Instant,
        end: Instant,
        capacity: Observations = UNLIMITED,
    ) -> PriceTape:
        """Takes the prices of ``markets`` from ``begin`` to ``end``, the one in force at ``begin`` included.

        ``capacity``: when they had machines to give; a market without spells always had.

        Raises ValueError for a market without a price before ``end``, or an empty window.
        """
        if end <= begin:
            raise ValueError(f"a window from {begin} to {end} holds nothing")
        times, prices, first = [], [], []
        edges, offset = np.arange(begin, end + _BUCKET_S, _BUCKET_S), 0
        for market in markets:
            known = history.series(market)
            # The price in force at the window's begin may have been set long before it.
            low = max(int(np.searchsorted(known.times, begin, side="right")) - 1, 0)
            high = int(np.searchsorted(known.times, end, side="right"))
            if high <= low:
                raise ValueError(f"{market} has no price before {end}: leave it out of the window")
            steps, values = known.times[low:high], known.prices[low:high]
            if steps[0] > begin:  # not traded yet
                steps, values = np.append(begin, steps), np.append(np.nan, values)
            times.append(np.append(steps, NEVER))
            prices.append(np.append(values, np.inf))
            first.append(offset + np.searchsorted(steps, edges, side="right") - 1)
            offset += len(steps) + 1
        flat = np.concatenate(prices)
        return cls(
            int(begin),
            int(end),
            np.concatenate(times),
            flat,
            np.stack(first, axis=1),
            _maxima_table(flat),
            CapacityTape.from_observations(capacity, markets),
        )

    def step_at(self, market: Codes, moment: Codes) -> Codes:
        """Returns the step in force.

        Arguments broadcast, and moments lie in the window (its end, if later).
        """
        bounded = np.minimum(moment, self.end)
        found = self.first[(bounded - self.begin) // _BUCKET_S, market]
        bounded = np.broadcast_to(bounded, found.shape)
        # The bucket's first step may have been followed by others within it: a few passes find the last.
        while (late := self.times[found + 1] <= bounded).any():
            found = found + late
        step: Codes = found
        return step

    def price_at(self, market: Codes, moment: Codes) -> Floats:
        """Returns the price in force at ``moment``; NaN where the market is not traded yet."""
        return self.prices[self.step_at(market, moment)]

    def first_above(self, market: Codes, since: Codes, level: Floats) -> Codes:
        """Returns when the price first exceeds ``level`` after ``since``, each (k,).

        ``NEVER`` where it does not.
        """
        ahead = first_above(self.maxima, self.step_at(market, since) + 1, level, len(self.maxima))
        found: Codes = self.times[ahead]
        return found


def _maxima_table(prices: Floats) -> tuple[Floats, ...]:
    """Returns the sparse table; where a price is not known it evicts nobody."""
    longest = int(np.diff(np.flatnonzero(np.isinf(prices)), prepend=-1).max())
    return tuple(sparse_table(np.where(np.isnan(prices), -np.inf, prices), longest))
