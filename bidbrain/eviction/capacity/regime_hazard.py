"""Estimates a hazard by age that moves with the market's recent losses: for capacity, not for bids.

    lambda(x)   hazard at age x of all markets together: exp(b + spline(log x) w), a Poisson regression over
                cells of age (``poisson.py``)
    f_k(t)      what the market's own record of the last weeks makes of it (``recent_losses.py``), for the
                young, the settled and the old, k, apart: does it lose more of them than lambda expects?
    hazard      lambda(x) f_k(x)(t)

A market that was never watched gets the average of all markets, f = 1. Its own losses then move it, the
further the more there are, and fade. On published traces (Wu et al., NSDI 2024) spells of availability are
far from memoryless, and their age says most. Further covariates (losses of the last hours, length of the last
spell, share of time available) were tried and left out: on later windows and other zones they did not help.

    m           shape of the gamma distribution that daily hazards have around the prediction, from the spread
                of daily counts O around E: Var(O) = E + E^2 / m; it gives the interval

Knows no prices: where they tell more, ``scoring.choose_estimator`` finds out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from bidbrain.eviction.base import Evidence
from bidbrain.eviction.capacity.curves import FittedCurves
from bidbrain.eviction.capacity.exposure import AGE_EDGES_S, ExposureRows, exposure_rows
from bidbrain.eviction.capacity.hazard import HazardCurve, MarketCurve, gamma_limits
from bidbrain.eviction.capacity.poisson import ridge_poisson
from bidbrain.eviction.capacity.recent_losses import LossRecord
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import HOUR_S, Instant, Seconds

_DAY_S: Final = 86400
_KNOTS_S: Final = (0.5 * HOUR_S, 2.0 * HOUR_S, 8.0 * HOUR_S)
"""Ages at which the log hazard may bend as a function of the log age."""
_CLASSES_S: Final = (0.5 * HOUR_S, 2.0 * HOUR_S)
"""Borders between young, settled and old; edges of cells."""
_LOOKBACK_S: Final = 365 * _DAY_S
"""Spells older than this are ignored."""
_STEADY: Final = 1e4
"""Shape where daily counts vary no more than by chance alone."""

_MIDDLES_S: Final[Floats] = np.append((AGE_EDGES_S[:-1] + AGE_EDGES_S[1:]) / 2, AGE_EDGES_S[-1] * 1.1)
_LOG_AGES: Final[Floats] = np.log(_MIDDLES_S)
_SPLINE: Final[Floats] = np.column_stack(
    [_LOG_AGES, *(np.maximum(_LOG_AGES - np.log(knot), 0.0) for knot in _KNOTS_S)]
)
"""(cells, 4): the log age, and by how much it exceeds each knot."""
_CLASS: Final = np.searchsorted(np.array(_CLASSES_S), _MIDDLES_S)


@dataclass(frozen=True, slots=True)
class Memory:
    """Sets how much a market's own record weighs."""

    fades_s: float = 14.0 * _DAY_S
    """tau of ``recent_losses.py``."""
    prior: float = 2.0
    """a of ``recent_losses.py``."""
    ridge: float = 5.0
    """Ridge of the regression on age."""


@dataclass(frozen=True, slots=True, eq=False)
class LearnedHazard:
    """Holds what was learned from many markets; ``MarketRecord`` applies it to one."""

    memory: Memory
    rates: Floats
    """(cells,): lambda, per second."""
    shape: float
    losses: int
    at_risk_s: float
    markets: int
    newest: Instant

    @property
    def class_curves(self) -> tuple[HazardCurve, ...]:
        """Returns lambda within each class of ages, 0 elsewhere."""
        return tuple(
            HazardCurve.from_rates(AGE_EDGES_S, np.where(here, self.rates, 0.0))
            for here in _class_masks(_CLASS)
        )

    @property
    def limits(self) -> tuple[float, float]:
        """Returns the 95 % interval of a day's hazard, as factors on the prediction."""
        return gamma_limits(self.shape)

    def describe_evidence(self, cloud: str) -> str:
        """Says in words what it is based on."""
        return f"{self.losses} in {self.markets} market{'s' if self.markets > 1 else ''} of {cloud}"

    def curve_unwatched(self, cloud: str) -> MarketCurve:
        """Returns the curve of a market in ``cloud`` that was never watched: f = 1."""
        watched_s = Seconds(self.at_risk_s)
        source = f"losses by age: none watched here, {self.describe_evidence(cloud)}"
        evidence = Evidence(watched_s, watched_s, source, self.newest)
        return MarketCurve(HazardCurve.from_rates(AGE_EDGES_S, self.rates), self.limits, evidence)


