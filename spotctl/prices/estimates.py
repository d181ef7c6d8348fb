"""Estimates what an hour of useful work costs in one market, and on what evidence.

    h      horizon: how long the machine is wanted, from now
    beta   probability that it is evicted before
    C      expected charge until the horizon (``bidbrain.bidding.expected_cost``)
    U      expected useful time: E[min(time to eviction, h)] - beta lambda
    cost   C / U, dollars per useful hour of one instance

Where the price clears by bid, price crossings are the evidence. Where it does not, the observed capacity of
the market is, or else a published rate. A market with none of them has an unknown beta; no number is
made up for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from bidbrain.bidding.expected_cost import Survival, expected_charge
from bidbrain.eviction.base import Estimates, RemainingLifetime
from bidbrain.eviction.price.confidence import predict_coming_week
from bidbrain.eviction.price.first_passage import PriceSteps
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.model import BID_DELTAS
from pricing_data.model.market import Market, MarketRules, PriceHistory, Series
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour
from spotctl.job.spec import ScalingSpec

HISTORY_S: Final = 90 * 86400
"""Seconds of a market's record that beta rests on: as much as AWS and Azure give."""
_NEVER: Final = Instant(0)
_NEARLY_ALL: Final = 1.0 - 1e-9
_LAMBDA_S: Final = ScalingSpec().lambda_


class Basis(StrEnum):
    """Names what a beta rests on."""

    CROSSINGS = "price crossings"
    CAPACITY = "observed capacity"
    RATE = "published rate"
    OPEN_RATE = "published rate, no upper end"
    """A band like "more than 20 %": at least this much, with no upper bound."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Holds the estimate. ``usd_per_useful_hour`` is one instance's; with an unknown beta it is the plain
    price.
    """

    basis: Basis
    beta: float
    """NaN where unknown."""
    low: float
    high: float
    """Bounds. From crossings: the 95 % prediction for the coming week. From capacity: the estimator's
    interval.
    From rates: the ends of the published band. NaN where unknown."""
    effective: float
    """Independent starts to which the price history is equivalent in the interval; NaN elsewhere."""
    bid_delta: float
    """Dollars per hour above the price; NaN where no bid is needed."""
    usd_per_useful_hour: float
    source: str
    """Source of the evidence."""
    until: Instant = _NEVER
    """End of the time that the evidence covers; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class PublishedRate:
    """Holds a published eviction rate: between ``low`` and ``high`` of the machines within ``per_s``
    seconds.
    """

    low: float
    high: float
    per_s: float
    source: str
    until: Instant = _NEVER
    """End of the time that was counted."""

    @property
    def is_open(self) -> bool:
        """Tells whether it has no upper bound: it may be all machines."""
        return self.high >= 1.0


@dataclass(frozen=True, slots=True)
class _ConstantHazard:
    """Models survival where a share ``beta`` is evicted every ``per_s`` seconds, whatever the age."""

    per_second: float

    @classmethod
    def from_share(cls, share: float, per_s: float) -> _ConstantHazard:
        return cls(-math.log1p(-share) / per_s)

    def survival(self, horizon_s: float) -> float:
        return math.exp(-self.per_second * horizon_s)

    def expected_uptime(self, horizon_s: float) -> Seconds:
        if self.per_second == 0:
            return Seconds(horizon_s)
        return Seconds(-math.expm1(-self.per_second * horizon_s) / self.per_second)


def unknown_estimate(price: float) -> Estimate:
    """Returns an estimate without evidence: the price, and no beta."""
    nothing = math.nan
    return Estimate(Basis.UNKNOWN, nothing, nothing, nothing, nothing, nothing, price, "")


def from_rate(rules: MarketRules, price: UsdPerHour, rate: PublishedRate, horizon_s: float) -> Estimate:
    """Estimates from a published rate, read as a constant hazard over its period.

    A band counts with its upper bound, since nothing better is promised; without one, with its lower.
    """
    low = _ConstantHazard.from_share(min(rate.low, _NEARLY_ALL), rate.per_s)
    worst = low if rate.is_open else _ConstantHazard.from_share(rate.high, rate.per_s)
    beta = 1.0 - worst.survival(horizon_s)
    return Estimate(
        basis=Basis.OPEN_RATE if rate.is_open else Basis.RATE,
        beta=beta,
        low=1.0 - low.survival(horizon_s),
        high=1.0 if rate.is_open else beta,
        effective=math.nan,
        bid_delta=math.nan,
        usd_per_useful_hour=_cost_per_useful_hour(rules, price, horizon_s, worst),
        source=rate.source,
        until=rate.until,
    )


def from_capacity(
    rules: MarketRules, price: UsdPerHour, fitted: Estimates, market: Market, seen: Instant, horizon_s: float
) -> Estimate:
    """Estimates from observations of ``market`` until ``seen``, as if a machine started then."""
    beta = fitted.beta(market, 0.0, 0.0, horizon_s)
    if not beta.evidence.is_known:
        return unknown_estimate(price)
    return Estimate(
        basis=Basis.CAPACITY,
        beta=beta.value,
        low=beta.low,
        high=beta.high,
        effective=math.nan,
        bid_delta=math.nan,
        usd_per_useful_hour=_cost_per_useful_hour(
            rules, price, horizon_s, RemainingLifetime(fitted, market, 0.0)
        ),
        source=beta.evidence.source,
        until=seen,
    )


def from_crossings(
    rules: MarketRules,
    price: UsdPerHour,
    series: Series,
    now: Instant,
    horizon_s: float,
    source: str,
    deltas: Iterable[float] = BID_DELTAS,
) -> Estimate:
    """Estimates from the prices of the last 90 days: the bid of least expected cost, and how sure its beta
    is.
    """
    recent = _recent_steps(series, now)
    market = Market("", "", "", "")
    model = PriceCrossing(window_s=max(HOUR_S, math.ceil(horizon_s)))
    fitted = model.fit(PriceHistory.from_series({market: recent}), now)
    if not fitted.evidence(market, horizon_s).is_known:
        return unknown_estimate(price)
    costs = [
        (_cost_per_useful_hour(rules, price, horizon_s, RemainingLifetime(fitted, market, delta)), delta)
        for delta in deltas
    ]
    cost, delta = min(costs)
    share = predict_coming_week(
        PriceSteps.from_series(recent, now), delta, horizon_s, max(horizon_s, model.window_s)
    )
    return Estimate(
        basis=Basis.CROSSINGS,
        beta=share.value,
        low=share.low,
        high=share.high,
        effective=share.effective,
        bid_delta=delta,
        usd_per_useful_hour=cost,
        source=source,
        until=now,
    )


def _cost_per_useful_hour(
    rules: MarketRules, price: UsdPerHour, horizon_s: float, survival: Survival
) -> float:
    """Returns dollars per useful hour; infinite where no useful time is expected."""
    beta = 1.0 - survival.survival(horizon_s)
    useful_s = survival.expected_uptime(horizon_s) - beta * _LAMBDA_S
    if useful_s <= 0:
        return math.inf
    return float(expected_charge(rules, price, 0.0, horizon_s, survival)) * HOUR_S / float(useful_s)


def _recent_steps(series: Series, now: Instant) -> Series:
    """Returns the steps of the last 90 days, including the one in force at their start."""
    begin = now - HISTORY_S
    first = max(int(np.searchsorted(series.times, begin, side="right")) - 1, 0)
    times = series.times[first:]
    if len(times) and times[0] < begin:
        times = np.concatenate([[np.int64(begin)], times[1:]])
    return Series(times, series.prices[first:])
