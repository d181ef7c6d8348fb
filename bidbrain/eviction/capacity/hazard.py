"""Defines hazards that are constant within cells of age: the form all estimators of capacity share.

    a_i, a_{i+1}   borders of cell i, in seconds of age; a_0 = 0, and the last cell has no end
    r_i            hazard in cell i: losses per second of running
    H(a)           cumulative hazard, the integral of r up to age a; linear within a cell
    S(h | a)       survival of h more seconds at age a: exp(-(H(a + h) - H(a)))

With hazards constant in cells, survival, expected uptime and median are sums of closed forms, no quadrature
(the piecewise exponential model: Friedman, Annals of Statistics 10, 1982). Knows no markets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Floats
from bidbrain.eviction.base import Z_95, Evidence
from pricing_data.model.units import Seconds

CERTAIN: Final = 50.0
"""A cumulative hazard that nothing outlives: survival 2e-22."""


@dataclass(frozen=True, slots=True, eq=False)
class HazardCurve:
    """Describes a hazard by age."""

    edges_s: Floats
    """(n,), increasing from 0."""
    rates: Floats
    """(n,), per second, none negative; the last one holds for every later age."""
    cumulative: Floats
    """(n,): H at ``edges_s``."""

    @classmethod
    def from_rates(cls, edges_s: npt.ArrayLike, rates: npt.ArrayLike) -> Self:
        """Builds a curve from cells.

        Raises ValueError where they do not begin at 0 and increase, or a rate is negative.
        """
        edges, heights = np.asarray(edges_s, np.float64), np.asarray(rates, np.float64)
        if edges.shape != heights.shape or edges.ndim != 1 or not len(edges) or edges[0] != 0:
            raise ValueError("a hazard curve needs as many rates as edges, and its first edge at age 0")
        if not bool(np.all(np.diff(edges) > 0)):
            raise ValueError("the edges of a hazard curve must increase")
        if not bool(np.all(heights >= 0)):
            raise ValueError(f"a hazard is no negative number; found {heights.min()}")
        return cls(edges, heights, np.append(0.0, np.cumsum(heights[:-1] * np.diff(edges))))

    @classmethod
    def with_constant_rate(cls, rate: float) -> Self:
        """Returns a hazard that does not depend on age."""
        return cls.from_rates([0.0], [rate])

    def hazard_between(self, age_s: float, horizon_s: float) -> float:
        """Returns the cumulative hazard of the next ``horizon_s`` seconds at age ``age_s``."""
        return self._up_to(age_s + horizon_s) - self._up_to(age_s)

    def hazards_between(self, ages_s: Floats, horizon_s: float | Floats) -> Floats:
        """Returns ``hazard_between`` for many ages, and one horizon or as many, shape (m,)."""
        both = np.stack([ages_s, ages_s + horizon_s])
        cells = np.searchsorted(self.edges_s, both, side="right") - 1
        reached = self.cumulative[cells] + self.rates[cells] * (both - self.edges_s[cells])
        return np.asarray(reached[1] - reached[0])

    def survival(self, age_s: float, horizon_s: float) -> float:
        """Returns the probability of surviving ``horizon_s`` more seconds at age ``age_s``."""
        return math.exp(-self.hazard_between(age_s, horizon_s))

    def expected_uptime(self, age_s: float, horizon_s: float) -> Seconds:
        """Returns E[min(time to loss, ``horizon_s``)].

        Each cell adds survival at its begin times (1 - e^-x) / x of its length.
        """
        end_s = age_s + horizon_s
        inside = self.edges_s[(self.edges_s > age_s) & (self.edges_s < end_s)]
        begins = np.concatenate([[age_s], inside])
        lengths = np.diff(np.append(begins, end_s))
        cells = np.searchsorted(self.edges_s, begins, side="right") - 1
        spent = self.rates[cells] * lengths
        # Survival at the begin of each cell.
        alive = np.exp(-np.append(0.0, np.cumsum(spent)[:-1]))
        # expm1 keeps its precision where the hazard is tiny; without hazard the factor is 1.
        kept = np.divide(-np.expm1(-spent), spent, out=np.ones_like(spent), where=spent > 0)
        return Seconds(float(np.sum(alive * lengths * kept)))

    def median(self, age_s: float) -> Seconds | None:
        """Returns the time by which half are lost; None where the hazard ends before that many are."""
        # Half are lost when the cumulative hazard has grown by log 2.
        target = self._up_to(age_s) + math.log(2)
        cell = int(np.searchsorted(self.cumulative, target, side="right")) - 1
        if self.rates[cell] == 0:
            return None
        reached = self.edges_s[cell] + (target - self.cumulative[cell]) / self.rates[cell]
        return Seconds(float(reached) - age_s)

    def scale_by(self, factor: float) -> HazardCurve:
        """Returns the curve with all rates multiplied by ``factor``."""
        return HazardCurve(self.edges_s, self.rates * factor, self.cumulative * factor)

    def _up_to(self, age_s: float) -> float:
        cell = int(np.searchsorted(self.edges_s, age_s, side="right")) - 1
        return float(self.cumulative[cell] + self.rates[cell] * (age_s - self.edges_s[cell]))


def gamma_limits(shape: float) -> tuple[float, float]:
    """Returns the 95 % interval of a gamma variable of that shape and mean 1, by Wilson and Hilferty's cube.

    (PNAS 17, 1931.) The hazard behind ``shape`` losses lies in it, relative to their rate.

    >>> [round(end, 2) for end in gamma_limits(10.0)]
    [0.48, 1.71]
    """
    ninth = 1.0 / (9.0 * shape)
    # The cube of a small shape may go negative; a hazard cannot.
    low, high = (max(1.0 - ninth + z * math.sqrt(ninth), 0.0) ** 3 for z in (-Z_95, Z_95))
    return low, high


def beta_limits(hazard: float, limits: tuple[float, float]) -> tuple[float, float]:
    """Returns the interval of 1 - exp(-``hazard``) when the hazard may be off by the factors ``limits``."""
    return -math.expm1(-hazard * limits[0]), -math.expm1(-hazard * limits[1])


@dataclass(frozen=True, slots=True)
class MarketCurve:
    """Holds what was learned of one market."""

    curve: HazardCurve
    limits: tuple[float, float]
    """Factors on the cumulative hazard: its 95 % interval."""
    evidence: Evidence
    kept_s: float = 0.0
    """For how long the market's capacity has been there by now, as far as anybody watched.

    A machine that is started now counts as that old.
    """

    def at_age(self, age_s: float) -> float:
        """Returns the age, in seconds, that a machine of ``age_s`` counts as."""
        return max(age_s, self.kept_s)
