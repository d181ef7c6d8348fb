"""Launching, resuming and ending runs: the shell around the loop. What the verbs of the CLI call.

It takes the job's lock, opens the ledger, builds a world, drives, and afterwards counts what is left. It
decides nothing about machines or money.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor, inf, isfinite
from typing import Any, Protocol

from bidbrain.deadline.feasibility import Promise
from bidbrain.model import Action
from bidbrain.plan import Plan, plan_ahead
from pricing_data.market import PriceHistory
from pricing_data.traces import Recording
from pricing_data.units import Instant, Seconds, micros
from spotctl import background
from spotctl.checks import InputSize, check_job, measure_job
from spotctl.clockwork import ClockWork, WorkSource, find_clock_work
from spotctl.config import JobSpec
from spotctl.control import events as e
from spotctl.control.deciding import ReliableAt, observation, promised, reliable_at, strategy
from spotctl.control.drive import drive, fold
from spotctl.control.evolve import evolve
from spotctl.control.state import Phase, State
from spotctl.control.terms import Expectation, Terms
from spotctl.errors import AlreadyRunning, Interrupted, LedgerError, NothingToDo, SpotctlError, UsageError
from spotctl.interrupts import Interrupts, Watcher
from spotctl.ledger import Ledger
from spotctl.opening import Observer as OfRuns
from spotctl.opening import begin as begin_run
from spotctl.opening import has_begun, opening_state, reopen, runs_of, settings_of, undriven_now
from spotctl.report.baselines import Baselines, find_baselines
from spotctl.report.final import Score, Unscored, final_object, with_score
from spotctl.resolve import Resolved, resolve
from spotctl.runs import JobLocked, Run, Runs, held, is_held
from spotctl.scoring import INTERRUPTED, Scoring, limit_s
from spotctl.setbacks import Setbacks, expect_setbacks
from spotctl.settings import IfRunning, LaunchOptions, Settings, WorldKind
from spotctl.stopsignals import StopSignals
from spotctl.timesource import PacedTime, VirtualTime, pause, wall_clock
from spotctl.worlds.built import BuiltWorld

_FOLLOW_EVERY_S = 0.2


class Observer(Watcher, OfRuns, Protocol):
    """Who watches a run, and who is asked when Ctrl-C is pressed."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What ``spotctl plan`` shows: the terms, the prices they rest on, and what BidBrain would do now."""

    resolved: Resolved
    state: State
    ahead: Plan
    promise: Promise | None
    """Whether the deadline can be kept whatever the market does; None without one."""
    work: ClockWork
    """How much work a clock is, on which all sums rest, and how that is known."""
    baselines: Baselines | None = None
    """The same work on demand; None where nothing would ever be done."""
    start_follows_clock: bool = False
    """Whether nobody named the start, so that it is another one tomorrow."""
    setbacks: Setbacks | None = None
    """What evictions are expected to cost a command; None of an elastic job."""
    size: InputSize | None = None
    """Of the input and the model; None of a command, and where nothing was looked at."""
    reliable: ReliableAt | None = None
    """Where the reliable machines would run; None where the job has none, or no market has a machine now."""

    @property
    def terms(self) -> Terms:
        return self.resolved.terms

    @property
    def recording(self) -> Recording:
        return self.resolved.recording


@dataclass(frozen=True, slots=True)
class Finished:
    """How a run ended. ``final`` is the object of ``launch --json``, whose model was not scored yet.

    ``scoring``: how to do that, or why it is not done; None where there is nothing to score.
    """

    final: dict[str, Any]
    state: State
    run: Run
    scoring: Scoring | Unscored | None = None
    scoring_limit_s: float = 0.0
    asks_taken: int = 0
    """The number of the last request that was answered; later ones end the scoring."""

    @property
    def to_score(self) -> bool:
        """Whether there is a model that scoring will take time for."""
        return isinstance(self.scoring, Scoring)

    def scored(self, interrupted: bool = False) -> dict[str, Any]:
        """Scores the model, within ``scoring_limit_s``, and returns the whole final object.

        KeyboardInterrupt only ends the scoring; ``interrupted``: it came before.
        """
        if self.scoring is None:
            return self.final
        if isinstance(self.scoring, Unscored):
            return with_score(self.final, self.scoring)
        try:
            return with_score(self.final, Unscored(INTERRUPTED) if interrupted else self._score(self.scoring))
        except KeyboardInterrupt:
            return with_score(self.final, Unscored(INTERRUPTED))

    def _score(self, scoring: Scoring) -> Score | Unscored:
        ledger = self.run.ledger()
        try:
            with held(self.run.scoring_lock):
                return scoring.run(self.scoring_limit_s, lambda: any(ledger.asks(after=self.asks_taken)))
        finally:
            ledger.close()

    @property
    def exit_code(self) -> int:
        return int(self.final["exit_code"])