@dataclass(frozen=True, slots=True, eq=False)
class MarketRecord:
    """Applies a learned hazard to one market's record: at any instant it uses only what was known then."""

    learned: LearnedHazard
    by_class: tuple[LossRecord, ...]

    @classmethod
    def from_rows(cls, learned: LearnedHazard, rows: ExposureRows) -> MarketRecord:
        """Records ``rows`` of that market alone."""
        return cls(learned, _class_records(rows, learned.rates[rows.cell], learned.memory))

    def factors_at(self, moments: Floats) -> Floats:
        """Returns f of each class of ages, shape (classes, m)."""
        prior = self.learned.memory.prior
        return np.stack([record.factor_at(moments, prior) for record in self.by_class])

    def curve_at(self, now: Instant) -> HazardCurve:
        """Returns the hazard by age, as of ``now``."""
        factors = self.factors_at(np.array([float(now)]))[:, 0]
        return HazardCurve.from_rates(AGE_EDGES_S, self.learned.rates * factors[_CLASS])

    def hazards_at(self, moments: Floats, ages_s: Floats, horizon_s: float | Floats) -> Floats:
        """Returns the cumulative hazard of the next ``horizon_s`` at moments and ages, shape (m,).

        ``horizon_s`` is one number, or as many as there are moments.
        """
        parts = np.stack([curve.hazards_between(ages_s, horizon_s) for curve in self.learned.class_curves])
        return np.asarray(np.sum(parts * self.factors_at(moments), axis=0))


def learn_hazard(observations: Observations, now: Instant, memory: Memory) -> LearnedHazard | None:
    """Learns the hazard of all markets together, as known at ``now``; None where nothing was ever lost."""
    rows = exposure_rows(_recent_spells(observations.as_of(now), now))
    losses, at_risk_s = rows.lost.astype(np.float64), rows.at_risk_s
    if losses.sum() == 0 or at_risk_s.sum() == 0:
        return None
    rates = ridge_poisson(_SPLINE[rows.cell], losses, at_risk_s, memory.ridge).predict_rates(_SPLINE)
    # The spread is measured against predictions that already follow each market's record.
    expected = rates[rows.cell] * at_risk_s * _own_factors(rows, rates, memory)
    return LearnedHazard(
        memory=memory,
        rates=rates,
        shape=_daily_shape(rows, expected),
        losses=int(losses.sum()),
        at_risk_s=float(at_risk_s.sum()),
        markets=len(np.unique(rows.market)),
        newest=Instant(int(rows.ends.max())),
    )


def _class_masks(ages: Indices) -> list[Flags]:
    """Returns which of ``ages`` (class codes) are in each class."""
    return [ages == k for k in range(len(_CLASSES_S) + 1)]


def _class_records(rows: ExposureRows, rates: Floats, memory: Memory) -> tuple[LossRecord, ...]:
    """Returns the record of each class of ages; ``rates`` are those expected in each row."""
    classes = _class_masks(_CLASS[rows.cell])
    return tuple(LossRecord.from_rows(rows.select(here), rates[here], memory.fades_s) for here in classes)


def _own_factors(rows: ExposureRows, rates: Floats, memory: Memory) -> Floats:
    """Returns f of each row at its begin, each market by its own record."""
    factors = np.ones(len(rows.cell))
    for market in np.unique(rows.market):
        place = np.flatnonzero(rows.market == market)
        mine = rows.select(rows.market == market)
        records = _class_records(mine, rates[mine.cell], memory)
        for record, here in zip(records, _class_masks(_CLASS[mine.cell]), strict=True):
            factors[place[here]] = record.factor_at(mine.begins[here], memory.prior)
    return factors


