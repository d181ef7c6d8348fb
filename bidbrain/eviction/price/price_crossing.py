"""Estimates beta from recorded prices: a machine is evicted when the price exceeds its bid (Harlap 4.3.1).

This holds only where the price clears by bid (AWS until November 2017). Elsewhere evictions follow capacity,
which prices do not show.

    s            a start instant: any moment whose window lies in the known history
    p(s)         the price it is granted at
    delta        its bid is p(s) + delta
    T(s)         time to eviction: from s to the first later step whose price exceeds the bid

The average is exact, over all starts and weighted by time; nothing is sampled (``first_passage.py`` has the
sums). A price holds until the next one recorded, gaps included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bidbrain.eviction.base import Beta, Evidence
from bidbrain.eviction.price.confidence import predict_coming_week
from bidbrain.eviction.price.crossing_index import CrossingIndex
from bidbrain.eviction.price.first_passage import Passages, PriceSteps
from bidbrain.eviction.scalar_adapter import ScalarAdapter
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.units import HOUR_S, Instant, Seconds

_Question: TypeAlias = tuple[Market, float, float]
"""A market, a bid delta, and a horizon in seconds."""


@dataclass(frozen=True, slots=True)
class PriceCrossing:
    """Configures the papers' estimator."""

    window_s: int = HOUR_S
    """A start counts if this many seconds, and the horizon, lie between it and now."""
    recorded: Mapping[Market, CrossingIndex] = field(default_factory=dict, repr=False, compare=False)
    """Indexes of whole series. Histories that begin like them share their work; no answer changes."""

    def fit(self, history: PriceHistory, now: Instant) -> FittedPriceCrossing:
        """Learns from the rows of ``history`` up to ``now``; each market is evaluated on its first use."""
        return FittedPriceCrossing(self, history.as_of(now), now)


@dataclass(frozen=True, slots=True)
class FittedPriceCrossing:
    """Gives the answers of ``PriceCrossing``, computed on demand and cached. Ignores ``age_s``: prices evict
    old and new machines alike.
    """

    model: PriceCrossing
    history: PriceHistory
    now: Instant
    _steps: dict[Market, PriceSteps] = field(default_factory=dict, repr=False, compare=False)
    _found: dict[Market, CrossingIndex] = field(default_factory=dict, repr=False, compare=False)
    _passages: dict[tuple[Market, float], Passages] = field(default_factory=dict, repr=False, compare=False)
    _answers: dict[_Question, tuple[float, float]] = field(default_factory=dict, repr=False, compare=False)
    _chances: dict[tuple[Market, ...], ScalarAdapter] = field(default_factory=dict, repr=False, compare=False)

    def survival(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """Returns 1 - beta; 0 for a negative delta, or where no start is known."""
        return self._look_up(market, bid_delta, horizon_s)[0]

    def eviction_probability(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> float:
        """Returns beta: the share of the starts whose price exceeds their bid within ``horizon_s``."""
        return 1.0 - self.survival(market, bid_delta, age_s, horizon_s)

    def expected_uptime(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Seconds:
        """Returns the mean of min(T, ``horizon_s``) over the starts; 0 for a negative delta or no starts."""
        return Seconds(self._look_up(market, bid_delta, horizon_s)[1])

    def median_time_to_eviction(self, market: Market, bid_delta: float, age_s: float) -> Seconds | None:
        """Returns the median of T over the starts that were watched long enough; 0 for a negative delta.

        Long enough is the shortest of 1, 2, 4 ... windows in which half of the starts are evicted. None where
        the history has no such window.
        """
        if bid_delta < 0:
            return Seconds(0.0)
        watched_s = float(self.model.window_s)
        # Doubling ends where the history is too short for the window.
        while self._steps_of(market).starts_s(watched_s) > 0:
            passages = self._passages_for(market, bid_delta)
            if passages.survival_and_uptime(watched_s, watched_s)[0] <= 0.5:
                return Seconds(passages.median(watched_s))
            watched_s *= 2
        return None

    def evidence(self, market: Market, horizon_s: float) -> Evidence:
        """Returns the span of the known prices, and the measure of the starts behind the answers."""
        steps = self._steps_of(market)
        times = self.history.series(market).times
        return Evidence(
            Seconds(steps.now_s),
            Seconds(steps.starts_s(self._watched_s(horizon_s))),
            f"price crossings, {len(times)} price{'' if len(times) == 1 else 's'} of {market}",
            Instant(int(times[-1])) if len(times) else None,
        )

    def beta(self, market: Market, bid_delta: float, age_s: float, horizon_s: float) -> Beta:
        """Returns beta with the prediction interval of the coming week (``confidence.py``)."""
        evidence = self.evidence(market, horizon_s)
        if bid_delta < 0:
            return Beta(1.0, 1.0, 1.0, evidence)
        share = predict_coming_week(self._steps_of(market), bid_delta, horizon_s, self._watched_s(horizon_s))
        return Beta(share.value, share.low, share.high, evidence)

    def survival_batch(self, markets: tuple[Market, ...]) -> ScalarAdapter:
        """Answers about ``markets`` in bulk (``decision_batch.BulkMarkets``)."""
        if markets not in self._chances:
            self._chances[markets] = ScalarAdapter(self, markets)
        return self._chances[markets]

    def _look_up(self, market: Market, bid_delta: float, horizon_s: float) -> tuple[float, float]:
        """Returns (survival, expected uptime)."""
        key = (market, bid_delta, horizon_s)
        if key not in self._answers:
            total_s = self._steps_of(market).starts_s(self._watched_s(horizon_s))
            some = total_s > 0 and bid_delta >= 0
            self._answers[key] = self._compute_answer(market, bid_delta, horizon_s) if some else (0.0, 0.0)
        return self._answers[key]

    def _compute_answer(self, market: Market, bid_delta: float, horizon_s: float) -> tuple[float, float]:
        """Computes the answer where some start is known."""
        watched_s = self._watched_s(horizon_s)
        total_s = self._steps_of(market).starts_s(watched_s)
        soon = self._crossing_index(market).survival_and_uptime(bid_delta, horizon_s, total_s)
        return (
            self._passages_for(market, bid_delta).survival_and_uptime(horizon_s, watched_s)
            if soon is None
            else soon
        )

    def _crossing_index(self, market: Market) -> CrossingIndex:
        """Returns the recorded index if it begins with what is known here, else a new one."""
        if market not in self._found:
            steps, whole = self._steps_of(market), self.model.recorded.get(market)
            at_hand = whole is not None and whole.begins_with(steps)
            self._found[market] = whole if whole is not None and at_hand else CrossingIndex.from_steps(steps)
        return self._found[market]

    def _watched_s(self, horizon_s: float) -> float:
        # One set of starts for all horizons up to the window: so beta never falls with the horizon.
        return max(horizon_s, self.model.window_s)

    def _passages_for(self, market: Market, bid_delta: float) -> Passages:
        key = (market, bid_delta)
        if key not in self._passages:
            self._passages[key] = Passages.from_steps(self._steps_of(market), bid_delta)
        return self._passages[key]

    def _steps_of(self, market: Market) -> PriceSteps:
        if market not in self._steps:
            self._steps[market] = PriceSteps.from_series(self.history.series(market), self.now)
        return self._steps[market]
