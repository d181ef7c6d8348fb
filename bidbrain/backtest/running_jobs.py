"""Holds the jobs that are not done yet as columns, and what strategies are shown of them.

Mutable on purpose and private to the engine, as ``footprint_table.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.footprint_table import FootprintTable
from bidbrain.backtest.price_tape import PriceTape
from bidbrain.backtest.progress import JobProgress
from bidbrain.backtest.reliable_tier import TierTable
from bidbrain.backtest.spot_provider import SpotProvider
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, FootprintBatch, MarketSetup, SurvivalBatch
from bidbrain.strategies.base import NO_REQUEST, Strategy
from pricing_data.model.units import HOUR_S

FitSurvivals: TypeAlias = Callable[[Codes], SurvivalBatch]
"""Maps the moments at which n jobs last fitted their models to what they believe of evictions."""

REFIT_S: Final = HOUR_S
"""A running job fits its model every hour, from its start on."""


class RunningJobs:
    """Holds n jobs under way: row i of every table is the job ``number[i]``."""

    def __init__(self, setting: MarketSetup, strategy: Strategy, progress: JobProgress) -> None:
        size = len(progress.now)
        self._setting, self._strategy = setting, strategy
        self.number: Codes = np.arange(size)
        """(n,): positions among all jobs, which stay the same while others are done."""
        self.progress = progress
        self.places = FootprintTable.for_jobs(size)
        self.tier = TierTable.for_jobs(size)

    def __len__(self) -> int:
        return len(self.number)

    @property
    def now(self) -> Codes:
        return self.progress.now

    def keep_rows(self, rows: Codes) -> None:
        """Drops all jobs but ``rows``."""
        self.number = self.number[rows]
        self.progress.keep_rows(rows)
        self.places, self.tier = self.places.select(rows), self.tier.select(rows)

    def are_settled(self, staying: Flags) -> Flags:
        """Returns, (n,), whether the strategy needs nothing beyond the machines that are ``staying``."""
        places, nothing = self.places, np.zeros(self.places.count.shape)
        count = np.where(staying, places.count, 0)
        # What time changes (price, hours left, age) is left out: the answer must hold until machines change.
        held = FootprintBatch(
            places.market, count, places.bid, nothing, nothing, nothing, np.isinf(places.bid)
        )
        return self._strategy.needs_nothing(self._setting, held)

    def work_rates(self) -> Floats:
        """Returns, (n,), core-seconds of work per second."""
        setting, places, tier = self._setting, self.places, self.tier
        working = np.where(places.is_staying & (places.works_from <= self.now[:, None]), places.count, 0)
        instances = working.sum(axis=1).astype(np.float64)
        cores = (working * setting.cores[places.market]).sum(axis=1)
        if self._strategy.uses_reliable:
            there = ~tier.is_starting(self.now)
            # In stage 3 the reliable machines only hold backups.
            works = setting.scaling.reliable_work(instances, setting.reliable.count) & there
            on_spot = tier.market != NO_REQUEST
            each = np.where(on_spot, setting.cores[tier.market], setting.reliable.cores)
            instances = instances + works * setting.reliable.count
            cores = cores + works * setting.reliable.count * each
        return self.progress.work_rate(cores * setting.scaling.batch_efficiency(instances))


class DecisionView:
    """Shows strategies what a running job would see: prices up to now, and its own machines."""

    def __init__(
        self,
        jobs: RunningJobs,
        setting: MarketSetup,
        tape: PriceTape,
        provider: SpotProvider,
        beliefs: FitSurvivals,
        starts: Codes,
    ) -> None:
        self._jobs, self._setting, self._tape = jobs, setting, tape
        self._provider, self._beliefs, self._starts = provider, beliefs, starts

    def decision_batch(self, rows: Codes) -> DecisionBatch:
        """Returns what the strategy is shown for ``rows``, now."""
        jobs, number = self._jobs, self._jobs.number[rows]
        places, now = jobs.places.select(rows), jobs.now[rows]
        # The last refit of each job: hourly, counted from its own start.
        fitted = now - (now - self._starts[number]) % REFIT_S
        prices = self._tape.price_at(np.arange(len(self._setting.markets)), now[:, None])
        return DecisionBatch(
            now=now,
            prices=prices,
            open=np.isfinite(prices) & ~self._provider.is_resting(number, now),
            held=self._footprint_batch(places, now[:, None]),
            work_left=jobs.progress.work_left(rows),
            survivals=self._beliefs(fitted),
        )

    def _footprint_batch(self, places: FootprintTable, now: Codes) -> FootprintBatch:
        age = np.maximum(now - places.runs_at, 0)
        runs = places.runs_at <= now
        on_demand = np.isinf(places.bid)
        # A spot hour costs the price in force at its beginning, whatever the price does later.
        spot = self._tape.price_at(places.market, np.where(runs, now - age % HOUR_S, now))
        return FootprintBatch(
            market=places.market,
            count=np.where(places.is_staying, places.count, 0),
            bid=places.bid,
            price=np.where(on_demand, self._setting.on_demand[places.market], spot),
            left_s=np.where(runs, places.until - now, HOUR_S).astype(np.float64),
            age_s=age.astype(np.float64),
            on_demand=on_demand,
        )
