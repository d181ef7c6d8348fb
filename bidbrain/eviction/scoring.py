"""Scores eviction probabilities against what happened.

    y           1 where a machine that was up at a start was lost within the horizon, else 0
    p           the probability predicted for it, from what was known at the start
    b           the market's past base rate: the share lost among its starts settled by then
    Brier       mean (p - y)^2 (Brier, Monthly Weather Review 78, 1950)
    skill       1 - Brier(p) / Brier(b): 0 is no better than the base rate, 1 is clairvoyance
    log loss    mean of -log of the probability predicted for what happened

Starts that are censored within the horizon have no known outcome and are left out. Independent of how a
probability was made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.eviction.base import FittedMarkets
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Instant

_DAY_S: Final = 86400
_SURE: Final = 1e-4
"""Least distance of a probability from 0 and 1 in log loss, or one surprise would outweigh all the rest."""
_LEAST_STARTS: Final = 20
"""Starts needed to compare estimators, with ``_LEAST_OF_EACH`` losses and as many survivals among them."""
_LEAST_OF_EACH: Final = 3
CHOICE_DAYS: Final = 14
"""Days that a choice looks back."""
CHOICE_STEP_S: Final = 6 * HOUR_S
"""Seconds between the moments that a choice scores."""

FitAt: TypeAlias = Callable[[Instant], FittedMarkets]
"""Fits an estimator to what was known at an instant."""


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """Holds moments at which a machine was up, and what became of it; arrays (n,), sorted by moment."""

    moments: Floats
    """Instants."""
    ages_s: Floats
    lost: Flags
    """Whether it was lost within the horizon."""

    def __len__(self) -> int:
        return len(self.moments)

    def select_period(self, begin: float, end: float) -> Starts:
        """Returns the starts with ``begin`` <= moment < ``end``."""
        inside = (self.moments >= begin) & (self.moments < end)
        return Starts(self.moments[inside], self.ages_s[inside], self.lost[inside])


def find_starts(spells: Spells, step_s: float, horizon_s: float) -> Starts:
    """Returns a start every ``step_s`` seconds of each spell whose outcome within the horizon is known."""
    # Multiples of the step since 1970, so that all markets are scored at the same moments.
    first = np.ceil(spells.begins / step_s).astype(np.int64)
    size = np.maximum(np.ceil(spells.ends / step_s).astype(np.int64) - first, 0)
    spell = np.repeat(np.arange(len(spells)), size)
    within = np.arange(len(spell)) - np.repeat(np.cumsum(size) - size, size)
    moments = (first[spell] + within) * float(step_s)
    # Seconds from each start to the end of its spell.
    left_s = spells.ends[spell] - moments
    lost = spells.lost[spell] & (left_s <= horizon_s)
    # A spell that is censored within the horizon has no known outcome, so its starts are dropped.
    settled = np.flatnonzero(lost | (left_s >= horizon_s))
    order = settled[np.argsort(moments[settled], kind="stable")]
    return Starts(moments[order], (moments - spells.begins[spell])[order], lost[order])


def base_rates(found: Starts, horizon_s: float) -> Floats:
    """Returns b at each start, shape (n,)."""
    # Only outcomes known at the start count: those of starts at least one horizon before it.
    settled = np.searchsorted(found.moments, found.moments - horizon_s, side="right")
    losses = np.append(0.0, np.cumsum(found.lost.astype(np.float64)))
    # Half a loss in one start is added, so that no base rate is 0 or 1.
    return np.asarray((losses[settled] + 0.5) / (settled + 1.0))


def brier_score(given: Floats, happened: Flags) -> float:
    """Returns the mean squared error of probabilities, in [0, 1]; less is better."""
    return float(np.mean((given - happened) ** 2))


def log_losses(given: Floats, happened: Flags) -> Floats:
    """Returns -log of the probability predicted for what happened, in nats, shape (n,)."""
    kept = np.clip(given, _SURE, 1 - _SURE)
    return -np.where(happened, np.log(kept), np.log1p(-kept))


def log_loss(given: Floats, happened: Flags) -> float:
    """Returns the mean of ``log_losses``, in nats; less is better."""
    return float(log_losses(given, happened).mean())


def brier_skill(given: Floats, reference: Floats, happened: Flags) -> float:
    """Returns the Brier skill over ``reference``; NaN where the reference was never wrong."""
    wrong = brier_score(reference, happened)
    return 1.0 - brier_score(given, happened) / wrong if wrong > 0 else float("nan")


@dataclass(frozen=True, slots=True)
class Bin:
    """Collects starts of similar predicted probability."""

    low: float
    high: float
    count: int
    given: float
    """Mean predicted probability."""
    happened: float
    """Share that was lost."""


def reliability_bins(given: Floats, happened: Flags, bins: int = 10) -> tuple[Bin, ...]:
    """Returns bins of equal width over [0, 1], without the empty ones."""
    place = np.minimum((given * bins).astype(np.int64), bins - 1)
    table = []
    for code in np.unique(place):
        here = place == code
        means = float(given[here].mean()), float(happened[here].mean())
        table.append(Bin(float(code) / bins, float(code + 1) / bins, int(here.sum()), *means))
    return tuple(table)


def choose_estimator(
    candidates: Mapping[str, FitAt],
    observations: Observations,
    market: Market,
    now: Instant,
    *,
    horizon_s: float = HOUR_S,
    days: int = CHOICE_DAYS,
    step_s: float = CHOICE_STEP_S,
) -> str:
    """Returns the name of the candidate whose past predictions for ``market`` had the least log loss.

    The forecast origin rolls: every ``step_s`` seconds of the last ``days`` days, each candidate is fitted as
    of that moment and predicts the machines then up. ``prefer_least_loss`` compares them by the outcomes
    settled by ``now``. Where these are too few, the first candidate that knows the market wins, or else the
    first of all.
    """
    known = observations.as_of(now)
    scored = find_starts(known.spells(market), step_s, horizon_s).select_period(now - days * _DAY_S, now)
    if not has_enough(scored.lost):
        informed = (name for name, fit in candidates.items() if fit(now).evidence(market, horizon_s).is_known)
        return next(informed, next(iter(candidates)))
    given = {name: _past_probabilities(fit, scored, market, horizon_s) for name, fit in candidates.items()}
    return prefer_least_loss({name: log_losses(values, scored.lost) for name, values in given.items()})


def has_enough(happened: Flags) -> bool:
    """Returns whether there are enough outcomes of either kind to compare estimators."""
    losses = int(np.count_nonzero(happened))
    return len(happened) >= _LEAST_STARTS and min(losses, len(happened) - losses) >= _LEAST_OF_EACH


def prefer_least_loss(losses: Mapping[str, Floats]) -> str:
    """Returns the name with the lowest mean loss, if that beats the first by more than a standard error.

    Otherwise the first. The error is that of the mean paired difference.
    """
    first, *others = losses
    gains = {first: 0.0}
    for name in others:
        gain = losses[first] - losses[name]
        # Differences within chance are no reason to switch estimators every day.
        error = float(np.std(gain, ddof=1)) / np.sqrt(len(gain))
        if float(gain.mean()) > error:
            gains[name] = float(gain.mean())
    return max(gains, key=lambda name: gains[name])


def _past_probabilities(fit: FitAt, scored: Starts, market: Market, horizon_s: float) -> Floats:
    """Returns the probabilities that the candidate would have predicted at each start, (n,)."""
    # Even odds where the candidate knew nothing: a gap must not look like skill.
    given = np.full(len(scored), 0.5)
    for row, (moment, age_s) in enumerate(zip(scored.moments, scored.ages_s, strict=True)):
        fitted = fit(Instant(int(moment)))
        if fitted.evidence(market, horizon_s).is_known:
            given[row] = fitted.eviction_probability(market, 0.0, float(age_s), horizon_s)
    return given
