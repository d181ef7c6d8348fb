"""Runs a backtest: what each strategy's jobs cost and took, beside the clairvoyant optimum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.backtest.oracle import clairvoyant_bound
from bidbrain.backtest.run import backtest
from bidbrain.backtest.statistics import Interval, Outcomes, Summary, mean_interval
from bidbrain.bidding.decision_batch import Codes
from pricing_data.model.units import Instant
from spotctl.backtest.prepare import BacktestOptions, PreparedBacktest
from spotctl.backtest.strategies import (
    BASELINE,
    MENU,
    row_name,
    strategies_with_deadline,
    strategies_without_deadline,
)
from spotctl.backtest.with_deadline import ProgressListener, run_with_deadline, starts_of, why_refused
from spotctl.job.clock_work import ClockWork
from spotctl.report.baselines import Baselines, find_baselines

_ORACLE_STARTS: Final = 200
"""Most starts for which the oracle runs, evenly chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class StrategyResult:
    """Holds one strategy's results, alone or kept within the deadline. Values unknown without a finished job
    are None; jobs cut off by the end of the prices count only in ``unfinished`` and ``deadline_misses``."""

    name: str
    kept: bool
    """Whether it was kept within the job's deadline, as a run is."""
    starts: int
    costs: Floats
    """Dollars of the finished jobs."""
    cost: Summary | None
    cost_interval: Interval | None
    """95 % confidence interval of the mean."""
    finish_s: Summary | None
    relative_cost: float | None
    """Mean cost over on-demand's from the same starts."""
    deadline_misses: int
    free_fraction: float
    evictions: float
    """Evicted allocations per job."""
    unfinished: int


@dataclass(frozen=True, slots=True, eq=False)
class BacktestResult:
    job: str
    label: str
    rules: str
    window: tuple[Instant, Instant]
    starts: int
    seed: int
    strategies: tuple[StrategyResult, ...]
    oracle: Summary
    """The least possible cost with all prices known (``bidbrain.backtest.oracle``), refunds included."""
    oracle_paid: Summary
    """The same without refunds."""
    clock_work: ClockWork
    """How much work a clock of the job was assumed to be."""
    refused: str
    """Why a launch would refuse the job; empty where it would not."""
    elapsed_s: float
    baselines: Mapping[str, Baselines]
    """By strategy: the job on demand, as fast as the strategy on average, and the cheapest way."""

    def strategy_result(self, name: str) -> StrategyResult:
        """Returns one strategy's result. Raises KeyError for one that was not run."""
        return next(found for found in self.strategies if found.name == name)


def run_backtest(
    name: str, prepared: PreparedBacktest, options: BacktestOptions, elapsed_s: float, told: ProgressListener
) -> BacktestResult:
    """Runs every requested strategy; a caller with a clock fills in ``elapsed_s``.

    ``told`` hears of jobs that are run one by one. Raises UsageError where a strategy needs a deadline.
    """
    terms = prepared.resolved.terms
    to_keep = strategies_with_deadline(
        terms.objective.deadline_s, options.strategies, terms.objective.strategy
    )
    ran = {name: _run_strategy(name, prepared) for name in strategies_without_deadline(options.strategies)}
    kept = run_with_deadline(prepared, to_keep, told) if to_keep else {}
    seed, some = options.seed, starts_of(prepared.starts)
    # Both sums of on-demand costs are over the very starts that they are compared with.
    whole, part = _mean_cost(ran[BASELINE], np.arange(len(prepared.starts))), _mean_cost(ran[BASELINE], some)
    found = (_build_result(name, outcomes, seed, whole) for name, outcomes in ran.items())
    found_kept = (
        _build_result(row_name(name), outcomes, seed, part, kept=True) for name, outcomes in kept.items()
    )
    free, paid = _clairvoyant_bounds(prepared, ran.values(), kept.values())
    results = (*found, *found_kept)
    return BacktestResult(
        job=name,
        label=terms.origin.prices,
        rules=terms.rules.name,
        window=prepared.window,
        starts=len(prepared.starts),
        seed=seed,
        strategies=results,
        oracle=free,
        oracle_paid=paid,
        clock_work=prepared.clock_work,
        refused=why_refused(prepared),
        elapsed_s=elapsed_s,
        baselines=_strategy_baselines(prepared, results),
    )


