"""Runs a queue from its settings to its final object: takes the lock, opens the journal, runs the loop.

The same command resumes a queue whose process was killed, from its journal and its jobs' ledgers.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final, Protocol

from pricing_data.model.units import Instant
from spotctl.control.billing import certain_cost
from spotctl.errors import Interrupted, LedgerError, UsageError
from spotctl.job.choices import WorldKind
from spotctl.job.resolve import resolve_job
from spotctl.queue.error_locations import attribute_errors_to
from spotctl.queue.file import problem_of
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.job_locks import JobLocks, reopen_claimed
from spotctl.queue.lifecycle.open_job import QueueWatcher
from spotctl.queue.lifecycle.outcome import build_outcome, exit_code
from spotctl.queue.lifecycle.requests import Request, UnreadableRequest
from spotctl.queue.lifecycle.scheduler import QueueScheduler
from spotctl.queue.spec import Member, QueueSettings, member_text, parse_member
from spotctl.records.run import Run, RunStore
from spotctl.report.final import final_object
from spotctl.session.interrupts import handle_signals
from spotctl.session.open import RecordedRun, runs_of, undriven_now
from spotctl.timesource import PacedTime, TimeSource, VirtualTime, wall_clock

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a queue gracefully. A closed terminal (SIGHUP) does not end it."""


class QueueObserver(QueueWatcher, Protocol):
    """Watches a queue's run."""

    def on_queue(self, run: j.QueueRun, settings: QueueSettings) -> None: ...


def run_queue(
    settings: QueueSettings, observer: QueueObserver, start: Instant | None = None
) -> dict[str, Any]:
    """Runs a queue to its end, or resumes its last run if that was never closed; returns its final object.

    ``start``: when a new run begins, as its plan showed; None: at ``start_of``.
    Raises AlreadyRunning if another process runs it, DeadlineInfeasible if a promise cannot be made.
    """
    folder = _queue_folder(settings)
    with folder.lock():
        going = _find_unfinished(settings, folder)
        if going is None:
            return _begin_run(settings, folder, observer, start)
        if going.read_record().settings == settings.to_text():
            return resume_queue(settings, folder, going, observer)
        # Other settings, and all its jobs have ended: a user changed the file after a kill.
        _close_abandoned(going, folder)
        return _begin_run(settings, folder, observer, start)


def continues_run(settings: QueueSettings) -> bool:
    """Tells whether ``run_queue`` would resume an earlier run, whose promises stand. Raises as that does."""
    folder = _queue_folder(settings)
    with folder.lock():
        going = _find_unfinished(settings, folder)
        return going is not None and going.read_record().settings == settings.to_text()


def _queue_folder(settings: QueueSettings) -> j.QueueFolder:
    return j.QueueFolder(settings.spec.name, j.root_of(settings.options.world))


def _find_unfinished(settings: QueueSettings, folder: j.QueueFolder) -> j.QueueRun | None:
    """Returns the run that was never closed, None if there is none.

    Raises UsageError if it has other settings and an unfinished job.
    """
    # A replay has no real machines and is over in seconds: it is repeated, and not resumed.
    going = None if settings.options.world is WorldKind.REPLAY else folder.unfinished_run()
    if going is None or going.read_record().settings == settings.to_text():
        return going
    known = {(run.name, run.id): run for run in runs_of(settings.options.world).list_runs()}
    entered = [known.get((one.job, one.run)) for one in going.read_record().entered.values()]
    begun = [run.name for run in entered if run is not None and run.fold_state().ending.closed is None]
    if begun:
        raise UsageError(
            f"{settings.spec.name} has an unfinished run with other settings ({going.folder}); run it as "
            f"before to go on with it, or end its jobs: {', '.join(f'spotctl down {name}' for name in begun)}"
        )
    return going


