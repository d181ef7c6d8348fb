"""Computes each market's expected cost of a worker-hour, and the share of it that becomes work.

    c     cost    expected dollars per worker-hour: charge, net of refunds
    u     useful  share of a worker's time that is work; changes and evictions take the rest
    T     rate    core-seconds per second of all the job's workers together, u included

Sharing policies (``cluster.policies``) compare c and T, and so need no prices and no evictions. Each market
is evaluated at the bid that makes its work cheapest, as a request is (Harlap 4.3.2), for the first hour of a
worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from bidbrain.bidding.footprint import bid_deltas, request_grid
from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.model import Observation
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, UsdPerHour


@dataclass(frozen=True, slots=True)
class MarketOutlook:
    """Describes one market for one job with a given number of workers."""

    cost: UsdPerHour
    useful: float
    rate: float

    @property
    def cost_per_useful_hour(self) -> float:
        """Returns dollars for an hour of one worker's work."""
        return self.cost / self.useful

    @property
    def cost_per_work(self) -> float:
        """Returns cost over speed, to compare pools of different workers.

        The unit is dollars per hour of one worker, over core-seconds per second of all workers.
        """
        return self.cost / self.rate


def market_outlooks(observation: Observation, workers: int) -> Mapping[Market, MarketOutlook]:
    """Returns an outlook for every open market where evictions are known and ``workers`` do any work."""
    single = ObservationBatch.from_observation(replace(observation, footprint=()))
    setting, at, scaling = single.setting, single.at, observation.scaling
    # The count does not matter for one worker's first hour: sharing policies scale it.
    grid = request_grid(setting, at, np.ones((1, 1, 1), np.int64), bid_deltas(setting))
    uptime, survival, charge = grid.uptime_s[0], grid.survival[0], grid.charge[0]
    work_s = np.maximum(uptime - scaling.sigma_s - (1 - survival) * scaling.lambda_s, 0.0)
    per_work = np.divide(charge, work_s, out=np.full(work_s.shape, np.inf), where=work_s > 0)
    known = (
        at.open[0]
        & np.isfinite(at.prices[0])
        & np.broadcast_to(at.survivals.known_markets(), (1, len(per_work)))[0]
    )
    # Workers wait for each other, so together they do less than one worker times their number.
    together = workers * scaling.efficiency(workers)
    found = {}
    for number, market in enumerate(setting.markets):
        bid = int(per_work[number].argmin())
        if not known[number] or not np.isfinite(per_work[number, bid]):
            continue
        useful = float(work_s[number, bid] / uptime[number, bid])
        cost = UsdPerHour(float(charge[number, bid] / uptime[number, bid] * HOUR_S))
        found[market] = MarketOutlook(cost, useful, float(setting.cores[number]) * together * useful)
    return found
