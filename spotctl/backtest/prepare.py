"""Prepares a backtest from a job file and a window of recorded prices.

Rules, markets, limits and scaling are those that ``resolve_job`` gives a run; a backtest runs the same job
many times. Prices before the window train beta, once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np

from bidbrain.backtest.beta_grid import BetaTables
from bidbrain.backtest.job import BacktestJob
from bidbrain.backtest.price_tape import PriceTape
from bidbrain.bidding.decision_batch import BulkMarkets, Codes, MarketSetup, SurvivalBatch
from bidbrain.eviction.base import FittedMarkets
from bidbrain.eviction.capacity.vectorized_curves import CurveSurvivals
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.model import ReliableMachines
from bidbrain.strategies.mttf import typical_mttf_s
from bidbrain.strategies.recovery import Checkpointing
from pricing_data.model.units import HOUR_S, Instant, format_instant
from spotctl.backtest.sources import read_prices
from spotctl.control.bidding import restart_of
from spotctl.control.estimation import select_estimator
from spotctl.control.run_spec import RunSpec
from spotctl.errors import JobError, UsageError
from spotctl.job.checks import check_job
from spotctl.job.choices import WorldKind
from spotctl.job.clock_work import ClockWork, find_clock_work
from spotctl.job.resolve import PriceOptions, ResolvedJob, resolve_job
from spotctl.job.settings import LaunchOptions, Settings
from spotctl.job.spec import JobSpec

CHECKPOINT_S: Final = 120.0
"""Seconds of one checkpoint, and of a restart from one, where strategies checkpoint."""
_ROOM: Final = 3
"""Starts leave room for this many times the job's time on demand before the window ends."""


@dataclass(frozen=True, slots=True)
class BacktestOptions:
    """Holds what the command line says of a backtest; None: as the prices allow."""

    traces: tuple[Path, ...] = ()
    markets: tuple[str, ...] = ()
    """TYPE or TYPE@ZONE; empty: all that the job allows."""
    rules: str | None = None
    availability: Path | None = None
    """When the markets had machines to give; None: always."""
    first: Instant | None = None
    last: Instant | None = None
    starts: int = 1000
    strategies: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PreparedBacktest:
    """Holds a job, its markets with prices and eviction estimates, and the starts of its runs."""

    resolved: ResolvedJob
    """The job as a run of it that starts with the window."""
    setting: MarketSetup
    job: BacktestJob
    tape: PriceTape
    chances: SurvivalBatch
    """Eviction estimates as of the beginning of the window."""
    checkpoints: Checkpointing
    clock_work: ClockWork
    """How much work a clock is assumed to be."""
    cores: float
    """Cores of all machines that the job may hold, in the type that is cheapest on demand."""
    starts: Codes
    """Sorted instants."""

    @property
    def window(self) -> tuple[Instant, Instant]:
        return Instant(self.tape.begin), Instant(self.tape.end)


def prepare_backtest(spec: JobSpec, options: BacktestOptions) -> PreparedBacktest:
    """Prepares a backtest. Raises UsageError where job, prices and window do not fit together.

    Raises JobError where the input is measured, for the work of a clock, and is not what its application
    reads.
    """
    if spec.engine.relies_on_checkpoints:
        raise JobError(
            "engine",
            "backtests reckon with the elastic trainer, and a command would be decided otherwise; "
            "launch it with --world replay instead, over any --trace and --trace-start",
        )
    resolved = _resolve_job(spec, options)
    terms = resolved.terms
    clocks = terms.work.stop.clocks
    # Convergence cannot be replayed: prices say nothing about the objective.
    if clocks is None:
        raise JobError("stop.clocks", "a backtest must know how much work the job is; name its clocks")
    clock_work = _clock_work(spec, terms, options)
    terms = replace(terms, work=replace(terms.work, core_seconds_per_clock=clock_work.core_seconds))
    last = _last_moment(resolved, options)
    # Markets that appear only after the window cannot be chosen in it.
    terms = replace(
        terms, spot=tuple(t for t in terms.spot if resolved.trace.price(t.market, last) is not None)
    )
    setting = setting_of(terms)
    tape = PriceTape.from_history(resolved.trace, setting.markets, terms.start, last, resolved.capacity)
    # Estimates are fitted before the window: no start sees prices that another start trades at.
    known = resolved.trace.as_of(terms.start)
    watched = resolved.capacity.as_of(terms.start)
    fitted = select_estimator(terms.rules, watched, PriceCrossing()).fit(known, terms.start)
    # On-demand runs choose this type, so it sets the time that starts leave room for.
    cheapest = int(np.argmin(setting.on_demand / setting.cores))
    cores = float(setting.limits.max_instances * setting.cores[cheapest])
    job = BacktestJob(
        work=clocks * terms.work.core_seconds_per_clock,
        boot_s=ceil(terms.start_s),
        core_seconds_per_clock=terms.work.core_seconds_per_clock,
        deadline_s=terms.objective.deadline_s,
        restart=restart_of(terms),
    )
    return PreparedBacktest(
        resolved=replace(resolved, terms=terms),
        setting=setting,
        job=job,
        tape=tape,
        chances=_survival_batch(fitted, setting),
        checkpoints=Checkpointing.at_youngs_interval(
            CHECKPOINT_S, typical_mttf_s(setting, fitted, known, terms.start), CHECKPOINT_S
        ),
        clock_work=clock_work,
        cores=cores,
        starts=_draw_starts(options, job, setting, tape, cores),
    )


