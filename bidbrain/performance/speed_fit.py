"""Fits nu to a running job: work per second of each instance type, by least squares with a prior.

    c_m      nominal     work per second of one machine of type m, as the catalogue's cores have it
    r_m      ratio       what it does, as a share of that: nu_m = r_m c_m
    v_j      speed       work per second of a spell with the footprint k_j
    y_j      v_j / (phi ** log2(n_j) sum_m k_jm c_m), which is sum_m x_jm r_m, x_jm the share of m's cores
    K        prior covariance of r, whose mean is 1

Narayanan's dissertation (6.3.2) and the papers' nu assume that types are as fast as their cores. Here that is
the prior: r = 1 + a + b_m, with a common part a (the job's nominal work may be wrong) and one of each type.
So a type that was never seen moves with those that were, and by as much as they agree. The posterior of r,
with noise s of a spell's speed, is that of Bayesian linear regression:

    V = (X' W X / s^2 + K^-1)^-1        r = 1 + V X' W (y - X 1) / s^2        r_m +- 1.96 sqrt(V_mm)

W counts a spell of ten minutes once and a shorter one in part. s starts at ``_NOISE`` and is estimated anew
from the residuals, with that start as four observations. Knows no clocks, no footprints to come and no phi:
speeds arrive as if every machine worked alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

_COMMON_SD: Final = 0.5
"""Standard deviation of a: the application's count of work may be off by half, for all types alike."""
_TYPE_SD: Final = 0.25
"""Standard deviation of b_m: types of as many cores may differ by a quarter."""
_NOISE: Final = 0.05
"""s before any spell: speeds of one footprint, medians already, vary by some percent."""
_NOISE_WEIGHT: Final = 4.0
"""Number of spells that this start counts for."""
_WHOLE_SPELL_S: Final = 600.0
"""A spell this long counts once, a shorter one in part."""
_KEPT: Final = 64
"""Spells kept; older ones are dropped, so that a job that changes is followed."""
_LEAST, _MOST = 0.05, 20.0
"""Bounds of a ratio; values outside are errors in the application's count of work."""
STANDARD_ERRORS_95: Final = 1.96
"""Half the width of a 95 % interval, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Holds work per second of one machine, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class SpeedSpell:
    """Describes a stretch with one footprint. ``speed``: work per second, as if none waited for another."""

    machines: tuple[tuple[str, int], ...]
    """(type, count), sorted."""
    speed: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Speeds:
    """Holds what spells say of types. An immutable value: another spell gives a new one."""

    nominal: tuple[tuple[str, float], ...]
    """(type, c), sorted: every type there may be."""
    spells: tuple[SpeedSpell, ...] = ()

    def with_spell(self, spell: SpeedSpell) -> Speeds:
        """Adds one spell. Raises KeyError where it has a type without a nominal speed."""
        known = dict(self.nominal)
        for name, _ in spell.machines:
            if name not in known:
                raise KeyError(f"no nominal speed of {name}: name every type of the job")
        return replace(self, spells=(*self.spells, spell)[-_KEPT:])

    def fit_speeds(self) -> dict[str, Speed]:
        """Returns speeds by type; the nominal ones, with the prior's interval, while there are no spells."""
        return dict(_fit_posterior(self))


@lru_cache(maxsize=8)
def _fit_posterior(speeds: Speeds) -> tuple[tuple[str, Speed], ...]:
    names = [name for name, _ in speeds.nominal]
    cores = np.array([value for _, value in speeds.nominal])
    size = len(names)
    prior = _COMMON_SD**2 * np.ones((size, size)) + _TYPE_SD**2 * np.eye(size)
    counts = np.array([[dict(s.machines).get(name, 0) for name in names] for s in speeds.spells])
    counts = counts.reshape(len(speeds.spells), size)
    ideal = counts @ cores
    shares = counts * cores / ideal[:, None]
    over = np.array([s.speed for s in speeds.spells]) / ideal - 1.0  # y - X 1
    weights = np.array([min(s.seconds / _WHOLE_SPELL_S, 1.0) for s in speeds.spells])
    noise = _NOISE**2
    # The noise depends on the fit and the fit on the noise; three rounds settle them.
    for _ in range(3):
        precision = (shares.T * weights) @ shares / noise + np.linalg.inv(prior)
        covariance = np.linalg.inv(precision)
        beyond = covariance @ ((shares.T * weights) @ over) / noise
        left = over - shares @ beyond
        noise = (_NOISE_WEIGHT * _NOISE**2 + float(weights @ left**2)) / (
            _NOISE_WEIGHT + float(weights.sum())
        )
    around = STANDARD_ERRORS_95 * np.sqrt(np.diag(covariance))
    ratios, lows, highs = (
        np.clip(1.0 + found, _LEAST, _MOST) * cores for found in (beyond, beyond - around, beyond + around)
    )
    values = zip(ratios.tolist(), lows.tolist(), highs.tolist(), strict=True)
    return tuple((name, Speed(*found)) for name, found in zip(names, values, strict=True))