def _close_abandoned(run: j.QueueRun, folder: j.QueueFolder) -> None:
    """Closes a run whose jobs have all ended, and repeats requests for added jobs that never began."""
    with closing(j.QueueJournal(run)) as journal:
        record = journal.record
        for name, member in record.added.items():
            if name not in {*record.entered, *record.left, *record.removed}:
                # Before the note below: a kill between repeats the request, which loses nothing.
                folder.leave_request(Request(name, member))
        journal.write_note(j.Closed(record.at, Interrupted.exit_code))


def _begin_run(
    settings: QueueSettings, folder: j.QueueFolder, observer: QueueObserver, start: Instant | None
) -> dict[str, Any]:
    members, handled = requested_jobs(settings, folder)
    start = start_of(settings, members) if start is None else start
    settled = with_start(settings, start)
    run = folder.create_run()
    with (
        closing(j.QueueJournal(run)) as journal,
        JobLocks(runs_of(settings.options.world)) as claims,
        QueueScheduler(settled, folder, journal, claims, _time_source(settings, start), observer) as runner,
    ):
        # All jobs are judged and locked before the first note: a refused queue leaves no trace of a run.
        try:
            arrivals = runner.judge_arrivals(by_priority(members))
        except BaseException:
            run.discard()
            raise
        journal.write_note(_began_note(settings, start, members, handled))
        observer.on_queue(run, settings)
        runner.begin_jobs(arrivals)
        return _run_to_end(settings, journal, runner)


def _began_note(
    settings: QueueSettings, start: Instant, members: Sequence[Member], handled: int
) -> j.QueueStarted:
    listed, names = settings.spec.jobs, {member.name for member in members}
    added = {member.name: member_text(member) for member in members if member not in listed}
    removed = tuple(member.name for member in listed if member.name not in names)
    return j.QueueStarted(start, settings.to_text(), handled, added, removed)


def resume_queue(
    settings: QueueSettings, folder: j.QueueFolder, run: j.QueueRun, observer: QueueObserver
) -> dict[str, Any]:
    """Continues a queue from where another process left it to its end; returns its final object.

    Raises AlreadyRunning if another process runs one of its jobs, before any of them continues.
    """
    with closing(j.QueueJournal(run)) as journal, JobLocks(runs_of(settings.options.world)) as claims:
        record = journal.record
        observer.on_queue(run, settings)
        # Every lock is taken before any ledger is opened: none of the jobs may continue alone.
        ended = {name for name in record.entered if name in record.left}
        held = {
            name: claims.new_claim() if name in ended else claims.claim_job(name) for name in record.entered
        }
        # A job that was admitted and then could not begin left without a run.
        begun = {
            name: one for name, one in record.entered.items() if name not in ended or record.left[name].run
        }
        opened = {name: reopen_claimed(_run_of(claims.runs, one), held[name]) for name, one in begun.items()}
        settled = with_start(settings, record.began)
        now = _resumed_at(record, settings, opened)
        with QueueScheduler(
            settled, folder, journal, claims, _time_source(settings, now), observer
        ) as runner:
            members = {member.name: member for member in _all_members(settings, record)}
            for name, one in opened.items():
                if name in ended:
                    died_of = one.run.died_of()
                    final = final_object(one.state, one.run.ledger_path, 0.0, 0, died_of)
                    runner.add_ended_job(final, certain_cost(one.state))
                    held[name].close()
                else:
                    runner.resume_job(members[name], one, held[name])
            known = {*record.entered, *record.left, *record.removed}
            runner.admit_jobs(
                by_priority([member for member in members.values() if member.name not in known])
            )
            # A kill may have come between the note and the cancel in the job's own ledger.
            for name in record.removed:
                runner.remove_job(name)
            runner.resume_round()
            return _run_to_end(settings, journal, runner)


def _run_to_end(settings: QueueSettings, journal: j.QueueJournal, runner: QueueScheduler) -> dict[str, Any]:
    with handle_signals(lambda number: runner.interrupt() if number in _ENDING else None):
        runner.run_jobs()
    journal.write_note(j.Closed(journal.record.at, exit_code(journal.record)))
    return build_outcome(settings, journal.run.id, journal.record, runner.finals)


