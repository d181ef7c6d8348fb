"""A hazard by age that moves with how the market did of late: the estimator for capacity, not for bids.

    lambda(c)   hazard in cell c of age, of all markets together
    f(t)        record of the last days (``record.py``): did the market lose more than its ages say?
    g_k(t)      the same for ages of class k alone, remembered for weeks: is it the young or the old it loses?
    hazard      exp(b + spline(log age) w + f(t) u + g_k(age)(t) v)

Fitted in two steps: lambda from ages alone, which the records are measured against; then the whole, as one
Poisson regression over cells of age (``poisson.py``). A market that nobody has seen has f = g = 0 and gets
what markets do on average; its own losses then move it, the further the more there are. On published traces
(Wu et al., NSDI 2024) spells of availability are far from memoryless, and their age says most.

    k           shape of the gamma distribution that daily hazards have around the prediction, from the spread
                of daily counts O around E: Var(O) = E + E^2 / k; it gives the interval

Refuses to know prices: where they told more, ``scoring.choose`` would find out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bidbrain.eviction.base import Evidence
from bidbrain.eviction.curves import FittedCurves, MarketCurve
from bidbrain.eviction.exposure import AGE_EDGES_S, Rows, rows_of
from bidbrain.eviction.hazard import Floats, HazardCurve, gamma_limits
from bidbrain.eviction.poisson import LogLinear, ridge_poisson
from bidbrain.eviction.record import Record
from pricing_data.market import Market, PriceHistory
from pricing_data.spells import Observations, Spells
from pricing_data.units import HOUR_S, Instant, Seconds

_DAY_S: Final = 86400
_KNOTS_S: Final = (0.5 * HOUR_S, 2.0 * HOUR_S, 8.0 * HOUR_S)
"""Ages at which the log hazard may bend as a function of the log age."""
_CLASSES_S: Final = (0.5 * HOUR_S, 2.0 * HOUR_S)
"""Borders between young, settled and old; edges of cells."""
_LOOKBACK_S: Final = 365 * _DAY_S
"""Older spells are not learned from."""
_STEADY: Final = 1e4
"""Shape where daily counts vary no more than chance alone would make them."""

_MIDDLES_S: Final[Floats] = np.append((AGE_EDGES_S[:-1] + AGE_EDGES_S[1:]) / 2, AGE_EDGES_S[-1] * 1.1)
_LOG_AGES: Final[Floats] = np.log(_MIDDLES_S)
_SPLINE: Final[Floats] = np.column_stack(
    [_LOG_AGES, *(np.maximum(_LOG_AGES - np.log(knot), 0.0) for knot in _KNOTS_S)]
)
"""(cells, 4): the log age, and what it exceeds each knot by."""
_CLASS: Final = np.searchsorted(np.array(_CLASSES_S), _MIDDLES_S)


@dataclass(frozen=True, slots=True)
class Memory:
    """What a market's own record weighs."""

    recent_s: float = 48.0 * HOUR_S
    by_age_s: float = 14.0 * _DAY_S
    prior: float = 1.0
    """a: losses that the record is measured with before there are any."""
    ridge: float = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class LearnedHazard:
    """What was learned from many markets; ``MarketRecord`` applies it to one."""

    memory: Memory
    by_age: Floats
    """(cells,): lambda, per second."""
    curves: tuple[HazardCurve, ...]
    """One for each class of ages, 0 elsewhere: the hazard of a market with f = g = 0."""
    recent_weight: float
    by_age_weight: float
    shape: float
    losses: int
    at_risk_s: float
    markets: int

    @property
    def limits(self) -> tuple[float, float]:
        """95 % interval of a day's hazard, as factors on the prediction."""
        return gamma_limits(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class MarketRecord:
    """One market's record against a learned hazard: asked at an instant, it uses what was known then."""

    learned: LearnedHazard
    recent: Record
    by_class: tuple[Record, ...]

    @classmethod
    def of(cls, learned: LearnedHazard, rows: Rows) -> MarketRecord:
        """``rows`` of that market alone."""
        rates, memory = learned.by_age[rows.cell], learned.memory
        recent, *by_class = _records(rows, rates, memory)
        return cls(learned, recent, tuple(by_class))

    def factors(self, moments: Floats) -> Floats:
        """What multiplies the hazard of each class of ages, shape (classes, m)."""
        prior = self.learned.memory.prior
        recent = self.learned.recent_weight * self.recent.factor(moments, prior)
        own = [self.learned.by_age_weight * record.factor(moments, prior) for record in self.by_class]
        return np.asarray(np.exp(recent + np.stack(own)))

    def curve(self, now: Instant) -> HazardCurve:
        """The hazard by age, as of ``now``."""
        factors = self.factors(np.array([float(now)]))[:, 0]
        rates = sum(curve.rates * factor for curve, factor in zip(self.learned.curves, factors, strict=True))
        return HazardCurve.of(AGE_EDGES_S, rates)

    def hazards(self, moments: Floats, ages_s: Floats, horizon_s: float) -> Floats:
        """Cumulative hazard of the next ``horizon_s`` at each moment and age, shape (m,)."""
        parts = np.stack([curve.betweens(ages_s, horizon_s) for curve in self.learned.curves])
        return np.asarray(np.sum(parts * self.factors(moments), axis=0))


def learn(observations: Observations, now: Instant, memory: Memory) -> LearnedHazard | None:
    """The hazard of all markets together, as known at ``now``; None where nothing was ever lost."""
    rows = rows_of(_lately(observations.as_of(now), now))
    losses = rows.lost.astype(np.float64)
    if losses.sum() == 0 or rows.at_risk_s.sum() == 0:
        return None
    plain = ridge_poisson(_SPLINE[rows.cell], losses, rows.at_risk_s, memory.ridge)
    by_age = plain.rates(_SPLINE)
    factors = _own_factors(rows, by_age, memory)
    fitted = ridge_poisson(
        np.column_stack([_SPLINE[rows.cell], factors]), losses, rows.at_risk_s, memory.ridge
    )
    spline, (recent, own) = fitted.weights[:-2], fitted.weights[-2:]
    average = LogLinear(fitted.intercept, spline).rates(_SPLINE)
    expected = average[rows.cell] * np.exp(factors @ fitted.weights[-2:]) * rows.at_risk_s
    return LearnedHazard(
        memory=memory,
        by_age=by_age,
        curves=tuple(
            HazardCurve.of(AGE_EDGES_S, np.where(k == _CLASS, average, 0.0))
            for k in range(len(_CLASSES_S) + 1)
        ),
        recent_weight=float(recent),
        by_age_weight=float(own),
        shape=_daily_shape(rows, expected),
        losses=int(losses.sum()),
        at_risk_s=float(rows.at_risk_s.sum()),
        markets=len(np.unique(rows.market)),
    )


def _records(rows: Rows, rates: Floats, memory: Memory) -> tuple[Record, ...]:
    """The record of the last days over all ages, then that of each class of ages."""
    ages = _CLASS[rows.cell]
    classes = [
        Record.of(_only(rows, ages == k), rates[ages == k], memory.by_age_s)
        for k in range(len(_CLASSES_S) + 1)
    ]
    return (Record.of(rows, rates, memory.recent_s), *classes)


def _only(rows: Rows, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Rows:
    return Rows(rows.market[mask], rows.cell[mask], rows.begins[mask], rows.ends[mask], rows.lost[mask])


def _own_factors(rows: Rows, by_age: Floats, memory: Memory) -> Floats:
    """f and g of each row at its begin, shape (n, 2), each market by its own record."""
    factors = np.zeros((len(rows.cell), 2))
    for market in np.unique(rows.market):
        place = np.flatnonzero(rows.market == market)
        mine = rows.of(int(market))
        recent, *by_class = _records(mine, by_age[mine.cell], memory)
        factors[place, 0] = recent.factor(mine.begins, memory.prior)
        for k, record in enumerate(by_class):
            here = _CLASS[mine.cell] == k
            factors[place[here], 1] = record.factor(mine.begins[here], memory.prior)
    return factors


def _daily_shape(rows: Rows, expected: Floats) -> float:
    """k by the method of moments, over the days of each market."""
    _, day = np.unique(
        np.stack([rows.market, rows.begins.astype(np.int64) // _DAY_S]), axis=1, return_inverse=True
    )
    counted = np.bincount(day, weights=rows.lost.astype(np.float64))
    awaited = np.bincount(day, weights=expected)
    spread = float(np.sum((counted - awaited) ** 2 - awaited))
    return min(float(np.sum(awaited**2)) / spread, _STEADY) if spread > 0 else _STEADY


def _lately(observations: Observations, now: Instant) -> Observations:
    kept = {}
    for market in observations.markets:
        spells = observations.spells(market)
        late = spells.ends > now - _LOOKBACK_S
        kept[market] = Spells(spells.begins[late], spells.ends[late], spells.lost[late])
    return Observations.of(kept)


@dataclass(frozen=True, slots=True)
class Conditioned:
    """The estimator: configuration, and all spells there are; a fit sees those before its now.

    ``learned`` replaces learning at the fit, where it was done before, on other markets. Markets of a cloud
    share what is learned; a cloud of which nothing was seen stays unknown.
    """

    observations: Observations
    memory: Memory = field(default_factory=Memory)
    learned: LearnedHazard | None = None
    _daily: dict[tuple[str, int], LearnedHazard | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    def fit(self, history: PriceHistory, now: Instant) -> FittedCurves:
        """Learn from the spells as known at ``now``; prices are not looked at.

        Markets' records are of ``now``; what all markets have in common is learned once a day.
        """
        known = self.observations.as_of(now)
        clouds = {market.cloud for market in known.markets}
        learned = {cloud: self.learned or self._learned(known, cloud, now) for cloud in clouds}
        return FittedCurves(lambda market: _market_curve(learned.get(market.cloud), known, market, now))

    def _learned(self, known: Observations, cloud: str, now: Instant) -> LearnedHazard | None:
        """As of the last midnight; as of now, where nothing was known by then."""
        midnight = now - now % _DAY_S
        if (cloud, midnight) not in self._daily:
            self._daily[cloud, midnight] = learn(_of_cloud(known, cloud), Instant(midnight), self.memory)
        return self._daily[cloud, midnight] or learn(_of_cloud(known, cloud), now, self.memory)


def _of_cloud(observations: Observations, cloud: str) -> Observations:
    return Observations.of({m: observations.spells(m) for m in observations.markets if m.cloud == cloud})


def _market_curve(
    learned: LearnedHazard | None, known: Observations, market: Market, now: Instant
) -> MarketCurve | None:
    if learned is None:
        return None
    spells = known.spells(market)
    rows = rows_of(_lately(Observations.of({market: spells}), now))
    losses = int(np.count_nonzero(rows.lost))
    source = (
        f"losses by age and of late: {losses} seen here, {learned.losses} in "
        f"{learned.markets} market{'s' if learned.markets > 1 else ''} of {market.cloud}"
    )
    newest = Instant(int(spells.ends.max())) if len(spells) else None
    span_s = float(now - spells.begins[0]) if len(spells) else learned.at_risk_s
    used_s = float(rows.at_risk_s.sum()) if len(spells) else learned.at_risk_s
    return MarketCurve(
        MarketRecord.of(learned, rows).curve(now),
        learned.limits,
        Evidence(Seconds(span_s), Seconds(min(used_s, span_s)), source, newest),
        kept_s=spells.kept_s(now),
    )
