"""Pools partially: a market with little data borrows from its neighbours; its own losses count in turn.

    levels      cloud > family of types > type in its region > market
    r(x)        hazard of the whole cloud by age, losses over machine-seconds in each cell
    O, E        losses of a group, and those that its parent's hazard expects of it
    k           shape of the gamma distribution that groups' hazards have around their parent's
    theta       (k + O) / (k + E): the posterior mean of the group's factor on its parent's hazard

The gamma-Poisson model of empirical Bayes (Clayton and Kaldor, Biometrics 43, 1987), one level at a time, k
by the method of moments from the spread of O around E among siblings: Var(O) = E + E^2 / k. The interval of a
market's hazard is that of the posterior, a gamma of shape k + O, with the error of r(x), which rests on some
losses per cell itself. Knows no prices and no times of day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Floats, Indices
from bidbrain.eviction.base import Evidence
from bidbrain.eviction.capacity.curves import FittedCurves
from bidbrain.eviction.capacity.exposure import ExposureRows, exposure_rows
from bidbrain.eviction.capacity.hazard import HazardCurve, MarketCurve, gamma_limits
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import HOUR_S, Instant, Seconds

_EDGES_S: Final[Floats] = np.array([0, 1 / 6, 0.5, 1, 2, 4, 8, 16, 24, 72, 168], np.float64) * HOUR_S
_SHAPES: Final = (0.5, 100.0)
"""Bounds of k: siblings as different as anything seen, and nearly alike."""
_UNTOLD: Final = 2.0
"""k without siblings to estimate it from: a factor of two either way is no surprise."""

_FAMILY: Final = re.compile(r"(?:Standard_)?[A-Za-z]+(?:\d*-[a-z]+)?")
"""Matches GCP's series and class, and Azure's letters."""

_Group: TypeAlias = tuple[str, ...]


def instance_family(instance_type: str) -> str:
    """Returns what an instance type's name begins with, up to its size.

    >>> [instance_family(name) for name in ("p3.2xlarge", "n1-highcpu-16", "Standard_NC6s_v3")]
    ['p3', 'n1-highcpu', 'Standard_NC']
    """
    if "." in instance_type:
        return instance_type.partition(".")[0]
    found = _FAMILY.match(instance_type)
    return instance_type if found is None else found[0]


_LEVELS: Final[tuple[Callable[[Market], _Group], ...]] = (
    lambda market: (market.cloud, instance_family(market.instance_type)),
    lambda market: (market.cloud, market.region, market.instance_type),
    lambda market: (market.cloud, market.region, market.zone, market.instance_type),
)


@dataclass(frozen=True, slots=True)
class _Factor:
    """Holds a group's theta on its cloud's hazard, and the shape of its posterior."""

    theta: float
    shape: float


@dataclass(frozen=True, slots=True)
class PooledModel:
    """Configures the estimator: all known spells; a fit sees those before its now."""

    observations: Observations

    def fit(self, history: PriceHistory, now: Instant) -> FittedCurves:
        """Learns from the spells as known at ``now``; ignores prices."""
        known = self.observations.as_of(now)
        clouds = {
            cloud: _Cloud.from_observations(known, cloud)
            for cloud in {market.cloud for market in known.markets}
        }

        def fit_curve(market: Market) -> MarketCurve | None:
            cloud = clouds.get(market.cloud)
            return None if cloud is None or not cloud.losses else cloud.market_curve(market, known, now)

        return FittedCurves(fit_curve)


@dataclass(frozen=True, slots=True)
class _Cloud:
    """Holds what was learned of one cloud."""

    hazard: HazardCurve
    factors: Mapping[_Group, _Factor]
    losses: int
    at_risk_s: float
    newest: Instant

    @property
    def per_cell(self) -> float:
        """Returns losses behind the hazard of a cell, on average over the cells that have some."""
        return self.losses / max(int(np.count_nonzero(self.hazard.rates)), 1)

    @classmethod
    def from_observations(cls, known: Observations, name: str) -> _Cloud:
        mine = Observations.from_spells({m: known.spells(m) for m in known.markets if m.cloud == name})
        rows = exposure_rows(mine, _EDGES_S)
        rates = _cell_rates(rows)
        lost = _sum_by_code(rows.market, rows.lost)
        expected = _sum_by_code(rows.market, rates[rows.cell] * rows.at_risk_s)
        return cls(
            hazard=HazardCurve.from_rates(_EDGES_S, rates),
            factors=_group_factors(mine.markets, lost, expected),
            losses=int(lost.sum()),
            at_risk_s=float(rows.at_risk_s.sum()),
            newest=Instant(int(rows.ends.max())),
        )

    def market_curve(self, market: Market, known: Observations, now: Instant) -> MarketCurve:
        """Returns the curve of the closest group that is known."""
        groups = [level(market) for level in reversed(_LEVELS)]
        found = next(
            (self.factors[group] for group in groups if group in self.factors), _Factor(1.0, _UNTOLD)
        )
        spells = known.spells(market)
        here = int(np.count_nonzero(spells.lost))
        span_s = float(now - spells.begins[0]) if len(spells) else self.at_risk_s
        used_s = float((spells.ends - spells.begins).sum()) if len(spells) else self.at_risk_s
        source = f"pooled: {here} losses seen here, {self.losses} in all of {market.cloud}"
        return MarketCurve(
            curve=self.hazard.scale_by(found.theta),
            # Two independent relative errors: their variances, 1 / shape each, add up.
            limits=gamma_limits(1 / (1 / found.shape + 1 / self.per_cell)),
            evidence=Evidence(Seconds(span_s), Seconds(min(used_s, span_s)), source, self.newest),
            kept_s=spells.kept_s(now),
        )


def _sum_by_code(codes: Indices, values: npt.ArrayLike, size: int = 0) -> Floats:
    """Sums the values of each code, shape (at least ``size``,)."""
    return np.bincount(codes, weights=np.asarray(values, np.float64), minlength=size).astype(np.float64)


def _cell_rates(rows: ExposureRows) -> Floats:
    """Returns losses over machine-seconds by cell.

    A cell where nothing ran takes the rate of the one before it.
    """
    lost = _sum_by_code(rows.cell, rows.lost, len(_EDGES_S))
    at_risk = _sum_by_code(rows.cell, rows.at_risk_s, len(_EDGES_S))
    rates = np.divide(lost, at_risk, out=np.zeros(len(_EDGES_S)), where=at_risk > 0)
    # An age that no machine reached takes the hazard of the last age that one did.
    last_seen = np.maximum.accumulate(np.where(at_risk > 0, np.arange(len(_EDGES_S)), 0))
    return np.asarray(rates[last_seen], np.float64)


def _group_factors(markets: tuple[Market, ...], lost: Floats, expected: Floats) -> dict[_Group, _Factor]:
    """Fits each group's factor, level by level from the top.

    It compares a group's losses with what its parent's factor makes of its expectation.
    """
    factors: dict[_Group, _Factor] = {}
    parents = np.ones(len(markets))
    for level in _LEVELS:
        groups = [level(market) for market in markets]
        names = sorted(set(groups))
        place = np.array([names.index(group) for group in groups])
        seen = _sum_by_code(place, lost)
        awaited = _sum_by_code(place, expected * parents)
        shape = _sibling_shape(seen, awaited)
        theta = (shape + seen) / (shape + awaited)
        # The next level is measured against this group's own hazard.
        parents = parents * theta[place]
        for code, name in enumerate(names):
            above = float(parents[int(np.argmax(place == code))])
            factors[name] = _Factor(above, shape + float(seen[code]))
    return factors


def _sibling_shape(seen: Floats, awaited: Floats) -> float:
    """Estimates k of siblings."""
    if len(seen) < 2:
        return _UNTOLD
    # What siblings vary by beyond the Poisson variance of their counts.
    spread = float(np.sum((seen - awaited) ** 2 - awaited))
    return float(np.clip(np.sum(awaited**2) / spread, *_SHAPES)) if spread > 0 else _SHAPES[1]
