"""Evaluates many markets' hazard curves at once, as a decision among thousands of candidates needs.

    H, S, U    cumulative hazard, survival exp(-H), and its integral, at the edges of each curve's cells
    i, j       the cells that age a and a + h lie in
    uptime     (U(a + h) - U(a)) / S(a)

U is summed once per curve, so an answer costs two look-ups whatever lies between. Where nearly everything is
lost before age a, S(a) divides a difference of nearly equal numbers: those few are computed one by one.
Curves that several markets share are kept once. Knows nothing of how the curves were learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from bidbrain.eviction.capacity.hazard import HazardCurve, MarketCurve

_LOST: Final = 12.0
"""H(a) beyond which the difference of U, good to about 1e-11 s, is no longer good enough."""


@dataclass(frozen=True, slots=True, eq=False)
class CurveSurvivals:
    """Answers about m markets at one moment, as a ``decision_batch.SurvivalBatch``."""

    curves: tuple[HazardCurve, ...]
    """Each one once."""
    curve_of: Indices
    """(m,): position in ``curves``; 0 where the market is unknown."""
    kept_s: Floats
    is_known: Flags
    edges_s: Floats
    rates: Floats
    hazard: Floats
    uptime_s: Floats
    """r, and H and U at ``edges_s``: the cells of all curves, one curve after the other."""
    first: Indices
    """Where each curve begins in these."""

    @classmethod
    def from_curves(cls, markets: Sequence[MarketCurve | None]) -> Self:
        """Collects each market's curve, None where nothing is known."""
        unknown = HazardCurve.with_constant_rate(0.0)
        found = [unknown if known is None else known.curve for known in markets]
        # By identity: markets without a record of their own share one curve object.
        curves = {id(curve): curve for curve in (unknown, *found)}
        places = {name: place for place, name in enumerate(curves)}
        every = tuple(curves.values())
        sizes = np.array([len(curve.edges_s) for curve in every])
        return cls(
            curves=every,
            curve_of=np.array([places[id(curve)] for curve in found], np.int64),
            kept_s=np.array([0.0 if known is None else known.kept_s for known in markets]),
            is_known=np.array([known is not None for known in markets], np.bool_),
            edges_s=np.concatenate([curve.edges_s for curve in every]),
            rates=np.concatenate([curve.rates for curve in every]),
            hazard=np.concatenate([curve.cumulative for curve in every]),
            uptime_s=np.concatenate([_uptime_at_edges(curve) for curve in every]),
            first=np.cumsum(sizes) - sizes,
        )

    def known_markets(self) -> Flags:
        """Returns which markets are known, (1, m)."""
        return self.is_known[None, :]

    def select(self, rows: Indices) -> CurveSurvivals:
        """Returns itself: there is only one decision point."""
        return self

    def survival_and_uptime(
        self, market: Indices, delta: Floats, age_s: Floats, horizon_s: Floats
    ) -> tuple[Floats, Floats]:
        """Returns survival and expected uptime; arguments broadcast together.

        A delta only matters if negative.
        """
        markets, deltas, ages, horizons = np.broadcast_arrays(market, delta, age_s, horizon_s)
        shape = markets.shape
        if not markets.size:
            return np.zeros(shape), np.zeros(shape)
        codes, ages, horizons = markets.ravel(), ages.ravel().astype(np.float64), horizons.ravel()
        ages = np.maximum(ages, self.kept_s[codes])
        places = self.curve_of[codes]
        before, lived_s = self._up_to(places, ages)
        after, living_s = self._up_to(places, ages + horizons)
        uptime = np.clip((living_s - lived_s) * np.exp(np.minimum(before, _LOST)), 0.0, horizons)
        # Too little survives before age a for the difference of U to be exact.
        for row in np.flatnonzero(before > _LOST):
            uptime[row] = self.curves[places[row]].expected_uptime(float(ages[row]), float(horizons[row]))
        there = self.is_known[codes] & (deltas.ravel() >= 0)
        survival = np.where(there, np.exp(before - after), 0.0)
        return survival.reshape(shape), np.where(there, uptime, 0.0).reshape(shape)

    def _up_to(self, places: Indices, ages_s: Floats) -> tuple[Floats, Floats]:
        """Returns H and U at each age of each curve."""
        cells = np.empty(len(places), np.int64)
        # Grouped by curve, so that each curve's edges are searched once for all its questions.
        order = np.argsort(places, kind="stable")
        asked, begins = np.unique(places[order], return_index=True)
        for place, mine in zip(asked, np.split(order, begins[1:]), strict=True):
            edges = self.curves[place].edges_s
            cells[mine] = self.first[place] + np.searchsorted(edges, ages_s[mine], side="right") - 1
        spent = self.rates[cells] * (ages_s - self.edges_s[cells])
        within = _uptime_within(self.rates[cells], ages_s - self.edges_s[cells])
        hazard = self.hazard[cells]
        return hazard + spent, self.uptime_s[cells] + np.exp(-hazard) * within


def _uptime_within(rates: Floats, lengths_s: Floats) -> Floats:
    """Returns the expected uptime within cells that all are alive at the begin of.

    It is (1 - e^-rx) / r; x without hazard.
    """
    return np.divide(-np.expm1(-rates * lengths_s), rates, out=lengths_s.copy(), where=rates > 0)


def _uptime_at_edges(curve: HazardCurve) -> Floats:
    """Returns U at the edges."""
    within = np.exp(-curve.cumulative[:-1]) * _uptime_within(curve.rates[:-1], np.diff(curve.edges_s))
    return np.append(0.0, np.cumsum(within))
