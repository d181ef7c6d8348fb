"""Plans a launch: what it would buy and what that should cost, before anything is written or started.

Reads prices, checks the job, and asks the decision code what it would do now. A launch begins as planned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor, inf, isfinite

from bidbrain.bidding.forecast import CostForecast, forecast_cost
from bidbrain.deadline.feasibility import Promise
from bidbrain.model import Action
from pricing_data.formats.traces import Recording
from pricing_data.model.units import Seconds, to_micros
from spotctl.control.bidding import (
    ReliablePlacement,
    build_observation,
    build_strategy,
    deadline_promise,
    place_reliable,
)
from spotctl.control.run_spec import Expectation, RunSpec
from spotctl.control.state import State
from spotctl.job.checks import check_job, measure_job
from spotctl.job.choices import WorldKind
from spotctl.job.clock_work import ClockWork, WorkSource, find_clock_work
from spotctl.job.input_survey import InputSize
from spotctl.job.resolve import ResolvedJob, resolve_job
from spotctl.job.settings import LaunchOptions, Settings
from spotctl.job.spec import JobSpec
from spotctl.records.run import Run
from spotctl.report.baselines import Baselines, find_baselines
from spotctl.session.eviction_setbacks import Setbacks, expect_setbacks
from spotctl.session.open import has_begun, opening_state, runs_of, settings_of
from spotctl.timesource import wall_clock


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Holds what ``spotctl plan`` shows: the spec, the prices behind it, and what BidBrain would do now."""

    resolved: ResolvedJob
    state: State
    ahead: CostForecast
    promise: Promise | None
    """Whether the deadline can be kept whatever the market does; None without one."""
    work: ClockWork
    """How much work a clock is, on which all sums rest, and where that number comes from."""
    baselines: Baselines | None = None
    """The same work on demand; None where nothing would ever be done."""
    start_follows_clock: bool = False
    """Whether no start was named, so that a plan made tomorrow has another one."""
    setbacks: Setbacks | None = None
    """What evictions are expected to cost a command; None for an elastic job."""
    size: InputSize | None = None
    """Sizes of the input and the model; None for a command, and where nothing was measured."""
    reliable: ReliablePlacement | None = None
    """Where the reliable machines would run; None where the job has none, or no market has a machine now."""

    @property
    def terms(self) -> RunSpec:
        return self.resolved.terms

    @property
    def recording(self) -> Recording:
        return self.resolved.recording


def plan_job(spec: JobSpec, options: LaunchOptions, *, check: bool = True, measure: bool = False) -> JobPlan:
    """Makes the plan of a run that starts now (in the trace's time). Writes and starts nothing.

    Raises UsageError where the job cannot be run; ``check`` False: it was checked before it began.
    ``measure``: find out in a few seconds what a clock takes.
    """
    return plan_launch(Settings.from_options(spec, options), check=check, measure=measure)


def plan_launch(settings: Settings, *, check: bool = True, measure: bool = False) -> JobPlan:
    """Makes the plan of a launch with ``settings``; see ``plan_job``."""
    resolved = resolve_job(settings.spec, settings.prices, "plan", settings.seed, now=wall_clock())
    # Looks at the data; prices and markets above are the cheaper checks.
    size = check_job(settings, resolved.terms) if check else None
    measured = measure_job(settings.spec, size) if measure and size is not None else None
    clock_work = find_clock_work(settings.spec, resolved.terms, size, measured)
    # A resumed run keeps the work of a clock that its record names.
    if not check and (begun := _unfinished_run(settings)) is not None:
        clock_work = ClockWork(begun.fold_state().terms.work.core_seconds_per_clock, WorkSource.RECORDED)
    terms = replace(
        resolved.terms, work=replace(resolved.terms.work, core_seconds_per_clock=clock_work.core_seconds)
    )
    resolved = replace(resolved, terms=terms)
    state = opening_state(resolved)
    stop, decide = resolved.terms.work.stop, build_strategy(state).decide
    # A job that ends by convergence is planned for one clock, and by time for as much as fits.
    clocks = stop.clocks or (1 if stop.seconds is None else inf)
    work = clocks * resolved.terms.work.core_seconds_per_clock
    most_s = inf if stop.seconds is None else stop.seconds
    seen = build_observation(state)
    tier = place_reliable(state) if resolved.terms.reliable_count else None
    per_hour = None if tier is None else tier.per_hour
    ahead = forecast_cost(
        seen, work, decide, most_s=most_s, whole=stop.is_bounded, reliable_per_hour=per_hour
    )
    return JobPlan(
        resolved=resolved,
        state=state,
        ahead=ahead,
        promise=deadline_promise(state),
        work=clock_work,
        baselines=_plan_baselines(resolved.terms, state, ahead),
        start_follows_clock=settings.prices.start is None,
        setbacks=expect_setbacks(state, ahead, settings.spec.keeps_checkpoints),
        size=size,
        reliable=tier,
    )


def continues_run(spec: JobSpec, options: LaunchOptions) -> bool:
    """Tells whether a launch would resume a run that has requested machines, and was checked before."""
    return _unfinished_run(Settings.from_options(spec, options)) is not None


def _unfinished_run(settings: Settings) -> Run | None:
    """Returns the job's run that was never closed, if it has requested machines."""
    if settings.world is WorldKind.REPLAY:
        return None
    unfinished = runs_of(settings.world).find_unfinished(settings.spec.name)
    return unfinished if unfinished is not None and has_begun(unfinished) else None


def with_sustainable_speed(spec: JobSpec, options: LaunchOptions, plan: JobPlan) -> LaunchOptions:
    """Returns ``options`` with a speed that this computer keeps pace with.

    A run that goes on keeps its speed, and a speed that the user named stays. Otherwise the speed is lowered
    where this computer is known to compute more slowly than prices would pass.
    """
    if options.speed_named or options.world is WorldKind.REPLAY:
        return options
    begun = _unfinished_run(Settings.from_options(spec, options))
    if begun is not None:
        return replace(options, speed=settings_of(begun).speed)
    if not isfinite(plan.ahead.expected_s):
        return options
    slower = plan.work.slower_here(plan.ahead.work / plan.ahead.expected_s, options.speed)
    if slower is None or slower <= 1.0:
        return options
    # Rounded down: a little too slow costs waiting, a little too fast costs money.
    return replace(options, speed=max(1.0, floor(options.speed / slower)))


def _plan_baselines(terms: RunSpec, state: State, ahead: CostForecast) -> Baselines | None:
    """Returns what the planned work would cost on demand; the run's time includes its first machines'
    start.
    """
    if not isfinite(ahead.expected_s):
        return None
    # Machines on demand boot and join as well, so both sides include it.
    took_s = terms.start_s + terms.work.scaling.sigma_s + ahead.expected_s
    speeds, whole = state.machine_speeds(), terms.work.stop.is_bounded
    return find_baselines(terms, speeds, terms.work.scaling, ahead.work, took_s, whole=whole)


def expectation_of(plan: JobPlan) -> Expectation | None:
    """Returns what is recorded of a plan; None where it does not cover the whole job."""
    ahead, terms = plan.ahead, plan.terms
    if not (terms.work.stop.is_bounded and isfinite(ahead.expected_s) and isfinite(ahead.expected_cost)):
        return None
    machines = terms.reliable_count + sum(d.count for d in ahead.decisions if d.action is Action.ACQUIRE)
    took_s = Seconds(float(terms.start_s) + ahead.expected_s)
    return Expectation(to_micros(ahead.expected_cost), took_s, round(ahead.expected_evictions, 6), machines)
