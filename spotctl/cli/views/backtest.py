"""Shows a backtest to people and to programs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bidbrain.backtest.statistics import Interval, Summary
from bidbrain.strategies.registry import LIVE
from pricing_data.model.units import HOUR_S, format_instant, format_micros, to_micros
from spotctl.backtest.result import BacktestResult, StrategyResult
from spotctl.backtest.with_deadline import ProgressListener
from spotctl.cli.format import amounts, output
from spotctl.job.clock_work import ESTIMATES_WITHIN, ClockWork, WorkSource
from spotctl.report.final import baselines_document
from spotctl.report.summary import AS_FAST, MEANINGS


@contextmanager
def show_progress() -> Iterator[ProgressListener]:
    """Shows how many jobs were run, redrawn on standard error for people; nothing for others."""
    with output.stderr_console().status("backtesting") if output.for_people() else nullcontext() as status:

        def told(done: int, total: int) -> None:
            if status is not None:
                status.update(f"kept within the deadline: {done} of {total} jobs")

        yield told


def draw_backtest(result: BacktestResult) -> RenderableType:
    """Draws a line for each strategy, and what they are compared with, for people."""
    first, last = (format_instant(moment)[:16] for moment in result.window)
    table = Table(box=None, pad_edge=False)
    table.add_column("strategy", no_wrap=True)
    for column in ("$ per job", "95 % interval", "p5 .. p95", "relative", "hours"):
        table.add_column(column, justify="right")
    for column in ("free", "evictions", "late", "unfinished"):
        table.add_column(column, justify="right")
    for strategy in result.strategies:
        table.add_row(*_strategy_row(strategy))
    notes = (
        *_describe_deadline(result),
        *_for_comparison(result),
        *_on_demand(result),
        f"least possible, all prices known: ${result.oracle_paid.mean:.4f} a job without refunds; "
        f"with refunds at least ${result.oracle.mean:.4f}",
        *_describe_work(result.clock_work),
        f"{result.label}; rules {result.rules}; seed {result.seed}; {result.elapsed_s:.1f} s",
    )
    title = Text(f"{result.job}: {result.starts} starts from {first} to {last}", style="bold")
    return Group(title, table, Text(""), *(Text(note, style="dim") for note in notes))


def _describe_work(clock: ClockWork) -> Iterator[str]:
    """Says what all sums rest on, where the job file does not say it."""
    size = f"{clock.core_seconds:.3g} core-seconds"
    if clock.source is WorkSource.ESTIMATED:
        yield f"a clock is estimated at {size} by its input, right within a factor of {ESTIMATES_WITHIN:g}"
    elif clock.source is WorkSource.ASSUMED:
        yield f"a clock is taken for {size}, as local.core_seconds_per_clock is not set"


def _describe_deadline(result: BacktestResult) -> Iterator[str]:
    """Says what the deadline means for which rows; nothing where there is none."""
    kept = [strategy for strategy in result.strategies if strategy.kept]
    if kept:
        names = "; ".join(strategy.name for strategy in kept)
        yield f"kept within the deadline, as a run is: {names}; from {kept[0].starts} of the starts"
    if result.refused:
        yield f"a launch would be refused: {result.refused}"
    elif any(strategy.deadline_misses for strategy in result.strategies if not strategy.kept):
        yield "late: strategies alone; a run has a safety net that would buy machines on demand in time"


def _for_comparison(result: BacktestResult) -> Iterator[str]:
    """Names the rows that no user could have."""
    names = [s.name for s in result.strategies if not s.kept and s.name not in LIVE]
    if names:
        yield f"only to compare with, as no job can be launched with them: {', '.join(names)}"


def _on_demand(result: BacktestResult) -> Iterator[str]:
    """Describes both baselines of the strategy that cost least."""
    done = [s for s in result.strategies if s.cost is not None and s.name in result.baselines]
    if not done:
        return
    best = min(done, key=_mean_cost)
    found = result.baselines[best.name]
    for name, way in found.by_name.items():
        means = f"the same work as fast as {best.name}, on demand" if name == AS_FAST else MEANINGS[name]
        yield (
            f"{means}: ${format_micros(way.cost)} by {way.machines} x "
            f"{way.market.instance_type} in {way.seconds / HOUR_S:.2f} h"
        )
    cheaper = found.rental.cost / 1e6
    share = 1 - _mean_cost(best) / cheaper if cheaper else 0.0
    than = "beside" if share >= 0 else "than"
    yield f"{best.name}: {amounts.format_savings(share)} {than} {MEANINGS[found.headline]}"


def _mean_cost(strategy: StrategyResult) -> float:
    """Returns dollars per job; infinite where none was done."""
    return math.inf if strategy.cost is None else strategy.cost.mean


def _strategy_row(strategy: StrategyResult) -> tuple[str, ...]:
    last = (
        f"{strategy.free_fraction:.1%}",
        f"{strategy.evictions:.2f}",
        str(strategy.deadline_misses),
        str(strategy.unfinished),
    )
    if strategy.cost is None or strategy.cost_interval is None or strategy.finish_s is None:
        return (strategy.name, *("-" for _ in range(5)), *last)
    relative = "-" if strategy.relative_cost is None else f"{strategy.relative_cost:.3f}"
    return (
        strategy.name,
        f"{strategy.cost.mean:.4f}",
        f"{strategy.cost_interval.low:.4f} .. {strategy.cost_interval.high:.4f}",
        f"{strategy.cost.p5:.4f} .. {strategy.cost.p95:.4f}",
        relative,
        f"{strategy.finish_s.mean / HOUR_S:.2f}",
        *last,
    )


def backtest_document(result: BacktestResult) -> dict[str, Any]:
    """Builds the object for programs: ``spotctl.backtest/1``."""
    return {
        "schema": "spotctl.backtest/1",
        "job": result.job,
        "prices": result.label,
        "rules": result.rules,
        "window": {"from": format_instant(result.window[0]), "to": format_instant(result.window[1])},
        "starts": result.starts,
        "seed": result.seed,
        "strategies": {
            strategy.name: {
                **_strategy_fields(strategy),
                "baselines": baselines_document(result.baselines.get(strategy.name), None),
            }
            for strategy in result.strategies
        },
        "oracle": {
            "cost": _dollar_fields(result.oracle),
            "cost_without_refunds": _dollar_fields(result.oracle_paid),
        },
        "core_seconds_per_clock": result.clock_work.core_seconds,
        "work_source": result.clock_work.source.value,
        "refused": result.refused or None,
        "elapsed_seconds": result.elapsed_s,
    }


def _strategy_fields(strategy: StrategyResult) -> dict[str, Any]:
    return {
        "kept": strategy.kept,
        "starts": strategy.starts,
        "cost": _dollar_fields(strategy.cost),
        "cost_interval": _interval_fields(strategy.cost_interval),
        "finish_seconds": _second_fields(strategy.finish_s),
        "relative_cost": strategy.relative_cost,
        "deadline_misses": strategy.deadline_misses,
        "free_fraction": strategy.free_fraction,
        "evictions": strategy.evictions,
        "unfinished": strategy.unfinished,
    }


def _dollar_fields(summary: Summary | None) -> dict[str, str] | None:
    if summary is None:
        return None
    return {name: format_micros(to_micros(value)) for name, value in _summary_values(summary).items()}


def _interval_fields(interval: Interval | None) -> dict[str, str] | None:
    if interval is None:
        return None
    return {"low": format_micros(to_micros(interval.low)), "high": format_micros(to_micros(interval.high))}


def _second_fields(summary: Summary | None) -> dict[str, float] | None:
    return None if summary is None else _summary_values(summary)


def _summary_values(summary: Summary) -> dict[str, float]:
    return {"mean": summary.mean, "p5": summary.p5, "p50": summary.p50, "p95": summary.p95}
