"""Fitted markets asked one by one, where they can no other way, and not twice for the same.

A running job weighs the same requests at every decision: every market, at every bid delta, for an hour. What
was fitted answers the same until it is fitted again, so whole grids of answers are kept. Refuses to know what
was fitted, and how.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from bidbrain.eviction.base import FittedMarkets
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S

_GRID: Final = 16
"""Questions put together that are worth remembering: what is held is asked about in fewer, seldom again."""

_Questions: TypeAlias = tuple[tuple[tuple[int, ...], bytes], ...]
"""Shapes and values of the arrays that were asked with."""


@dataclass(frozen=True, slots=True, eq=False)
class ScalarAdapter:
    """Answers about ``markets`` at one moment. See ``decision_batch.Chances``, whose form this has."""

    evictions: FittedMarkets
    markets: tuple[Market, ...]
    _known: list[Flags] = field(default_factory=list, repr=False)
    _grids: dict[_Questions, tuple[Floats, Floats]] = field(default_factory=dict, repr=False)

    def known_markets(self) -> Flags:
        """(1, m)."""
        if not self._known:
            known = [self.evictions.evidence(market, HOUR_S).is_known for market in self.markets]
            self._known.append(np.array([known], np.bool_))
        return self._known[0]

    def select(self, rows: Indices) -> ScalarAdapter:
        """There is but one decision point."""
        return self

    def survival_and_uptime(
        self, market: Indices, delta: Floats, age_s: Floats, horizon_s: Floats
    ) -> tuple[Floats, Floats]:
        """Survival and expected uptime; arguments broadcast together."""
        asked = np.broadcast(market, delta, age_s, horizon_s)
        if asked.size < _GRID:
            return self._ask_each(asked)
        questions = tuple((part.shape, part.tobytes()) for part in (market, delta, age_s, horizon_s))
        if questions not in self._grids:
            self._grids[questions] = self._ask_each(asked)
        survival, uptime_s = self._grids[questions]
        return survival.copy(), uptime_s.copy()

    def _ask_each(self, asked: np.broadcast) -> tuple[Floats, Floats]:
        answers = np.array([self._ask_one(*question) for question in asked]).reshape(-1, 2)
        return answers[:, 0].reshape(asked.shape), answers[:, 1].reshape(asked.shape)

    def _ask_one(self, code: int, delta: float, age_s: float, horizon_s: float) -> tuple[float, float]:
        question = self.markets[int(code)], float(delta), float(age_s), float(horizon_s)
        return self.evictions.survival(*question), self.evictions.expected_uptime(*question)