def plan_job(spec: JobSpec, options: LaunchOptions, *, check: bool = True, measure: bool = False) -> JobPlan:
    """The plan of a run that starts now (in the trace's time). Writes and starts nothing.

    Raises UsageError where the job cannot be run; ``check`` False: it was looked at before it began.
    ``measure``: find out what a clock takes, in some seconds.
    """
    return _plan(Settings.of(spec, options), check=check, measure=measure)


def _plan(settings: Settings, *, check: bool = True, measure: bool = False) -> JobPlan:
    resolved = resolve(settings.spec, settings.prices, "plan", settings.seed, now=wall_clock())
    size = check_job(settings, resolved.terms) if check else None
    measured = measure_job(settings.spec, size) if measure and size is not None else None
    clock_work = find_clock_work(settings.spec, resolved.terms, size, measured)
    if not check and (begun := _begun(settings)) is not None:
        clock_work = ClockWork(begun.state().terms.core_seconds_per_clock, WorkSource.RECORDED)
    terms = replace(resolved.terms, core_seconds_per_clock=clock_work.core_seconds)
    resolved = replace(resolved, terms=terms)
    state = opening_state(resolved)
    stop, decide = resolved.terms.stop, strategy(state).decide
    clocks = stop.clocks or (1 if stop.seconds is None else inf)
    work = clocks * resolved.terms.core_seconds_per_clock
    most_s = inf if stop.seconds is None else stop.seconds
    seen = observation(state)
    tier = reliable_at(state) if resolved.terms.reliable_count else None
    per_hour = None if tier is None else tier.per_hour
    ahead = plan_ahead(seen, work, decide, most_s=most_s, whole=stop.foreseen, reliable_per_hour=per_hour)
    command = settings.spec.command
    return JobPlan(
        resolved=resolved,
        state=state,
        ahead=ahead,
        promise=promised(state),
        work=clock_work,
        baselines=_baselines(resolved.terms, state, ahead),
        start_follows_clock=settings.prices.start is None,
        setbacks=expect_setbacks(state, ahead, None if command is None else command.checkpoint.keeps),
        size=size,
        reliable=tier,
    )


def goes_on(spec: JobSpec, options: LaunchOptions) -> bool:
    """Whether a launch would go on with a run that has asked for machines, and was checked before."""
    return _begun(Settings.of(spec, options)) is not None


def _begun(settings: Settings) -> Run | None:
    """The job's run that was never closed, if it has asked for machines."""
    if settings.world is WorldKind.REPLAY:
        return None
    unfinished = runs_of(settings.world).unfinished(settings.spec.name)
    return unfinished if unfinished is not None and has_begun(unfinished) else None


def paced(spec: JobSpec, options: LaunchOptions, plan: JobPlan) -> LaunchOptions:
    """Returns ``options`` with the speed of the run that goes on; or, where a clock's work is estimated, with
    one that this computer keeps pace with. A speed that was named stays.
    """
    if options.speed_named or options.world is WorldKind.REPLAY:
        return options
    begun = _begun(Settings.of(spec, options))
    if begun is not None:
        return replace(options, speed=settings_of(begun).speed)
    if plan.work.source is not WorkSource.ESTIMATED or not isfinite(plan.ahead.expected_s):
        return options
    slower = plan.work.slower_here(plan.ahead.work / plan.ahead.expected_s, options.speed)
    return replace(options, speed=max(1.0, floor(options.speed / max(slower or 1.0, 1.0))))


def _baselines(terms: Terms, state: State, ahead: Plan) -> Baselines | None:
    """What the planned work would cost on demand; the run takes the start of its first machines beside it."""
    if not isfinite(ahead.expected_s):
        return None
    took_s = terms.start_s + terms.scaling.sigma_s + ahead.expected_s
    speeds, whole = state.speeds(), terms.stop.foreseen
    return find_baselines(terms, speeds, terms.scaling, ahead.work, took_s, whole=whole)


