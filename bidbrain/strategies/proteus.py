"""Implements BidBrain as a strategy: requests whatever makes work cheapest (Harlap 4.3).

With AgileML it is Proteus; with checkpoints it is the paper's comparison of the same bids without AgileML.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bidbrain.arrays import Flags
from bidbrain.bidding import decide as live
from bidbrain.bidding.candidate_search import request_room, score_renewals, score_requests
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, FootprintBatch, MarketSetup
from bidbrain.model import Decision, Observation
from bidbrain.strategies.base import NO_REQUEST, RequestBatch
from bidbrain.strategies.recovery import ELASTIC, Elastic, Recovery

_AT_ONCE: Final = 2**18
"""Candidates scored together: as many as fit in a processor's cache, however many jobs there are."""


@dataclass(frozen=True, slots=True)
class BidBrain:
    """Implements Harlap 4.3. With ``Elastic`` recovery this is Proteus."""

    name: str = "proteus"
    recovery: Recovery = ELASTIC
    sizes: tuple[float, ...] = ()
    """Total cores to request, in each market as many machines as make them up.

    If empty, requests try every count within the limits, as a running job does.
    """
    uses_reliable: bool = True
    """Reliable machines keep the model, or the checkpoints."""

    def choose_requests(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        """Chooses the request with the least E, where that is below E now (Harlap 4.3.2)."""
        with_recovery, counts = self._with_recovery_cost(setting), self._candidate_counts(setting)
        candidates = counts.shape[1] * len(setting.markets) * len(setting.limits.bid_deltas)
        # Scored in blocks: the arrays of all jobs at once would not fit in the processor's cache.
        blocks = np.array_split(np.arange(len(at)), max(len(at) * candidates // _AT_ONCE, 1))
        requests = [self._choose_block(with_recovery, at.select(rows), counts) for rows in blocks]
        return RequestBatch.one_each(
            np.concatenate([block.market for block in requests]),
            np.concatenate([block.count for block in requests]),
            np.concatenate([block.bid for block in requests]),
        )

    def _choose_block(self, setting: MarketSetup, at: DecisionBatch, counts: Codes) -> RequestBatch:
        weighing = score_requests(setting, at, counts)
        market, count, delta, better = weighing.best_candidates()
        rows = np.arange(len(at))
        # One row of counts may serve all markets; its only column is 0.
        wanted = weighing.counts[rows, np.minimum(market, weighing.counts.shape[1] - 1), count]
        # The same rounding as a live decision's bid, so that a backtest asks for the same price.
        bid = np.round(at.prices[rows, market] + weighing.deltas[delta], 6)
        return RequestBatch.one_each(np.where(better, market, NO_REQUEST), np.where(better, wanted, 0), bid)

    def needs_nothing(self, setting: MarketSetup, held: FootprintBatch) -> Flags:
        """Returns, (n,), whether the limits leave no room for another machine."""
        most: Codes = request_room(setting, held).max(axis=1)
        return most < 1

    def choose_renewals(self, setting: MarketSetup, at: DecisionBatch, place: Codes) -> Flags:
        """Renews where E with one more hour is below E without it."""
        return score_renewals(self._with_recovery_cost(setting), at, place).should_renew

    def decide(self, observation: Observation) -> Decision:
        """See ``bidbrain.bidding.decide``."""
        return live.decide(observation)

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """See ``bidbrain.bidding.decide``."""
        return live.renew_or_terminate(observation, holding_id)

    def _with_recovery_cost(self, setting: MarketSetup) -> MarketSetup:
        """Returns ``setting`` with lambda set to the time that ``recovery`` loses per eviction."""
        # AgileML's lambda is measured or configured already; checkpoints redo work on top.
        if isinstance(self.recovery, Elastic):
            return setting
        return replace(setting, scaling=replace(setting.scaling, lambda_s=self.recovery.lost_s))

    def _candidate_counts(self, setting: MarketSetup) -> Codes:
        """Returns counts to try, (m or 1, c), increasing."""
        if not self.sizes:
            return np.arange(1, setting.limits.max_per_allocation + 1)[None, :]
        # At least one machine, where a single one has more cores than asked for.
        counts = np.array(self.sizes)[None, :] / setting.cores[:, None]
        return np.maximum(counts, 1).astype(np.int64)
