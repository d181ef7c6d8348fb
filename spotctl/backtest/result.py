"""A backtest, run: what each strategy's jobs cost and took, beside what nobody could have beaten."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from bidbrain.backtest.oracle import clairvoyant
from bidbrain.backtest.outcomes import Interval, Outcomes, Summary, mean_interval
from bidbrain.backtest.run import backtest
from bidbrain.work import Floats
from pricing_data.units import Instant
from spotctl.backtest.menu import BASELINE, MENU, named
from spotctl.backtest.prepare import BacktestOptions, Prepared

_ORACLE_STARTS: Final = 200
"""The oracle looks at no more of the starts, evenly chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class StrategyResult:
    """One strategy. What is not known where no job was done is None; jobs cut off by the end of the prices
    count in nothing but ``unfinished`` and ``deadline_misses``."""

    name: str
    costs: Floats
    """Dollars of the jobs that were done."""
    cost: Summary | None
    cost_interval: Interval | None
    """95 %, of the mean."""
    finish_s: Summary | None
    relative_cost: float | None
    """Mean cost over on-demand's."""
    deadline_misses: int
    free_fraction: float
    evictions: float
    """Allocations per job."""
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
    """The least that knowing all prices could cost (``bidbrain.backtest.oracle``), refunds included."""
    oracle_paid: Summary
    """The same without refunds."""
    elapsed_s: float

    def strategy(self, name: str) -> StrategyResult:
        """Raises KeyError for one that was not run."""
        return next(found for found in self.strategies if found.name == name)


def run_backtest(name: str, prepared: Prepared, options: BacktestOptions, elapsed_s: float) -> BacktestResult:
    """Run every strategy that was asked for; ``elapsed_s`` is filled in by who has a clock."""
    ran = {name: _outcomes(name, prepared) for name in named(options.strategies)}
    baseline = _mean(ran[BASELINE])
    setting, job, tape = prepared.setting, prepared.job, prepared.tape
    some = slice(None, None, ceil(len(prepared.starts) / _ORACLE_STARTS))
    finished = np.stack([np.where(np.isfinite(o.finish_s), o.finish_s, 0.0)[some] for o in ran.values()])
    horizon_s, starts = finished.max(axis=0), prepared.starts[some]
    bounds = [
        clairvoyant(setting, job, tape, starts, horizon_s, refunds=refunds) for refunds in (True, False)
    ]
    return BacktestResult(
        job=name,
        label=prepared.label,
        rules=setting.rules.name,
        window=prepared.window,
        starts=len(prepared.starts),
        seed=options.seed,
        strategies=tuple(_result(name, o, baseline, options.seed) for name, o in ran.items()),
        oracle=Summary.of(bounds[0]),
        oracle_paid=Summary.of(bounds[1]),
        elapsed_s=elapsed_s,
    )


def _outcomes(name: str, prepared: Prepared) -> Outcomes:
    strategy = MENU[name](prepared.cores, prepared.checkpoints)
    tables = prepared.tables
    return backtest(
        strategy, prepared.setting, prepared.job, prepared.tape, lambda _: tables, prepared.starts
    ).outcomes


def _mean(outcomes: Outcomes) -> float | None:
    done = np.isfinite(outcomes.finish_s)
    return float(outcomes.cost[done].mean()) if done.any() else None


def _result(name: str, outcomes: Outcomes, baseline: float | None, seed: int) -> StrategyResult:
    done = np.isfinite(outcomes.finish_s)
    costs, finish_s = outcomes.cost[done], outcomes.finish_s[done]
    some = bool(done.any())
    return StrategyResult(
        name=name,
        costs=costs,
        cost=Summary.of(costs) if some else None,
        cost_interval=(
            mean_interval(costs, outcomes.start[done], max(float(finish_s.max()), 1.0), seed)
            if some
            else None
        ),
        finish_s=Summary.of(finish_s) if some else None,
        relative_cost=float(costs.mean()) / baseline if some and baseline else None,
        deadline_misses=int(outcomes.late.sum()),
        free_fraction=outcomes.free_share,
        evictions=float(outcomes.evictions.mean()),
        unfinished=int((~done).sum()),
    )