def _strategy_baselines(
    prepared: PreparedBacktest, results: Iterable[StrategyResult]
) -> dict[str, Baselines]:
    """Returns baselines for the strategies that finished jobs."""
    terms, work = prepared.resolved.terms, prepared.job.work
    speeds = {t.market.instance_type: t.nu for t in (*terms.spot, terms.reliable)}
    return {
        result.name: baselines
        for result in results
        if result.finish_s is not None
        and (baselines := find_baselines(terms, speeds, terms.work.scaling, work, result.finish_s.mean))
    }


def _clairvoyant_bounds(
    prepared: PreparedBacktest, ran: Iterable[Outcomes], kept: Iterable[Outcomes]
) -> tuple[Summary, Summary]:
    """Returns the least costs with and without refunds, for jobs done no later than the slowest
    strategy's.
    """
    # The oracle takes far longer than a strategy; its mean needs fewer starts.
    some = slice(None, None, ceil(len(prepared.starts) / _ORACLE_STARTS))
    # The bound may use as much time as the slowest strategy took, or it would bound nothing.
    latest_kept_s = max((float(_finished_s(o).max()) for o in kept), default=0.0)
    horizon_s = np.maximum(np.stack([_finished_s(o)[some] for o in ran]).max(axis=0), latest_kept_s)
    free, paid = (
        clairvoyant_bound(
            prepared.setting, prepared.job, prepared.tape, prepared.starts[some], horizon_s, refunds=refunds
        )
        for refunds in (True, False)
    )
    return Summary.from_values(free), Summary.from_values(paid)


def _finished_s(outcomes: Outcomes) -> Floats:
    """Returns finish times, shape (n,): 0 where a job was never done."""
    return np.where(np.isfinite(outcomes.finish_s), outcomes.finish_s, 0.0)


def _run_strategy(name: str, prepared: PreparedBacktest) -> Outcomes:
    strategy = MENU[name](prepared.cores, prepared.checkpoints)
    chances = prepared.chances
    return backtest(
        strategy, prepared.setting, prepared.job, prepared.tape, lambda _: chances, prepared.starts
    ).outcomes


def _mean_cost(outcomes: Outcomes, rows: Codes) -> float | None:
    """Returns the mean dollars of the finished jobs among ``rows``; None where there is none."""
    # A job that was cut off has paid only a part of its cost.
    costs = outcomes.cost[rows][np.isfinite(outcomes.finish_s[rows])]
    return float(costs.mean()) if len(costs) else None


def _build_result(
    name: str, outcomes: Outcomes, seed: int, baseline: float | None, *, kept: bool = False
) -> StrategyResult:
    done = np.isfinite(outcomes.finish_s)
    costs, finish_s = outcomes.cost[done], outcomes.finish_s[done]
    some = bool(done.any())
    return StrategyResult(
        name=name,
        kept=kept,
        starts=len(outcomes),
        costs=costs,
        cost=Summary.from_values(costs) if some else None,
        cost_interval=(
            mean_interval(costs, outcomes.start[done], max(float(finish_s.max()), 1.0), seed)
            if some
            else None
        ),
        finish_s=Summary.from_values(finish_s) if some else None,
        relative_cost=float(costs.mean()) / baseline if some and baseline else None,
        deadline_misses=int(outcomes.late.sum()),
        free_fraction=outcomes.free_share,
        evictions=float(outcomes.evictions.mean()),
        unfinished=int((~done).sum()),
    )
