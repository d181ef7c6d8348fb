"""BidBrain as a strategy: whatever makes work cheapest, with AgileML (Proteus) or with checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bidbrain.arrays import Flags
from bidbrain.bidding import decide as live
from bidbrain.bidding.candidate_search import room, weigh_renewals, weigh_requests
from bidbrain.bidding.decision_batch import Codes, Held, Moments, Setting
from bidbrain.model import Decision, Observation
from bidbrain.strategies.base import NOTHING, Requests
from bidbrain.strategies.recovery import ELASTIC, Elastic, Recovery

_AT_ONCE: Final = 2**18
"""Requests weighed together: as many as stay in a processor's cache, however many jobs there are."""


@dataclass(frozen=True, slots=True)
class BidBrain:
    """Harlap 4.3. With ``Elastic`` recovery this is Proteus."""

    name: str = "proteus"
    recovery: Recovery = ELASTIC
    sizes: tuple[float, ...] = ()
    """Cores that requests try to make up; none: every count within the limits, as a running job does."""
    uses_reliable: bool = True
    """What must not be lost is kept there: the model, or the checkpoints."""

    def request(self, setting: Setting, at: Moments) -> Requests:
        """The request with the least E, where that is below E now."""
        believed, counts = self._believed(setting), self._counts(setting)
        weighed = counts.shape[1] * len(setting.markets) * len(setting.limits.bid_deltas)
        blocks = np.array_split(np.arange(len(at)), max(len(at) * weighed // _AT_ONCE, 1))
        asked = [self._request(believed, at.only(rows), counts) for rows in blocks]
        return Requests.of(
            np.concatenate([wanted.market for wanted in asked]),
            np.concatenate([wanted.count for wanted in asked]),
            np.concatenate([wanted.bid for wanted in asked]),
        )

    def _request(self, setting: Setting, at: Moments, counts: Codes) -> Requests:
        weighing = weigh_requests(setting, at, counts)
        market, count, delta, better = weighing.best()
        rows = np.arange(len(at))
        wanted = weighing.counts[rows, np.minimum(market, weighing.counts.shape[1] - 1), count]
        bid = np.round(at.prices[rows, market] + weighing.deltas[delta], 6)
        return Requests.of(np.where(better, market, NOTHING), np.where(better, wanted, 0), bid)

    def settled(self, setting: Setting, held: Held) -> Flags:
        """There is no room for more."""
        most: Codes = room(setting, held).max(axis=1)
        return most < 1

    def renew(self, setting: Setting, at: Moments, place: Codes) -> Flags:
        """Where E with one more hour is below E without."""
        return weigh_renewals(self._believed(setting), at, place).renew

    def decide(self, observation: Observation) -> Decision:
        """See ``bidbrain.bidding.decide``."""
        return live.decide(observation)

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """See ``bidbrain.bidding.decide``."""
        return live.renew_or_terminate(observation, holding_id)

    def _believed(self, setting: Setting) -> Setting:
        """With checkpoints an eviction costs more than lambda."""
        if isinstance(self.recovery, Elastic):
            return setting
        return replace(setting, scaling=replace(setting.scaling, lambda_s=self.recovery.lost_s))

    def _counts(self, setting: Setting) -> Codes:
        """(m or 1, c), increasing."""
        if not self.sizes:
            return np.arange(1, setting.limits.max_per_allocation + 1)[None, :]
        counts = np.array(self.sizes)[None, :] / setting.cores[:, None]
        return np.maximum(counts, 1).astype(np.int64)