def _daily_shape(rows: ExposureRows, expected: Floats) -> float:
    """Estimates m by the method of moments, over the days of each market."""
    days = np.stack([rows.market, rows.begins.astype(np.int64) // _DAY_S])
    _, day = np.unique(days, axis=1, return_inverse=True)
    counted = np.bincount(day, weights=rows.lost.astype(np.float64))
    awaited = np.bincount(day, weights=expected)
    spread = float(np.sum((counted - awaited) ** 2 - awaited))
    return min(float(np.sum(awaited**2)) / spread, _STEADY) if spread > 0 else _STEADY


def _recent_spells(observations: Observations, now: Instant) -> Observations:
    kept = {}
    for market in observations.markets:
        spells = observations.spells(market)
        late = spells.ends > now - _LOOKBACK_S
        kept[market] = Spells(spells.begins[late], spells.ends[late], spells.lost[late])
    return Observations.from_spells(kept)


@dataclass(frozen=True, slots=True)
class RegimeHazard:
    """Configures the estimator: all known spells; a fit sees those before its now.

    ``learned`` replaces learning at the fit, where it was done before, on other markets. Markets of a cloud
    share what is learned; a cloud in which fewer than ``least_losses`` were seen stays unknown.
    """

    observations: Observations
    memory: Memory = field(default_factory=Memory)
    learned: LearnedHazard | None = None
    least_losses: int = 20
    _daily: dict[tuple[str, int], LearnedHazard | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    def fit(self, history: PriceHistory, now: Instant) -> FittedCurves:
        """Learns from the spells as known at ``now``; ignores prices.

        Markets' records are as of ``now``; what all markets have in common is learned once a day.
        """
        known = self.observations.as_of(now)
        clouds = {market.cloud for market in known.markets}
        learned = {cloud: self.learned or self._learn_daily(known, cloud, now) for cloud in clouds}
        unseen = {
            cloud: found.curve_unwatched(cloud) for cloud, found in learned.items() if found is not None
        }

        def fit_curve(market: Market) -> MarketCurve | None:
            found = learned.get(market.cloud)
            if found is None or not len(known.spells(market)):
                return unseen.get(market.cloud)
            return _market_curve(found, known.spells(market), market, now)

        return FittedCurves(fit_curve)

    def _learn_daily(self, known: Observations, cloud: str, now: Instant) -> LearnedHazard | None:
        """Learns as of the last midnight; as of now, where too little was known by then."""
        midnight = now - now % _DAY_S
        # Learned as of midnight: all fits of a day share it, and so does a replay.
        if (cloud, midnight) not in self._daily:
            self._daily[cloud, midnight] = self._learn_if_enough(known, cloud, Instant(midnight))
        return self._daily[cloud, midnight] or self._learn_if_enough(known, cloud, now)

    def _learn_if_enough(self, known: Observations, cloud: str, now: Instant) -> LearnedHazard | None:
        found = learn_hazard(_of_cloud(known, cloud), now, self.memory)
        return found if found is not None and found.losses >= self.least_losses else None


def _of_cloud(observations: Observations, cloud: str) -> Observations:
    return Observations.from_spells(
        {m: observations.spells(m) for m in observations.markets if m.cloud == cloud}
    )


def _market_curve(learned: LearnedHazard, spells: Spells, market: Market, now: Instant) -> MarketCurve:
    """Returns the curve of a market that was watched."""
    rows = exposure_rows(_recent_spells(Observations.from_spells({market: spells}), now))
    losses = int(np.count_nonzero(rows.lost))
    span_s = float(now - spells.begins[0])
    return MarketCurve(
        MarketRecord.from_rows(learned, rows).curve_at(now),
        learned.limits,
        Evidence(
            Seconds(span_s),
            Seconds(min(float(rows.at_risk_s.sum()), span_s)),
            f"losses by age and of late: {losses} seen here, {learned.describe_evidence(market.cloud)}",
            Instant(int(spells.ends.max())),
        ),
        kept_s=spells.kept_s(now),
    )
