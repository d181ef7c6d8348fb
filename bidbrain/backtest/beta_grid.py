"""Tabulates chances of eviction on a grid, trained once: what the papers do before they test (Harlap 4.3.1).

    d    bid deltas, dollars per hour above the price
    h    horizons, seconds

A running job queries its fitted model exactly, for its own delta and time left. A backtest asks millions of
times, so it interpolates between knots, linearly in both. The deltas that are bid and the full hour are
knots, so every request is scored exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.decision_batch import Codes, SurvivalBatch
from bidbrain.eviction.base import FittedMarkets
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S

_WITHIN_THE_HOUR_S: Final = (0, 60, 180, 300, 600, 900, 1200, 1800, 2400, 3000, HOUR_S, HOUR_S + 180)
"""The last one is the longest time that anything is held for: an hour, renewed 180 s before its end."""
_BEYOND_S: Final = tuple(hours * HOUR_S for hours in (2, 4, 8, 16, 24))
"""Serves strategies that ask how long machines last, not how an hour ends."""
HORIZONS_S: Final = _WITHIN_THE_HOUR_S + _BEYOND_S
_HIGHER: Final = (0.8, 1.6, 3.2, 6.4, 12.8, 25.6)
"""Deltas beyond those that are bid: how far a price may have fallen below an old bid."""


@dataclass(frozen=True, slots=True, eq=False)
class BetaTables:
    """Answers by market code; ages do not matter, as with price crossing."""

    deltas: Floats
    """(d,), increasing from 0."""
    horizons_s: Floats
    """(h,), increasing from 0."""
    survival: Floats
    """(m, d, h)."""
    uptime_s: Floats
    """(m, d, h)."""
    is_known: Flags
    """(m,)."""

    @classmethod
    def from_fitted(
        cls, fitted: FittedMarkets, markets: tuple[Market, ...], bid_deltas: tuple[float, ...]
    ) -> BetaTables:
        """Evaluates ``fitted`` at every knot."""
        highest = bid_deltas[-1]
        deltas = tuple(sorted({0.0, *bid_deltas, *(d for d in _HIGHER if d > highest)}))
        shape = (len(markets), len(deltas), len(HORIZONS_S))
        survival, uptime = np.zeros(shape), np.zeros(shape)
        for m, market in enumerate(markets):
            for d, delta in enumerate(deltas):
                for h, horizon_s in enumerate(HORIZONS_S):
                    survival[m, d, h] = fitted.survival(market, delta, 0.0, horizon_s)
                    uptime[m, d, h] = fitted.expected_uptime(market, delta, 0.0, horizon_s)
        known = np.array([fitted.evidence(market, HOUR_S).is_known for market in markets])
        return cls(np.array(deltas), np.array(HORIZONS_S, dtype=np.float64), survival, uptime, known)

    def survival_batch(self, markets: tuple[Market, ...]) -> SurvivalBatch:
        """Answers about the markets it was made for."""
        if len(markets) != len(self.is_known):
            raise ValueError(f"the tables are of {len(self.is_known)} markets, not of {len(markets)}")
        return self

    def known_markets(self) -> Flags:
        """Returns which markets are known, (1, m)."""
        return self.is_known[None, :]

    def select(self, rows: Codes) -> SurvivalBatch:
        """Returns itself: it was trained once and is the same at every decision point."""
        return self

    def survival_and_uptime(
        self, market: Codes, delta: Floats, age_s: Floats, horizon_s: Floats
    ) -> tuple[Floats, Floats]:
        """Interpolates (see ``decision_batch.SurvivalBatch``).

        Beyond the last knots it answers as at them.
        """
        d, across = _locate_between(self.deltas, delta)
        h, along = _locate_between(self.horizons_s, horizon_s)
        between = bool(across.any())
        answers = []
        for table in (self.survival, self.uptime_s):
            # Requests all look an hour ahead: interpolating the small table once is cheaper than each row.
            if horizon_s.size == 1:
                cut = table[:, :, h.item()] * (1 - along.item()) + table[:, :, h.item() + 1] * along.item()
                knot = market * len(self.deltas) + d
                lower, upper = cut.take(knot), cut.take(knot + 1) if between else 0.0
            else:
                knot = (market * len(self.deltas) + d) * len(self.horizons_s) + h
                beyond = knot + len(self.horizons_s)
                lower = table.take(knot) * (1 - along) + table.take(knot + 1) * along
                upper = table.take(beyond) * (1 - along) + table.take(beyond + 1) * along
            mixed = lower * (1 - across) + upper * across if between else lower
            # A bid below the price holds nothing.
            answers.append(np.where(delta < 0, 0.0, mixed))
        return answers[0], answers[1]


def _locate_between(knots: Floats, values: Floats) -> tuple[Codes, Floats]:
    """Returns the knot at or below each value, and how far towards the next one the value lies.

    The last knot is never returned. The share is in [0, 1].
    """
    below = np.clip(np.searchsorted(knots, values, side="right") - 1, 0, len(knots) - 2)
    share = (values - knots[below]) / (knots[below + 1] - knots[below])
    return below, np.clip(share, 0.0, 1.0)
