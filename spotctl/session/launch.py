"""Launches, resumes and ends runs: the shell around the loop, which the verbs of the CLI call.

It takes the job's lock, opens the ledger, builds a world, drives, and afterwards counts what is left. It
decides nothing about machines or money.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from pricing_data.model.market import PriceHistory
from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.control.drive import drive, fold_entries
from spotctl.control.evolve import evolve
from spotctl.control.state import State
from spotctl.control.state_values import Phase
from spotctl.engines.scoring import INTERRUPTED, Scoring, limit_s
from spotctl.errors import AlreadyRunning, Interrupted, LedgerError, NothingToDo, SpotctlError, UsageError
from spotctl.job.choices import IfRunning, WorldKind
from spotctl.job.settings import LaunchOptions, Settings
from spotctl.job.spec import JobSpec
from spotctl.records import background
from spotctl.records.ledger import Ledger
from spotctl.records.locks import JobLocked, hold_lock, is_held
from spotctl.records.run import Run, RunStore
from spotctl.report.final import Score, Unscored, final_object, with_score
from spotctl.session.interrupts import InterruptHandler, Interrupts
from spotctl.session.launch_plan import JobPlan, expectation_of, plan_launch
from spotctl.session.open import RunObserver as OfRuns
from spotctl.session.open import create_run as begin_run
from spotctl.session.open import has_begun, reopen_run, runs_of, settings_of, undriven_now
from spotctl.session.stop_signals import StopSignals
from spotctl.timesource import PacedTime, VirtualTime, sleep, wall_clock
from spotctl.worlds.handle import WorldHandle

_FOLLOW_EVERY_S = 0.2


class LaunchObserver(InterruptHandler, OfRuns, Protocol):
    """Watches a run, and answers when Ctrl-C is pressed."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """Describes how a run ended. ``final`` is the object of ``launch --json``, its model not yet scored.

    ``scoring``: how to score the model, or why that is not done; None where there is nothing to score.
    """

    final: dict[str, Any]
    state: State
    run: Run
    scoring: Scoring | Unscored | None = None
    scoring_limit_s: float = 0.0
    asks_taken: int = 0
    """Number of the last request that was answered; later ones end the scoring."""

    @property
    def has_scoring(self) -> bool:
        """Tells whether there is a model that takes time to score."""
        return isinstance(self.scoring, Scoring)

    def score_model(self, interrupted: bool = False) -> dict[str, Any]:
        """Scores the model, within ``scoring_limit_s``, and returns the whole final object.

        KeyboardInterrupt only ends the scoring; ``interrupted``: it came before scoring began.
        """
        if self.scoring is None:
            return self.final
        if isinstance(self.scoring, Unscored):
            return with_score(self.final, self.scoring)
        try:
            return with_score(
                self.final, Unscored(INTERRUPTED) if interrupted else self._run_scoring(self.scoring)
            )
        except KeyboardInterrupt:
            return with_score(self.final, Unscored(INTERRUPTED))

    def _run_scoring(self, scoring: Scoring) -> Score | Unscored:
        ledger = self.run.open_ledger()
        try:
            with hold_lock(self.run.scoring_lock):
                return scoring.score_model(
                    self.scoring_limit_s, lambda: any(ledger.requests_after(after=self.asks_taken))
                )
        finally:
            ledger.close()

    @property
    def exit_code(self) -> int:
        return int(self.final["exit_code"])


def launch(
    spec: JobSpec,
    options: LaunchOptions,
    observer: LaunchObserver,
    signals: StopSignals | None = None,
    plan: JobPlan | None = None,
) -> FinishedRun:
    """Runs a job to its end, resuming its last run where that was never closed.

    A new run begins as ``plan`` says, made and checked for the same job and options; None: a plan is made
    now.
    On return the record is closed, the run's machines are gone and another run may begin. ``signals`` are
    then
    deferred: the caller delivers them when it has said how the run ended. Raises NothingToDo or
    AlreadyRunning
    where another process runs the job, UsageError where an unfinished run has other settings.
    """
    settings = Settings.from_options(spec, options)
    runs = runs_of(settings.world)
    try:
        with runs.lock_job(settings.spec.name):
            return _launch_locked(runs, settings, observer, signals or StopSignals(), plan)
    except JobLocked:
        return _already_running(runs, settings, options.if_running, observer)


def end_run(run: Run, ask: e.UserRequest, observer: LaunchObserver) -> FinishedRun | None:
    """Cancels a run or takes it down: in the process that runs it, or in this one where there is none.

    Returns None where another process was asked: ``follow_run`` shows when it is done. Raises NothingToDo
    where the run had ended before. Whatever else it raises, after ``Ask.DOWN`` no machine is left that no
    process works with.
    """
    try:
        return _end_run(run, ask, observer)
    except NothingToDo:
        raise
    except Exception as error:  # a record, a trace or an input that is gone, a full disk, a bug
        if ask is e.UserRequest.DOWN:
            _take_machines(run, error)
        raise


def _end_run(run: Run, ask: e.UserRequest, observer: LaunchObserver) -> FinishedRun | None:
    runs = RunStore(run.folder.parents[2])
    state = run.fold_state()
    if state.ending.closed is not None and (run.is_live() or is_held(run.scoring_lock)):
        run.leave_request(ask)  # the run has ended, but the scoring of its model has not
    _refuse_ended(run, state)
    run.leave_request(ask)
    try:
        with runs.lock_job(run.name):
            forgotten = NothingToDo(f"{run.name} had not asked for any machine yet; its run is forgotten")
            if not run.ledger_path.exists():  # the process that was asked has removed it
                raise forgotten
            # Read again under the lock: the process that was asked may have written in between.
            state = run.fold_state()
            if state.ending.closed is not None:
                return None  # the process that was asked has closed it already
            if not has_begun(run):
                run.discard()
                raise forgotten
            return _resume_run(run, settings_of(run), observer, StopSignals())
    except JobLocked:
        return None


def _take_machines(run: Run, because: Exception) -> None:
    """Ends the machines of a run that cannot be closed ``because`` of an error.

    Raises SpotctlError to report it; returns where another process runs the job and owns the machines.
    """
    from spotctl.providers.base import live_instances
    from spotctl.providers.local import LeftMachines  # processes, only where they are wanted

    # Errors of ours and of the system read well; a bug needs its type.
    told = because if isinstance(because, SpotctlError | OSError) else repr(because)
    try:
        with RunStore(run.folder.parents[2]).lock_job(run.name):
            machines = LeftMachines(run.training_folder)
            machines.terminate(live_instances(machines))
    except JobLocked:
        return
    except OSError as error:
        raise SpotctlError(f"machines are left, {error}; its bill has not ended: {told}") from error
    raise SpotctlError(f"its machines have ended, its bill has not: {told}") from because


def follow_run(run: Run, observer: LaunchObserver) -> State:
    """Watches a run that another process drives until it is closed; returns its final state.

    Raises LedgerError where that process goes away before the run is closed.
    """
    ledger = run.open_ledger()
    try:
        state: State | None = None
        seen = 0
        while state is None or state.phase is not Phase.CLOSED:
            # Asked before reading, so that the last entries of a process that goes away are still shown.
            live = run.is_live()
            for row in ledger.read_rows(after=seen):
                seen = row.number
                state = (
                    # A follower has no prices, and needs none: it shows what another process decided.
                    fold_entries((row.entry,), PriceHistory()) if state is None else evolve(state, row.entry)
                )
                observer.on_entry(state, row.entry)
            if not live and (state is None or state.phase is not Phase.CLOSED):
                raise LedgerError(f"the process that ran {run.name} is gone; launch it again to go on")
            sleep(_FOLLOW_EVERY_S)
        return state
    finally:
        ledger.close()


# ---- one process, one run -----------------------------------------------------------------------


def _launch_locked(
    runs: RunStore, settings: Settings, observer: LaunchObserver, signals: StopSignals, plan: JobPlan | None
) -> FinishedRun:
    # A replay costs nothing and is never resumed.
    unfinished = None if settings.world is WorldKind.REPLAY else runs.find_unfinished(settings.spec.name)
    if unfinished is not None and not has_begun(unfinished):
        unfinished.discard()  # its process was refused or killed before it asked for anything
        unfinished = None
    if unfinished is None:
        return _begin_run(runs, settings, observer, signals, plan)
    # Resumed with other settings, a run's bill and its promise would be about two jobs.
    if settings_of(unfinished) != settings:
        raise UsageError(
            f"{settings.spec.name} has an unfinished run with other settings ({unfinished.folder}); launch "
            f"it as before to go on with it, or end it with: spotctl down {settings.spec.name}"
        )
    return _resume_run(unfinished, settings, observer, signals)


def _begin_run(
    runs: RunStore, settings: Settings, observer: LaunchObserver, signals: StopSignals, plan: JobPlan | None
) -> FinishedRun:
    # What the user confirmed is what starts: prices are not read a second time.
    plan = plan or plan_launch(settings)
    resolved = replace(
        plan.resolved,
        terms=replace(plan.terms, origin=replace(plan.terms.origin, expected=expectation_of(plan))),
    )
    opened = begin_run(runs, settings, resolved, observer)
    try:
        interrupts = Interrupts(opened.ledger, observer, opened.run)
        try:
            if settings.world is WorldKind.REPLAY:
                built = opened.build_world(interrupts, VirtualTime(resolved.terms.start))
            else:
                time = PacedTime(resolved.terms.start, settings.speed)
                built = opened.build_world(interrupts, time)
        except BaseException:  # nothing was asked for yet: a full disk leaves no run either
            opened.run.discard()
            raise
        with interrupts.catch_signals():
            # Within, signals are requests to end the run; outside they end the program.
            finished = _drive_world(opened.state, built, opened.ledger, observer, opened.run, signals)
        return _skip_score_if_asked(interrupts, finished)
    finally:
        opened.ledger.close()


def _resume_run(run: Run, settings: Settings, observer: LaunchObserver, signals: StopSignals) -> FinishedRun:
    ledger = Ledger.open_file(run.ledger_path)
    try:
        interrupts = Interrupts(ledger, observer, run)
        with interrupts.catch_signals():
            opened = reopen_run(run, ledger, settings)
        _refuse_ended(run, opened.state)
        # A resumed run has this terminal again, whatever the earlier one did without.
        ledger.put_note(background.NOTE, "")
        observer.on_start(run, opened.state.terms.origin.prices)
        # A run that is asked to end needs no input, and cutting it may take long.
        if not interrupts.stop_asked:
            opened.prepare()
        with interrupts.catch_signals():
            down = _measure_downtime(run, ledger, settings)
            time = PacedTime(down.until, settings.speed)
            built = opened.build_resumed_world(interrupts, time, down)
            finished = _drive_world(opened.state, built, ledger, observer, run, signals)
        return _skip_score_if_asked(interrupts, finished)
    finally:
        ledger.close()


def _refuse_ended(run: Run, state: State) -> None:
    if state.ending.closed is not None:
        raise NothingToDo(f"{run.name} has ended: {state.ending.closed.why}")


def _drive_world(
    state: State, built: WorldHandle, ledger: Ledger, observer: LaunchObserver, run: Run, signals: StopSignals
) -> FinishedRun:
    began = wall_clock()
    try:
        state = drive(state, built.world, ledger, observer)
    except BaseException:
        # Machines without a process that answers for them would cost money.
        built.abandon()
        raise
    signals.defer_signals()  # nothing may get between the end of a run and saying how it ended
    built.close()
    # Counted after the world is closed: a machine that survived it has to be in the report.
    wall_s, left = wall_clock() - began, built.machines_left()
    final = final_object(state, run.ledger_path, wall_s, left, run.died_of())
    return FinishedRun(final, state, run, built.scoring(state), limit_s(wall_s))


def _skip_score_if_asked(interrupts: Interrupts, finished: FinishedRun) -> FinishedRun:
    """Drops the scoring where a user asked the run to end, even if it had just ended by itself."""
    if interrupts.stop_asked and finished.scoring is not None:
        return replace(finished, scoring=Unscored("the run was asked to end"))
    return replace(finished, asks_taken=interrupts.asks_taken)


def _measure_downtime(run: Run, ledger: Ledger, settings: Settings) -> e.ControllerDown:
    """Returns how long no process drove the run, in nominal time, by the machines' clock (decision 4)."""
    last = ledger.last_entry_times()
    assert last is not None
    at, recorded = last
    until = undriven_now(run)
    if until is None:  # its process died before it had any machine
        until = at + max(0.0, wall_clock() - recorded) * settings.speed
    return e.ControllerDown(at, Instant(max(at, int(until))))


def _already_running(
    runs: RunStore, settings: Settings, choice: IfRunning, observer: LaunchObserver
) -> FinishedRun:
    name = settings.spec.name
    # Cron jobs that overlap ask for this: nothing to do, and no error.
    if choice is IfRunning.SKIP:
        raise NothingToDo(f"{name} is running already; nothing was started")
    run = runs.find_run(name)
    if choice is IfRunning.FAIL or run is None:
        raise AlreadyRunning(
            f"{name} is running already; wait for it (spotctl wait {name}), end it (spotctl cancel {name}), "
            "or say --if-running skip or attach"
        )
    began = wall_clock()
    try:
        state = follow_run(run, observer)
    except KeyboardInterrupt:
        raise Interrupted(f"{name} goes on; only this view of it has ended") from None
    wall_s = wall_clock() - began
    return FinishedRun(final_object(state, run.ledger_path, wall_s, 0, run.died_of()), state, run)