def requested_jobs(settings: QueueSettings, folder: j.QueueFolder) -> tuple[list[Member], int]:
    """Returns the file's jobs after the requests since the last run, and the number of the last request.

    Raises UsageError if the jobs do not go together, LedgerError if a request cannot be read.
    """
    members = {member.name: member for member in settings.spec.jobs}
    handled = folder.handled_number()
    for number, request in folder.requests_after(after=handled):
        handled = number
        # It may be the removal of a job, which then must not run. Nothing runs yet, so a user can mend it.
        if isinstance(request, UnreadableRequest):
            raise LedgerError(f"{request}; nothing was started. Take that line out, and ask again")
        if request.member:
            members[request.job] = folder.request_file.parse_added(number, request)
        else:
            members.pop(request.job, None)
    problem = problem_of(list(members.values()))
    if problem is not None:
        raise UsageError(f"{settings.spec.name}: {problem}")
    return list(members.values()), handled


def _all_members(settings: QueueSettings, record: j.QueueRecord) -> Iterator[Member]:
    yield from settings.spec.jobs
    yield from (parse_member(member) for member in record.added.values())
    yield from (parse_member(entered.member) for entered in record.entered.values() if entered.member)


def by_priority(members: Sequence[Member]) -> list[Member]:
    """Sorts jobs by priority, highest first; equal ones stay in the order of their arrival."""
    return sorted(members, key=lambda member: -member.priority)


def start_of(settings: QueueSettings, members: Sequence[Member]) -> Instant:
    """Returns when a queue of ``members`` begins: as named, or once all of them have a history of prices."""
    given = settings.options.prices.start
    if given is not None or not members:
        return given or Instant(0)
    # Each job is resolved here for its own first moment, and again for the common one: 2 ms a job, as the
    # prices of a source are read once in a process.
    starts = []
    for member in members:
        with attribute_errors_to(member.name):
            seed, now = settings.options.seed or 0, wall_clock()
            starts.append(resolve_job(member.spec, settings.options.prices, "", seed, now=now).terms.start)
    return max(starts)


def with_start(settings: QueueSettings, start: Instant) -> QueueSettings:
    """Returns the settings with this start, so that every job sees the same prices."""
    prices = replace(settings.options.prices, start=start)
    return replace(settings, options=replace(settings.options, prices=prices))


def _time_source(settings: QueueSettings, now: Instant) -> TimeSource:
    if settings.options.world is WorldKind.REPLAY:
        return VirtualTime(now)
    return PacedTime(now, settings.options.speed)


def _run_of(runs: RunStore, entered: j.JobAdmitted) -> Run:
    found = next((run for run in runs.list_runs() if (run.name, run.id) == (entered.job, entered.run)), None)
    if found is None:
        raise LedgerError(f"{entered.job}: the record of its run {entered.run} is gone")
    return found


def _resumed_at(record: j.QueueRecord, settings: QueueSettings, opened: Mapping[str, RecordedRun]) -> Instant:
    """Returns the nominal moment at which an interrupted queue continues.

    Nominal time passed at the queue's speed while no process ran it (decision 4).
    """
    last = [one.ledger.last_entry_times() for name, one in opened.items() if name not in record.left]
    known = [at for at in last if at is not None]
    stopped = max((at for at, _ in known), default=record.at)
    recorded = max((when for _, when in known), default=wall_clock())
    if settings.options.world is WorldKind.REPLAY:
        return max(stopped, record.at)  # virtual time stands still while no process runs
    gap_s = max(0.0, wall_clock() - recorded)
    # Entries carry nominal and wall time, so the last one anchors the gap.
    reckoned = max(stopped, record.at) + gap_s * settings.options.speed
    shown = [undriven_now(one.run) for name, one in opened.items() if name not in record.left]
    # Machines of a local run keep their own nominal time meanwhile; where they do, it decides.
    clocks = [at for at in shown if at is not None]
    return Instant(int(max(clocks, default=reckoned)))