def _expected(plan: JobPlan) -> Expectation | None:
    """What is put on record of a plan; None where it is not of the whole job."""
    ahead, terms = plan.ahead, plan.terms
    if not (terms.stop.foreseen and isfinite(ahead.expected_s) and isfinite(ahead.expected_cost)):
        return None
    machines = terms.reliable_count + sum(d.count for d in ahead.decisions if d.action is Action.ACQUIRE)
    took_s = Seconds(float(terms.start_s) + ahead.expected_s)
    return Expectation(micros(ahead.expected_cost), took_s, round(ahead.expected_evictions, 6), machines)


def launch(
    spec: JobSpec,
    options: LaunchOptions,
    observer: Observer,
    signals: StopSignals | None = None,
    plan: JobPlan | None = None,
) -> Finished:
    """Run a job to its end, going on with its last run where that was never closed.

    A new run begins as ``plan`` says, which was made and checked of the same job and options; None: one is
    made now. When this returns the record is closed, its machines are gone and another run may begin.
    ``signals`` are held back then: the caller releases them when it has said how the run ended. Raises
    NothingToDo or AlreadyRunning where another process runs it, UsageError where an unfinished run has other
    settings.
    """
    settings = Settings.of(spec, options)
    runs = runs_of(settings.world)
    try:
        with runs.lock(settings.spec.name):
            return _run(runs, settings, observer, signals or StopSignals(), plan)
    except JobLocked:
        return _already_running(runs, settings, options.if_running, observer)


def end(run: Run, ask: e.Ask, observer: Observer) -> Finished | None:
    """Have a run cancelled or taken down: by the process that runs it, or by this one where there is none.

    None where another process was asked: ``follow`` says when it is done. Raises NothingToDo where the run
    had ended before. Whatever else it raises, after ``Ask.DOWN`` no machine is left that nobody works with.
    """
    try:
        return _end(run, ask, observer)
    except NothingToDo:
        raise
    except Exception as error:  # a record, a trace or an input that is gone, a full disk, a bug
        if ask is e.Ask.DOWN:
            _take_machines(run, error)
        raise


def _end(run: Run, ask: e.Ask, observer: Observer) -> Finished | None:
    runs = Runs(run.folder.parents[2])
    state = run.state()
    if state.closed is not None and (run.is_live() or is_held(run.scoring_lock)):
        run.ask(ask)  # the run has ended, the scoring of its model does now
    _refuse_ended(run, state)
    run.ask(ask)
    try:
        with runs.lock(run.name):
            state = run.state()
            if state.closed is not None:
                return None  # the process that was asked is done with it already
            if not has_begun(run):
                run.discard()
                raise NothingToDo(f"{run.name} had not asked for any machine yet; its run is forgotten")
            return _resume(run, settings_of(run), observer, StopSignals())
    except JobLocked:
        return None


def _take_machines(run: Run, because: Exception) -> None:
    """End what is left of the machines of a run that cannot be closed ``because`` of something.

    Raises SpotctlError to say so; returns where another process runs the job, whose machines they are.
    """
    from agileml.hosts.local import LocalHost  # processes, only where they are wanted

    told = because if isinstance(because, SpotctlError | OSError) else repr(because)
    try:
        with Runs(run.folder.parents[2]).lock(run.name):
            if run.machines.is_dir():
                LocalHost(run.training).kill_all()
    except JobLocked:
        return
    except OSError as error:
        raise SpotctlError(f"machines are left, {error}; its bill has not ended: {told}") from error
    raise SpotctlError(f"its machines have ended, its bill has not: {told}") from because


def follow(run: Run, observer: Observer) -> State:
    """Watch a run that another process drives until it is closed; its final state.

    Raises LedgerError where that process goes away before the run is closed.
    """
    ledger = run.ledger()
    try:
        state: State | None = None
        seen = 0
        while state is None or state.phase is not Phase.CLOSED:
            live = run.is_live()
            for row in ledger.rows(after=seen):
                seen = row.number
                state = fold((row.entry,), PriceHistory()) if state is None else evolve(state, row.entry)
                observer.on_entry(state, row.entry)
            if not live and (state is None or state.phase is not Phase.CLOSED):
                raise LedgerError(f"the process that ran {run.name} is gone; launch it again to go on")
            pause(_FOLLOW_EVERY_S)
        return state
    finally:
        ledger.close()


# ---- one process, one run -----------------------------------------------------------------------


def _run(
    runs: Runs, settings: Settings, observer: Observer, signals: StopSignals, plan: JobPlan | None
) -> Finished:
    unfinished = None if settings.world is WorldKind.REPLAY else runs.unfinished(settings.spec.name)
    if unfinished is not None and not has_begun(unfinished):
        unfinished.discard()  # whoever made it was refused or killed before it asked for anything
        unfinished = None
    if unfinished is None:
        return _begin(runs, settings, observer, signals, plan)
    if settings_of(unfinished) != settings:
        raise UsageError(
            f"{settings.spec.name} has an unfinished run with other settings ({unfinished.folder}); launch "
            f"it as before to go on with it, or end it with: spotctl down {settings.spec.name}"
        )
    return _resume(unfinished, settings, observer, signals)


