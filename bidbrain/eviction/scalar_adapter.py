"""Adapts a scalar eviction model to arrays: asks one question at a time, and caches whole grids of answers.

A running job asks the same grid at every decision: every market, at every bid delta, for an hour. The answers
stay the same until the model is fitted again. Independent of the model.
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
"""Fewest questions to cache together: held machines need fewer, and their ages change every time."""

_Questions: TypeAlias = tuple[tuple[tuple[int, ...], bytes], ...]
"""Shapes and bytes of the argument arrays: the key of the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class ScalarAdapter:
    """Answers about ``markets`` at one moment, as a ``decision_batch.SurvivalBatch``."""

    evictions: FittedMarkets
    markets: tuple[Market, ...]
    # A list of at most one: the dataclass is frozen, its list is not.
    _known: list[Flags] = field(default_factory=list, repr=False)
    _grids: dict[_Questions, tuple[Floats, Floats]] = field(default_factory=dict, repr=False)

    def known_markets(self) -> Flags:
        """Returns, (1, m), which markets are known."""
        if not self._known:
            known = [self.evictions.evidence(market, HOUR_S).is_known for market in self.markets]
            self._known.append(np.array([known], np.bool_))
        return self._known[0]

    def select(self, rows: Indices) -> ScalarAdapter:
        """Returns itself: there is only one decision point."""
        return self

    def survival_and_uptime(
        self, market: Indices, delta: Floats, age_s: Floats, horizon_s: Floats
    ) -> tuple[Floats, Floats]:
        """Returns survival and expected uptime in seconds; arguments broadcast together."""
        # np.broadcast iterates without building the full arrays of arguments.
        asked = np.broadcast(market, delta, age_s, horizon_s)
        if asked.size < _GRID:
            return self._ask_each(asked)
        questions = tuple((part.shape, part.tobytes()) for part in (market, delta, age_s, horizon_s))
        if questions not in self._grids:
            self._grids[questions] = self._ask_each(asked)
        survival, uptime_s = self._grids[questions]
        # Copies, because callers write into the arrays they get.
        return survival.copy(), uptime_s.copy()

    def _ask_each(self, asked: np.broadcast) -> tuple[Floats, Floats]:
        answers = np.array([self._ask_one(*question) for question in asked]).reshape(-1, 2)
        return answers[:, 0].reshape(asked.shape), answers[:, 1].reshape(asked.shape)

    def _ask_one(self, code: int, delta: float, age_s: float, horizon_s: float) -> tuple[float, float]:
        question = self.markets[int(code)], float(delta), float(age_s), float(horizon_s)
        return self.evictions.survival(*question), self.evictions.expected_uptime(*question)
