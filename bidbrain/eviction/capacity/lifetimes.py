"""Fits hazards by age to lifetimes alone: how long machines ran, and whether they were evicted or released.

    x_i         how long machine i was watched
    lost        whether it was evicted then; otherwise it is censored: it lived at least that long
    d, n        machines lost at an age, and machines still watched just before it

Four forms, from the freest to the stiffest: Kaplan-Meier's product limit, a bathtub, Weibull's power of age
and a constant. Leaving out the censored ones would take a release for a death, and so would counting them as
lost: both are the classic errors, and half of some records is censored. Knows no markets and no instants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.eviction.capacity.hazard import CERTAIN, HazardCurve
from pricing_data.model.units import HOUR_S

Fit: TypeAlias = Callable[[Floats, Flags], HazardCurve]
"""Maps (ages watched, lost), with at least one loss and none at age 0, to a hazard."""

_CELLS: Final = 400
"""Cells that represent a smooth hazard."""
_BATHTUB_HOURS: Final = ((0.25, 0.5, 1.0, 2.0, 4.0), (0.25, 0.5, 1.0, 2.0))
"""Time constants tried for the fall at first and for the rise at the end."""
_EM_STEPS: Final = 400


def constant_hazard(ages_s: Floats, lost: Flags) -> HazardCurve:
    """Returns losses over machine-seconds: the maximum likelihood of a hazard that does not depend on age."""
    return HazardCurve.with_constant_rate(float(np.count_nonzero(lost) / ages_s.sum()))


def kaplan_meier(ages_s: Floats, lost: Flags) -> HazardCurve:
    """Fits the product limit (Kaplan and Meier, JASA 53, 1958).

    Survival is prod (1 - d / n) at every loss's age. Between two losses' ages the hazard is spread evenly, so
    that survival falls without jumps. Where the last machine watched is lost the product limit lets nothing
    live longer, on the evidence of one: there d / n counts, as with Nelson and Aalen. After the last loss the
    mean hazard of the last tenth of all losses goes on.
    """
    moments, deaths = np.unique(ages_s[lost], return_counts=True)
    # side="left": a machine censored at the very moment of a loss was still at risk then.
    at_risk = len(ages_s) - np.searchsorted(np.sort(ages_s), moments, side="left")
    share = deaths / at_risk
    # log(1 - d / n) is infinite where the last machine is lost: there d / n counts (Nelson and Aalen).
    spent = np.where(share < 1, -np.log1p(-np.minimum(share, 0.999)), share)
    begins = np.append(0.0, moments[:-1])
    rates = spent / (moments - begins)
    return HazardCurve.from_rates(
        np.append(begins, moments[-1]), np.append(rates, _tail_hazard(ages_s, lost))
    )


def _tail_hazard(ages_s: Floats, lost: Flags) -> float:
    """Returns losses over machine-seconds beyond the age that nine tenths of the losses came before."""
    since = float(np.quantile(ages_s[lost], 0.9))
    beyond = float(np.sum(np.maximum(ages_s - since, 0.0)))
    # No machine was watched beyond that age.
    if beyond == 0:
        return CERTAIN / HOUR_S
    return float(np.count_nonzero(ages_s[lost] > since) / beyond)


def weibull(ages_s: Floats, lost: Flags) -> HazardCurve:
    """Fits H(x) = (x / scale)^k by maximum likelihood; k < 1: the longer it ran, the longer it will.

    The scale follows from k; k is where the profile likelihood's slope, which falls in k, crosses zero: 1/k +
    mean(log x | lost) - sum(x^k log x) / sum(x^k).
    """
    ages = ages_s[ages_s > 0]
    logs, mean_lost = np.log(ages), float(np.mean(np.log(ages_s[lost])))

    def slope(shape: float) -> float:
        # Scaled by the largest age: x^k overflows for large k.
        powers = np.exp(shape * (logs - logs.max()))
        return 1 / shape + mean_lost - float(np.sum(powers * logs) / np.sum(powers))

    # Bisection in the logarithm: the slope falls in k, so it crosses zero once.
    low, high = 0.02, 50.0
    while high / low > 1 + 1e-10:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    count = int(np.count_nonzero(lost))
    scale = float(np.exp(logs.max()) * (np.sum(np.exp(low * (logs - logs.max()))) / count) ** (1 / low))
    edges = _cell_edges(float(ages.max()))
    spent = (np.append(edges, 2 * edges[-1]) / scale) ** low
    return HazardCurve.from_rates(edges, np.diff(spent) / np.diff(np.append(edges, 2 * edges[-1])))


def bathtub(ages_s: Floats, lost: Flags) -> HazardCurve:
    """Fits a hazard that falls at first, stays, and rises towards an end that all machines share.

        r(x) = a e^(-x / t1) + c + z e^((x - L) / t2),    a, c, z >= 0

    as found for machines of 24 h (Kadupitiya, Jadhao and Sharma, arXiv:1911.05160), where L is the longest
    life. For given time constants the likelihood is concave in (a, c, z); expectation and maximisation share
    each loss among the three terms. The time constants are the likeliest of a grid.
    """
    longest = float(ages_s.max())
    fits = [
        _fit_mixture(ages_s, lost, longest, early * HOUR_S, late * HOUR_S)
        for early in _BATHTUB_HOURS[0]
        for late in _BATHTUB_HOURS[1]
    ]
    return max(fits, key=lambda fit: fit[0])[1]


def _fit_mixture(
    ages_s: Floats, lost: Flags, longest_s: float, early_s: float, late_s: float
) -> tuple[float, HazardCurve]:
    """Returns log likelihood and hazard of the best mixture with these time constants."""

    def hazard_terms(ages: Floats) -> Floats:
        return np.stack([np.exp(-ages / early_s), np.ones_like(ages), np.exp((ages - longest_s) / late_s)])

    def integrated_terms(ages: Floats) -> Floats:
        """Returns the terms, integrated from age 0."""
        risen = late_s * (np.exp((ages - longest_s) / late_s) - math.exp(-longest_s / late_s))
        return np.stack([-early_s * np.expm1(-ages / early_s), ages, risen])

    at_loss, exposed = hazard_terms(ages_s[lost]), integrated_terms(ages_s).sum(axis=1)
    # Each term begins with a third of the losses.
    weights = np.full(3, np.count_nonzero(lost) / 3) / exposed
    for _ in range(_EM_STEPS):
        # One step of expectation and maximisation: losses are shared in proportion to the terms' hazards.
        weights = weights * (at_loss / (weights @ at_loss)).sum(axis=1) / exposed
    likelihood = float(np.sum(np.log(weights @ at_loss)) - weights @ exposed)
    edges = _cell_edges(longest_s)
    # The mean hazard of each cell, so that the cumulative hazard is exact at its edges.
    rates = np.diff(weights @ integrated_terms(edges)) / np.diff(edges)
    return likelihood, HazardCurve.from_rates(
        edges, np.append(rates, float(weights @ hazard_terms(edges[-1:])[:, 0]))
    )


def _cell_edges(longest_s: float) -> Floats:
    """Returns cells that are fine at both ends, where hazards bend.

    Half spaced evenly, half in the logarithm.
    """
    first = np.geomspace(min(1.0, longest_s / 2), longest_s, _CELLS // 2)
    return np.unique(np.concatenate([[0.0], first, np.linspace(0.0, longest_s, _CELLS // 2)]))
