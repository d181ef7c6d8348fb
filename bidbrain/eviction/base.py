"""Defines the questions that every estimator of evictions answers; no decision depends on which one it has.

An estimator is configuration; fitting it gives an immutable object that answers. Models know markets, bid
deltas and times, but no bills, no work and no owners of machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import Instant, Seconds

Z_95: Final = 1.959964
"""Standard deviations either side of a normal distribution's mean that hold 95 % of it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Describes the history behind an answer; shown beside every beta."""

    span_s: Seconds
    """Seconds from the first known price or spell to now."""
    used_s: Seconds
    """Seconds of start instants, or of watched machines, that the answer averages over; 0 if unknown."""
    source: str = ""
    """The basis of the answer, for people."""
    newest: Instant | None = None
    """Time of the newest observation behind the answer."""

    @property
    def is_known(self) -> bool:
        return self.used_s > 0


@dataclass(frozen=True, slots=True)
class Beta:
    """States an eviction probability as people see it: always with its interval and its evidence."""

    value: float
    low: float
    high: float
    """The 95 % interval."""
    evidence: Evidence

    def age_s(self, now: Instant) -> Seconds | None:
        """Returns the age of the newest observation, in seconds; None where there is none."""
        return None if self.evidence.newest is None else Seconds(float(now - self.evidence.newest))


class FittedMarkets(Protocol):
    """Answers about machines ``age_s`` seconds old whose bid is ``bid_delta`` $/h above the price.

    A negative delta means that the eviction is under way: survival 0. Where nothing is known
    (``evidence(...).is_known`` is false), survival and uptime are 0, so that no unknown market is bought by
    mistake.
    """

    def survival(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """Returns the probability of running ``horizon_s`` seconds longer; it falls with the horizon."""
        ...

    def eviction_probability(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """Returns beta: 1 - survival."""
        ...

    def expected_uptime(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Seconds:
        """Returns E[min(time to eviction, horizon)], the integral of survival, in [0, ``horizon_s``]."""
        ...

    def median_time_to_eviction(self, market: Market, bid_delta: float, age_s: float) -> Seconds | None:
        """Returns the median in seconds; None where over half of the machines outlive the known history."""
        ...

    def evidence(self, market: Market, horizon_s: float) -> Evidence:
        """Returns what the answers for this market and horizon are based on."""
        ...


class Estimates(FittedMarkets, Protocol):
    """Adds an interval to the answers."""

    def beta(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Beta:
        """Returns ``eviction_probability`` with its 95 % interval; all of [0, 1] where nothing is known."""
        ...


class MarketModel(Protocol):
    """Describes an estimator before it has seen anything."""

    def fit(self, history: PriceHistory, now: Instant) -> Estimates:
        """Learns from what was known at ``now``; ignores later rows of ``history``."""
        ...


@runtime_checkable
class LearningModel(MarketModel, Protocol):
    """Describes an estimator that also learns from observed lifetimes of machines."""

    def with_observations(self, observations: Observations) -> LearningModel:
        """Returns the same model with ``observations`` in place of its own."""
        ...


@dataclass(frozen=True, slots=True)
class RemainingLifetime:
    """Applies a fitted model to one machine: its market, bid and age."""

    evictions: FittedMarkets
    market: Market
    bid_delta: float
    age_s: float = 0.0

    def survival(self, horizon_s: float) -> float:
        """See ``FittedMarkets.survival``."""
        return self.evictions.survival(self.market, self.bid_delta, self.age_s, horizon_s)

    def expected_uptime(self, horizon_s: float) -> Seconds:
        """See ``FittedMarkets.expected_uptime``."""
        return self.evictions.expected_uptime(self.market, self.bid_delta, self.age_s, horizon_s)
