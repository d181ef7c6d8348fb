"""Decides which of several sources about one market is believed when.

This is a rule for reading: nothing is discarded for it, and it depends on what the sources say, never on
which came first. A source that says when prices changed goes before one that polled; exact times go before
approximate ones; then the source with more rows; then the name. A source is silent where it has no rows:
before its first one, after its last one and, where it is an event stream of AWS's, from any row that is
followed by none for two days. AWS repeats every price about daily, at auction as today, however flat it is.
The other clouds' event streams are price lists: what they said holds until they say something else. The next
source counts only where the one before it is silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import Ints, Mask
from pricing_data.model.market import Prices, Times
from pricing_data.model.units import HOUR_S

SILENCE_S: Final = 48 * HOUR_S
"""AWS repeats a price about daily; where two days go by without a row, the record has a hole."""
REPEATING_CLOUD: Final = "aws"
"""The cloud whose event streams repeat each price about daily, so that silence means something."""


@dataclass(frozen=True, slots=True, eq=False)
class SourceClaim:
    """Holds what one source says of one market; ``prices`` are NaN where it was no longer listed."""

    source: str
    semantics: Semantics
    approximate: bool
    times: Times
    prices: Prices
    repeats: bool = True
    """Whether it would have repeated an unchanged price, were it an event stream."""

    @property
    def source_rank(self) -> tuple[bool, bool, int, str]:
        return rank_source(self.source, self.semantics, self.approximate, len(self.times))

    def covered_times(self, times: Times) -> Mask:
        """Returns which of ``times`` lie where this source is not silent."""
        begins = np.ones(len(self.times), np.bool_)
        if self.semantics is Semantics.EVENT_STREAM and self.repeats:
            # A row after two days of silence begins a new stretch; the time between is nobody's.
            begins[1:] = np.diff(self.times) > SILENCE_S
        else:
            begins[1:] = False
        first = self.times[begins]
        last = self.times[np.append(begins[1:], True)]
        # The stretch that begins at or before each time; -1 lies before the first.
        index = np.searchsorted(first, times, side="right") - 1
        return np.asarray((index >= 0) & (times <= last[np.maximum(index, 0)]))


def rank_source(
    source: str, semantics: Semantics, approximate: bool, rows: int
) -> tuple[bool, bool, int, str]:
    """Returns a key that sorts the source to be believed first."""
    return semantics is Semantics.POLLED, approximate, -rows, source


@dataclass(frozen=True, slots=True, eq=False)
class MergedSeries:
    """Holds the rows that are believed, in order of time, and which of the claims each is from."""

    claims: tuple[SourceClaim, ...]
    """Sorted by rank."""
    times: Times
    prices: Prices
    by: Ints


def merge_claims(claims: Sequence[SourceClaim]) -> MergedSeries:
    """Merges several claims about a market into one series; none of the claims is without rows."""
    ranked = tuple(sorted(claims, key=lambda claim: claim.source_rank))
    kept = []
    for place, claim in enumerate(ranked):
        mine = np.ones(len(claim.times), np.bool_)
        for better in ranked[:place]:
            # A better source silences this one wherever it speaks.
            mine &= ~better.covered_times(claim.times)
        kept.append(mine)
    times = np.concatenate([claim.times[mine] for claim, mine in zip(ranked, kept, strict=True)])
    prices = np.concatenate([claim.prices[mine] for claim, mine in zip(ranked, kept, strict=True)])
    by = np.repeat(np.arange(len(ranked)), [int(mine.sum()) for mine in kept])
    # Stable: of rows at one moment the better source's comes first.
    order = np.argsort(times, kind="stable")
    return MergedSeries(ranked, times[order], prices[order], by[order])


def drop_repeats(times: Times, prices: Prices) -> tuple[Times, Prices]:
    """Drops the rows that repeat the price before, and those that say the market was no longer listed."""
    if len(times) == 0:
        return times, prices
    gone = np.isnan(prices)
    changed = np.ones(len(times), np.bool_)
    # NaN differs from itself, so two delisted rows in a row need the second condition.
    changed[1:] = (prices[1:] != prices[:-1]) & ~(gone[1:] & gone[:-1])
    kept = changed & ~gone
    return times[kept], prices[kept]
