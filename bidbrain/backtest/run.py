"""Runs one strategy from many starts, settles its bills, and fills the columns of ``statistics.py``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.backtest.bills import Bills, settle_all
from bidbrain.backtest.engine import BatchResult, run_batch
from bidbrain.backtest.job import BacktestJob
from bidbrain.backtest.price_tape import NEVER, PriceTape
from bidbrain.backtest.running_jobs import FitSurvivals
from bidbrain.backtest.statistics import Outcomes
from bidbrain.backtest.terminations import EndedAllocations
from bidbrain.bidding.decision_batch import Codes, MarketSetup
from bidbrain.strategies.base import Strategy


@dataclass(frozen=True, slots=True, eq=False)
class BacktestRuns:
    """Holds a strategy's jobs, in rows of starts and in rows of allocations."""

    strategy: str
    outcomes: Outcomes
    ran: BatchResult
    bills: Bills
    """Bills of ``ran.ended``."""
    tier: tuple[Bills, Bills]
    """Bills of the reliable machines, on demand and on spot, one row per job in each."""

    @property
    def owed_micros(self) -> Codes:
        """Returns micro-dollars owed, (n,)."""
        return _per_job(self.ran, self.bills.amount) + self.tier[0].amount + self.tier[1].amount


def backtest(
    strategy: Strategy,
    setting: MarketSetup,
    job: BacktestJob,
    tape: PriceTape,
    beliefs: FitSurvivals,
    starts: Codes,
) -> BacktestRuns:
    """Runs ``job`` from each of ``starts`` (n,) and settles it by ``job.accounting``.

    See ``engine.run_batch``.
    """
    ran = run_batch(strategy, setting, job, tape, beliefs, starts)
    bills = settle_all(setting.rules, setting.on_demand, tape, ran.ended, job.accounting)
    tier = _reliable_tier(strategy, setting, job, tape, ran, starts)
    rented, lent = tier
    micros = _per_job(ran, bills.amount) + rented.amount + lent.amount
    listed = ran.ended.on_demand
    finish_s = np.where(ran.done_at == NEVER, np.inf, ran.done_at - starts)
    deadline_s = np.inf if job.deadline_s is None else job.deadline_s
    outcomes = Outcomes(
        start=starts,
        cost=micros / 1e6,
        finish_s=finish_s,
        on_demand_s=_as_floats(_per_job(ran, np.where(listed, bills.paid_s, 0)) + rented.paid_s),
        spot_s=_as_floats(_per_job(ran, np.where(listed, 0, bills.paid_s)) + lent.paid_s),
        free_s=_as_floats(_per_job(ran, bills.free_s) + lent.free_s),
        evictions=ran.evictions,
        late=finish_s > deadline_s if job.deadline_s is not None else np.zeros(len(starts), np.bool_),
    )
    return BacktestRuns(strategy.name, outcomes, ran, bills, tier)


def _reliable_tier(
    strategy: Strategy,
    setting: MarketSetup,
    job: BacktestJob,
    tape: PriceTape,
    ran: BatchResult,
    starts: Codes,
) -> tuple[Bills, Bills]:
    """Bills the machines that keep the model, on demand and on spot, one row per job in each."""
    size = len(starts)
    rented = _rented_tier(strategy, setting, job, tape, ran, starts) if ran.tier is None else ran.tier
    listed = rented.on_demand
    price = np.array([setting.reliable.price])
    on_demand = settle_all(
        setting.rules,
        price,
        tape,
        # On-demand reliable machines are billed at one price, as market 0 of a list of one.
        replace(rented.select(listed), market=np.zeros(listed.sum(), np.int64)),
        job.accounting,
    )
    spot = settle_all(setting.rules, setting.on_demand, tape, rented.select(~listed), job.accounting)
    return on_demand.sum_per_job(rented.job[listed], size), spot.sum_per_job(rented.job[~listed], size)


def _rented_tier(
    strategy: Strategy,
    setting: MarketSetup,
    job: BacktestJob,
    tape: PriceTape,
    ran: BatchResult,
    starts: Codes,
) -> EndedAllocations:
    """Returns reliable machines on demand from the start of the job to its end."""
    size = len(starts)
    runs_at = starts + job.boot_s
    return EndedAllocations(
        job=np.arange(size),
        market=np.zeros(size, np.int64),
        count=np.full(size, setting.reliable.count if strategy.uses_reliable else 0),
        bid=np.full(size, np.inf),
        number=np.zeros(size, np.int64),
        requested_at=starts,
        runs_at=runs_at,
        end=np.maximum(np.minimum(ran.done_at, tape.end), runs_at),
        evicted=np.zeros(size, np.bool_),
        at_finish=np.ones(size, np.bool_),
    )


def _per_job(ran: BatchResult, values: Codes) -> Codes:
    """Sums over the allocations of each job, (n,); exact, as no sum comes near 2 ** 53."""
    total: Codes = np.bincount(ran.ended.job, weights=values, minlength=len(ran.begins)).astype(np.int64)
    return total


def _as_floats(values: Codes) -> Floats:
    return values.astype(np.float64)
