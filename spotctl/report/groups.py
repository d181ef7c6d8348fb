"""Adds up the sums of many runs by job, day, month, cloud or market. Pure.

A baseline belongs to a whole run, so it is compared where whole runs are added up: by job, day and month, and
in the total. A run counts on the day on which it began, by the wall clock. The cost of a run that has not
finished, or cannot be compared, is part of what was paid, and of no saving.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from pricing_data.model.units import MicroUsd
from spotctl.report.groupings import Grouping
from spotctl.report.summary import MarketSums, RunSummary

NOTHING: Final = MicroUsd(0)


@dataclass(frozen=True, slots=True)
class BaselineComparison:
    """Compares whole runs with what their work costs on demand. Amounts are None if no run is compared."""

    baseline: MicroUsd | None = None
    """The cheaper of both baselines of each compared run."""
    as_fast: MicroUsd | None = None
    """The same work as fast, on demand; where nothing is as fast, the cheapest way."""
    cheapest: MicroUsd | None = None
    """The cheapest way on demand."""
    uncompared: MicroUsd = NOTHING
    """What the other runs cost."""
    uncompared_runs: Mapping[str, str] = field(default_factory=dict)
    """The other runs, with the reason."""


@dataclass(frozen=True, slots=True)
class Group:
    """Sums up what was paid, and for what."""

    key: str
    runs: int
    paid_s: int
    """Instance-seconds on spot machines that were paid for."""
    free_s: int
    """Instance-seconds on spot machines that were refunded."""
    on_demand_s: int
    spot: MicroUsd
    """Net of ``refunded``."""
    on_demand: MicroUsd
    refunded: MicroUsd
    egress: MicroUsd
    """For checkpoints that left a region; counted in the region that they left."""
    evictions: int
    """Allocations that were warned, as a run counts them."""
    evicted: int
    """Instances that the provider took back."""
    unfinished: int = 0
    """How many of ``runs`` have not ended: their cost is known up to their last entry."""
    clocks_redone: int | None = None
    """Work lost; None for parts of runs."""
    seconds_redone: int | None = None
    """Seconds that commands' programs ran in vain; None for parts of runs."""
    comparison: BaselineComparison = BaselineComparison()
    """Empty for parts of runs, as a baseline belongs to a whole run."""

    @property
    def total(self) -> MicroUsd:
        return MicroUsd(self.spot + self.on_demand + self.egress)

    @property
    def savings(self) -> float | None:
        """Returns the share of the baseline that was not spent, for the compared runs."""
        found = self.comparison
        return None if not found.baseline else 1 - (self.total - found.uncompared) / found.baseline


Summaries: TypeAlias = Mapping[str, RunSummary]
"""Maps the name under which a run is shown to its summary."""


def group_runs(runs: Summaries, by: Grouping) -> tuple[Group, ...]:
    """Returns one group for each key that occurs, in order."""
    if by in _PARTS:
        return _grouped_parts(runs, _PARTS[by])
    # Days and months are those of the wall clock when a run began: that is how people look for it.
    key, whole = _WHOLE[by], dict[str, dict[str, RunSummary]]()
    for name, run in runs.items():
        whole.setdefault(key(run), {})[name] = run
    return tuple(_sum_runs(key, whole[key]) for key in sorted(whole))


def group_all(runs: Summaries) -> Group:
    """Returns everything in one group."""
    return _sum_runs("total", runs)


def local_day(began: float) -> str:
    """Returns the day of a moment of the wall clock, in this computer's time zone."""
    return dt.datetime.fromtimestamp(began).astimezone().strftime("%Y-%m-%d")


def time_zone(at: float) -> str:
    """Returns this computer's time zone at a moment of the wall clock, like "CET, UTC+0100", or "UTC"."""
    zone = dt.datetime.fromtimestamp(at).astimezone().strftime("%Z, UTC%z")
    return zone.removesuffix(", UTC+0000") if zone.startswith("UTC,") else zone


def _grouped_parts(runs: Summaries, key: Callable[[MarketSums], str]) -> tuple[Group, ...]:
    parts: dict[str, list[MarketSums]] = {}
    held: dict[str, dict[str, RunSummary]] = {}
    for name, run in runs.items():
        for sums in run.markets:
            parts.setdefault(key(sums), []).append(sums)
            held.setdefault(key(sums), {})[name] = run
    return tuple(_sum_parts(key, parts[key], held[key]) for key in sorted(parts))


def _sum_runs(key: str, runs: Summaries) -> Group:
    """Sums up whole runs. A run that cost nothing is missing in no comparison."""
    of_all = _sum_parts(key, [sums for run in runs.values() for sums in run.markets], runs)
    compared = [run for run in runs.values() if run.is_compared]
    # A run that cost nothing would only make a saving look incomplete.
    others = {name: run for name, run in runs.items() if not run.is_compared and run.total}
    return replace(
        of_all,
        clocks_redone=sum(run.clocks_redone for run in runs.values()),
        seconds_redone=sum(run.seconds_redone for run in runs.values()),
        comparison=BaselineComparison(
            baseline=_sum_if_any(run.baseline for run in compared),
            # The same runs in every sum, or the two baselines could not be compared with each other.
            as_fast=_sum_if_any(run.cheapest if run.as_fast is None else run.as_fast for run in compared),
            cheapest=_sum_if_any(run.cheapest for run in compared),
            uncompared=MicroUsd(sum(run.total for run in others.values())),
            uncompared_runs={name: run.no_savings_reason or "" for name, run in others.items()},
        ),
    )


def _sum_if_any(amounts: Iterable[int | None]) -> MicroUsd | None:
    known = [amount for amount in amounts if amount is not None]
    return MicroUsd(sum(known)) if known else None


def _sum_parts(key: str, parts: list[MarketSums], runs: Summaries) -> Group:
    def summed(name: str) -> int:
        return sum(getattr(part, name) for part in parts)

    return Group(
        key=key,
        runs=len(runs),
        unfinished=sum(run.outcome is None for run in runs.values()),
        paid_s=summed("paid_s"),
        free_s=summed("free_s"),
        on_demand_s=summed("on_demand_s"),
        spot=MicroUsd(summed("spot")),
        on_demand=MicroUsd(summed("on_demand")),
        refunded=MicroUsd(summed("refunded")),
        egress=MicroUsd(summed("egress")),
        evictions=summed("evictions"),
        evicted=summed("evicted"),
    )


_WHOLE: Final[Mapping[Grouping, Callable[[RunSummary], str]]] = {
    Grouping.JOB: lambda run: run.job,
    Grouping.DAY: lambda run: local_day(run.began),
    Grouping.MONTH: lambda run: local_day(run.began)[:7],
}
_PARTS: Final[Mapping[Grouping, Callable[[MarketSums], str]]] = {
    Grouping.CLOUD: lambda sums: sums.cloud,
    Grouping.MARKET: lambda sums: sums.market,
}