def _begin(
    runs: Runs, settings: Settings, observer: Observer, signals: StopSignals, plan: JobPlan | None
) -> Finished:
    plan = plan or _plan(settings)
    resolved = replace(plan.resolved, terms=replace(plan.terms, expected=_expected(plan)))
    opened = begin_run(runs, settings, resolved, observer)
    try:
        interrupts = Interrupts(opened.ledger, observer, opened.run)
        try:
            if settings.world is WorldKind.REPLAY:
                built = opened.world(interrupts, VirtualTime(resolved.terms.start))
            else:
                time = PacedTime(resolved.terms.start, settings.speed)
                built = opened.world(interrupts, time)
        except BaseException:  # nothing was asked for yet: a full disk leaves no run either
            opened.run.discard()
            raise
        with interrupts.caught():
            finished = _drive(opened.state, built, opened.ledger, observer, opened.run, signals)
        return _heeding(interrupts, finished)
    finally:
        opened.ledger.close()


def _resume(run: Run, settings: Settings, observer: Observer, signals: StopSignals) -> Finished:
    ledger = Ledger.at(run.ledger_path)
    try:
        interrupts = Interrupts(ledger, observer, run)
        with interrupts.caught():
            opened = reopen(run, ledger, settings)
        _refuse_ended(run, opened.state)
        ledger.note(background.NOTE, "")
        observer.on_start(run, opened.resolved.recording)
        if not interrupts.stop_asked:
            opened.prepare()
        with interrupts.caught():
            down = _down(run, ledger, settings)
            time = PacedTime(down.until, settings.speed)
            built = opened.resumed_world(interrupts, time, down)
            finished = _drive(opened.state, built, ledger, observer, run, signals)
        return _heeding(interrupts, finished)
    finally:
        ledger.close()


def _refuse_ended(run: Run, state: State) -> None:
    if state.closed is not None:
        raise NothingToDo(f"{run.name} has ended: {state.closed.why}")


def _drive(
    state: State, built: BuiltWorld, ledger: Ledger, observer: Observer, run: Run, signals: StopSignals
) -> Finished:
    began = wall_clock()
    try:
        state = drive(state, built.world, ledger, observer)
    except BaseException:
        built.abandon()
        raise
    signals.hold()  # nothing may get between the end of a run and saying how it ended
    built.close()
    wall_s, left = wall_clock() - began, built.machines_left()
    final = final_object(state, run.ledger_path, wall_s, left, run.died_of())
    return Finished(final, state, run, built.scoring(state), limit_s(wall_s))


def _heeding(interrupts: Interrupts, finished: Finished) -> Finished:
    """Whoever asks a run to end does not wait for a score: neither where the run had just ended by itself."""
    if interrupts.stop_asked and finished.scoring is not None:
        return replace(finished, scoring=Unscored("the run was asked to end"))
    return replace(finished, asks_taken=interrupts.asks_taken)


def _down(run: Run, ledger: Ledger, settings: Settings) -> e.ControllerDown:
    """How long nobody was there, in nominal time (decision 4): as the machines' clock shows it."""
    last = ledger.last()
    assert last is not None
    at, recorded = last
    until = undriven_now(run)
    if until is None:  # it died before it had any
        until = at + max(0.0, wall_clock() - recorded) * settings.speed
    return e.ControllerDown(at, Instant(max(at, int(until))))


def _already_running(runs: Runs, settings: Settings, choice: IfRunning, observer: Observer) -> Finished:
    name = settings.spec.name
    if choice is IfRunning.SKIP:
        raise NothingToDo(f"{name} is running already; nothing was started")
    run = runs.find(name)
    if choice is IfRunning.FAIL or run is None:
        raise AlreadyRunning(
            f"{name} is running already; wait for it (spotctl wait {name}), end it (spotctl cancel {name}), "
            "or say --if-running skip or attach"
        )
    began = wall_clock()
    try:
        state = follow(run, observer)
    except KeyboardInterrupt:
        raise Interrupted(f"{name} goes on; only this view of it has ended") from None
    wall_s = wall_clock() - began
    return Finished(final_object(state, run.ledger_path, wall_s, 0, run.died_of()), state, run)
