"""Decides refusals and evictions of a backtest by when markets had machines to give, as observed.

``spotctl.providers.simulated`` reads the same spells for one machine; a test of one job on both compares
them. These spells include the future; strategies never see them.
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
class CapacityTape:
    """Holds spells by market code; a market without spells always has capacity."""

    spells: tuple[Spells, ...]

    @classmethod
    def from_observations(cls, observations: Observations, markets: tuple[Market, ...]) -> CapacityTape:
        return cls(tuple(observations.spells(market) for market in markets))

    def has_capacity(self, market: Codes, at: Codes) -> Flags:
        """Returns, (k,), whether a machine was available."""
        found = np.ones(len(market), np.bool_)
        for spells, mine in self._by_market(market):
            found[mine] = _has_capacity(spells, at[mine])
        return found

    def taken_at(self, market: Codes, since: Codes) -> Codes:
        """Returns, (k,), when machines held at ``since`` are taken for lack of capacity.

        ``NEVER`` where they are not.
        """
        found = np.full(len(market), NEVER)
        for spells, mine in self._by_market(market):
            found[mine] = _taken_at(spells, since[mine])
        return found

    def _by_market(self, market: Codes) -> Iterator[tuple[Spells, Flags]]:
        """Yields the spells of each market that was watched, and a mask of its rows."""
        for code in np.unique(market):
            if len(self.spells[code]):
                yield self.spells[code], market == code


def _has_capacity(spells: Spells, at: Codes) -> Flags:
    current = np.searchsorted(spells.begins, at, side="right") - 1
    place = np.maximum(current, 0)
    # A spell that ended without a loss ended because nobody watched any more: machines were still there.
    there: Flags = (current >= 0) & ((at < spells.ends[place]) | ~spells.lost[place])
    return there


def _taken_at(spells: Spells, since: Codes) -> Codes:
    current = np.searchsorted(spells.begins, since, side="right") - 1
    place = np.maximum(current, 0)
    ends = (current >= 0) & (since < spells.ends[place]) & spells.lost[place]
    return np.where(ends, spells.ends[place], NEVER)