def _clock_work(spec: JobSpec, terms: RunSpec, options: BacktestOptions) -> ClockWork:
    """Finds the work of a clock like a launch: from the input where the job file does not say it."""
    if spec.local.core_seconds_per_clock is not None:
        return find_clock_work(spec, terms, None)
    settings = Settings.from_options(spec, LaunchOptions(world=WorldKind.REPLAY, seed=options.seed))
    return find_clock_work(spec, terms, check_job(settings, terms))


def _survival_batch(fitted: FittedMarkets, setting: MarketSetup) -> SurvivalBatch:
    """Fits once. Hazards depend on the age of the machine, not on that of the market's capacity."""
    if isinstance(fitted, BulkMarkets):
        chances = fitted.survival_batch(setting.markets)
        if isinstance(chances, CurveSurvivals):
            # One fit serves starts over the whole window, at which a market's spell has another age.
            return replace(chances, kept_s=np.zeros_like(chances.kept_s))
    return BetaTables.from_fitted(fitted, setting.markets, setting.limits.bid_deltas)


def _resolve_job(spec: JobSpec, options: BacktestOptions) -> ResolvedJob:
    recording = read_prices(spec, options.traces, options.markets)
    prices = PriceOptions(
        markets=options.markets,
        start=options.first,
        rules=options.rules,
        availability=options.availability,
    )
    try:
        return resolve_job(spec, prices, "backtest", options.seed, recording)
    except JobError:
        raise
    except UsageError as error:  # a run's start is a backtest's begin, with another option name
        raise UsageError(str(error).replace("--trace-start", "--from")) from error


def _last_moment(resolved: ResolvedJob, options: BacktestOptions) -> Instant:
    first, recording = resolved.terms.start, resolved.recording
    last = recording.last if options.last is None else options.last
    if not first < last <= recording.last:
        told = format_instant(recording.last)
        raise UsageError(
            f"--to {format_instant(last)}: {recording.label} has prices until {told}, and the backtest "
            f"begins at {format_instant(first)}; name a time between them"
        )
    return last


def setting_of(terms: RunSpec) -> MarketSetup:
    """Returns what a run on these terms may choose from. Raises UsageError where that is nothing."""
    # Sorted: columns of arrays have an order, and ties between markets must not depend on the file's.
    spot = sorted(terms.spot, key=lambda tradable: tradable.market)
    if not spot:
        raise UsageError(
            f"none of the job's markets is traded in {terms.origin.prices} before --to; name a later time"
        )
    return MarketSetup(
        markets=tuple(tradable.market for tradable in spot),
        cores=np.array([tradable.nu for tradable in spot]),
        on_demand=np.array([tradable.on_demand for tradable in spot]),
        rules=terms.rules,
        reliable=ReliableMachines(terms.reliable_count, terms.reliable.on_demand, terms.reliable.nu),
        limits=terms.limits,
        scaling=terms.work.scaling,
    )


def _draw_starts(
    options: BacktestOptions, job: BacktestJob, setting: MarketSetup, tape: PriceTape, cores: float
) -> Codes:
    """Draws starts evenly from the window, sorted."""
    machines = np.array([float(setting.limits.max_instances)])
    on_demand_s = job.work / (cores * float(setting.scaling.batch_efficiency(machines)[0]))
    # Jobs that the tape cuts off have no cost, and would bias the comparison if there were many.
    latest = tape.end - ceil(_ROOM * on_demand_s) - job.boot_s
    if latest <= tape.begin:
        raise UsageError(
            f"the job takes {on_demand_s / HOUR_S:.1f} h on demand, and the window from "
            f"{format_instant(Instant(tape.begin))} to {format_instant(Instant(tape.end))} has no room for "
            f"{_ROOM} times that; name an earlier --from, a later --to or a longer trace"
        )
    return np.sort(np.random.default_rng(options.seed).integers(tape.begin, latest, options.starts))
