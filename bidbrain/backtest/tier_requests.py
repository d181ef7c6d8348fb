"""Places the reliable machines of n jobs on spot or on demand, and sends jobs back when they are lost.

Mutable on purpose and private to the engine, as ``footprint_table.py``.
"""

from __future__ import annotations

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.price_tape import NEVER
from bidbrain.backtest.running_jobs import DecisionView, RunningJobs
from bidbrain.backtest.spot_provider import SpotProvider
from bidbrain.bidding.decision_batch import Codes, MarketSetup
from bidbrain.strategies.base import NO_REQUEST, PlacingStrategy
from bidbrain.strategies.reliable_tier import MAX_FAILED_RESTARTS, Restart


class TierRequests:
    """Requests reliable machines where ``strategy`` wants them.

    ``boot_s``: seconds from a request to a running machine; ``join_s``: from there to taking part.
    """

    def __init__(
        self,
        strategy: PlacingStrategy,
        setting: MarketSetup,
        restart: Restart,
        jobs: RunningJobs,
        view: DecisionView,
        provider: SpotProvider,
        boot_s: int,
        join_s: int,
    ) -> None:
        self._strategy, self._setting, self._restart = strategy, setting, restart
        self._jobs, self._view, self._provider = jobs, view, provider
        self._boot_s, self._join_s = boot_s, join_s

    def request_machines(self, rows: Codes) -> None:
        """Requests the reliable machines of ``rows``, elsewhere after a refusal, until all are granted."""
        jobs, tier = self._jobs, self._jobs.tier
        while len(rows):
            market, bid, waits = self._choose_markets(rows)
            self._wait_for_capacity(rows[waits])
            rows, market, bid = rows[~waits], market[~waits], bid[~waits]
            now, spot = jobs.now[rows], market != NO_REQUEST
            # On demand has no market of its own; code 0 only keeps the look-ups below within the arrays.
            code = np.maximum(market, 0)
            refused = spot & self._provider.is_refused(code, now, bid)
            self._provider.rest_market(jobs.number[rows[refused]], market[refused], now[refused])
            warned = np.where(spot, self._provider.warning_time(code, now, bid), NEVER)
            tier.market[rows], tier.bid[rows] = market, bid
            tier.runs_at[rows] = now + self._boot_s
            tier.joins_at[rows] = now + self._boot_s + self._join_s
            tier.asks_at[rows] = NEVER
            tier.warned_at[rows] = warned
            tier.ends_at[rows] = np.where(warned == NEVER, NEVER, warned + self._setting.rules.notice_s)
            rows = rows[refused]

    def _choose_markets(self, rows: Codes) -> tuple[Codes, Floats, Flags]:
        """Returns market, bid and whether to wait, each (k,); ``NO_REQUEST`` means on demand."""
        found = self._strategy.place_reliable(self._setting, self._view.decision_batch(rows), self._restart)
        spot = self._jobs.tier.failed_restarts[rows] < MAX_FAILED_RESTARTS
        return np.where(spot, found.market, NO_REQUEST), np.where(spot, found.bid, np.inf), found.waits & spot

    def _wait_for_capacity(self, rows: Codes) -> None:
        """Has ``rows`` request again once a market has rested, or a price has changed."""
        tier = self._jobs.tier
        tier.asks_at[rows] = self._provider.next_chance(self._jobs.number[rows], self._jobs.now[rows])
        for moments in (tier.joins_at, tier.runs_at, tier.warned_at, tier.ends_at):
            moments[rows] = NEVER

    def roll_back(self, rows: Codes) -> None:
        """Undoes work since the newest checkpoint."""
        tier, every = self._jobs.tier, max(self._restart.clocks, 1)
        # A checkpoint holds what the backups have, which lag one clock behind.
        reached = np.maximum(self._jobs.progress.clocks_done(rows) - 1, 0) // every * every
        kept = np.maximum(tier.checkpoint_clock[rows], reached)
        tier.failed_restarts[rows] = np.where(
            kept <= tier.began_from[rows], tier.failed_restarts[rows] + 1, 0
        )
        tier.checkpoint_clock[rows], tier.began_from[rows] = kept, kept
        self._jobs.progress.restart_from(rows, kept)
