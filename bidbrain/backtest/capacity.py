"""When markets had machines to give, as somebody watched: refusals and evictions of a backtest.

As ``spotctl.providers.simulated`` reads the same spells for one machine; a test of one job on both holds them
together. Whoever has these knows the future; strategies never see them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Flags
from bidbrain.bidding.decision_batch import Codes
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market

NEVER = np.int64(2**62)
"""Later than everything."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Spells by market code; a market without spells has capacity always."""

    spells: tuple[Spells, ...]

    @classmethod
    def of(cls, observations: Observations, markets: tuple[Market, ...]) -> Capacity:
        return cls(tuple(observations.spells(market) for market in markets))

    def there(self, market: Codes, at: Codes) -> Flags:
        """(k,): whether a machine could be had."""
        found = np.ones(len(market), np.bool_)
        for spells, mine in self._by_market(market):
            found[mine] = _there(spells, at[mine])
        return found

    def taken(self, market: Codes, since: Codes) -> Codes:
        """(k,): when machines had at ``since`` are taken for want of capacity; ``NEVER`` where not."""
        found = np.full(len(market), NEVER)
        for spells, mine in self._by_market(market):
            found[mine] = _taken(spells, since[mine])
        return found

    def _by_market(self, market: Codes) -> Iterator[tuple[Spells, Flags]]:
        """The spells of each market that was watched, and where it is asked for."""
        for code in np.unique(market):
            if len(self.spells[code]):
                yield self.spells[code], market == code


def _there(spells: Spells, at: Codes) -> Flags:
    current = np.searchsorted(spells.begins, at, side="right") - 1
    place = np.maximum(current, 0)
    there: Flags = (current >= 0) & ((at < spells.ends[place]) | ~spells.lost[place])
    return there


def _taken(spells: Spells, since: Codes) -> Codes:
    current = np.searchsorted(spells.begins, since, side="right") - 1
    place = np.maximum(current, 0)
    ends = (current >= 0) & (since < spells.ends[place]) & spells.lost[place]
    return np.where(ends, spells.ends[place], NEVER)
