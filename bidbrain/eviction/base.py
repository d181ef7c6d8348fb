"""Defines what every estimator of evictions answers, so that no decision depends on which one it has.

An estimator is configuration; fitting it to what is known gives an immutable answerer. Models know markets,
bid deltas and times; they do not know money owed, work and whose machines these are.
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
    """Says how much history is behind an answer; shown beside every beta."""

    span_s: Seconds
    """From the first known price to now."""
    used_s: Seconds
    """Measure of the start instants, or of the time machines were watched, that the answer averages over.

    0 means that nothing is known.
    """
    source: str = ""
    """The basis of the answer, in words for people."""
    newest: Instant | None = None
    """Time of the newest observation behind the answer."""

    @property
    def is_known(self) -> bool:
        return self.used_s > 0


@dataclass(frozen=True, slots=True)
class Beta:
    """States an eviction probability as it is shown: never without its interval and its evidence."""

    value: float
    low: float
    high: float
    """The 95 % interval."""
    evidence: Evidence

    def age_s(self, now: Instant) -> Seconds | None:
        """Returns how old the newest observation is; None where there is none."""
        return None if self.evidence.newest is None else Seconds(float(now - self.evidence.newest))


class FittedMarkets(Protocol):
    """Answers about machines of age ``age_s`` whose bid is ``bid_delta`` dollars per hour above the price.

    A negative delta means that the eviction is under way: survival 0. Where nothing is known
    (``evidence(...).is_known`` is false) answers are pessimistic, survival 0 and uptime 0. So a market that
    we know nothing about is never bought by mistake, and callers that show a beta can say why.
    """

    def survival(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """Returns the probability, in [0, 1], of running ``horizon_s`` seconds longer.

        Falls with the horizon.
        """
        ...

    def eviction_probability(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """Returns beta: 1 - survival."""
        ...

    def expected_uptime(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Seconds:
        """Returns E[min(time to eviction, horizon)], in [0, ``horizon_s``]: the integral of survival."""
        ...

    def median_time_to_eviction(self, market: Market, bid_delta: float, age_s: float) -> Seconds | None:
        """Returns the median; None where half of the machines outlive what the history can show."""
        ...

    def evidence(self, market: Market, horizon_s: float) -> Evidence:
        """Returns what the answers for this market and horizon are based on."""
        ...


class Estimates(FittedMarkets, Protocol):
    """Adds to the answers how certain they are."""

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
    """Describes an estimator that also learns from machines that were kept and lost."""

    def with_observations(self, observations: Observations) -> LearningModel:
        """Returns the same model, knowing ``observations`` instead."""
        ...


@dataclass(frozen=True, slots=True)
class RemainingLifetime:
    """Answers how long one machine may still run: a fitted model, asked about one market, bid and age."""

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
