"""Simulates the provider's side of spot requests for n jobs: refusals, rests, and warnings.

It reads the future of the tape, which no strategy sees.
"""

from __future__ import annotations

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.price_tape import NEVER, PriceTape
from bidbrain.bidding.decision_batch import Codes
from bidbrain.bidding.decision_times import REFUSED_REST_S
from pricing_data.model.market import MarketRules


class SpotProvider:
    """Answers requests by the tape, and keeps which markets rest after a refusal.

    ``boot_s``: seconds from a request to a running machine. ``jobs``: number of all jobs.
    """

    def __init__(self, tape: PriceTape, rules: MarketRules, boot_s: int, jobs: int, markets: int) -> None:
        self._tape, self._rules, self._boot_s = tape, rules, boot_s
        self._rests_until = np.zeros((jobs, markets), np.int64)

    def is_refused(self, market: Codes, now: Codes, bid: Floats) -> Flags:
        """Returns which requests are refused: for lack of capacity, or a bid below the price."""
        refused = ~self._tape.capacity.has_capacity(market, now)
        if self._rules.cleared_by_bid:
            refused |= self._tape.price_at(market, now) > bid
        # Only spot requests are refused; an infinite bid stands for on demand.
        return refused & np.isfinite(bid)

    def warning_time(self, market: Codes, now: Codes, bid: Floats) -> Codes:
        """Returns when machines requested now are warned: at a price above their bid, or for their age."""
        warned = self._tape.capacity.taken_at(market, now)
        if self._rules.cleared_by_bid:
            warned = np.minimum(warned, self._tape.first_above(market, now, bid))
        if self._rules.max_lifetime_s is not None:
            lives_s = self._rules.max_lifetime_s - self._rules.notice_s
            # The age of a machine counts from its boot, not from the request.
            warned = np.minimum(warned, now + self._boot_s + lives_s)
        return np.where(np.isfinite(bid), warned, NEVER)

    def rest_market(self, jobs: Codes, market: Codes, now: Codes) -> None:
        """Keeps ``jobs`` from requesting in ``market`` again for a while, after a refusal."""
        self._rests_until[jobs, market] = now + REFUSED_REST_S

    def is_resting(self, jobs: Codes, now: Codes) -> Flags:
        """Returns, (k, m), which markets rest for ``jobs`` (k,) at ``now`` (k,)."""
        resting: Flags = self._rests_until[jobs] > now[:, None]
        return resting

    def next_chance(self, jobs: Codes, now: Codes) -> Codes:
        """Returns, (k,), when one market of ``jobs`` has rested, or changes its price."""
        rests, moment = self._rests_until[jobs], now[:, None]
        step = self._tape.step_at(np.arange(rests.shape[1]), moment)
        chances = np.minimum(np.where(rests > moment, rests, NEVER), self._tape.times[step + 1])
        soonest: Codes = chances.min(axis=1)
        return soonest
