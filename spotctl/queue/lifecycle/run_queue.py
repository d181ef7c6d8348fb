"""Running a queue, from its settings to its final object: the lock, the journal, the time, and the loop.

A queue whose process was killed is gone on with by the same command: its jobs' ledgers and its journal say
where.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final, Protocol

from pricing_data.model.units import Instant
from spotctl.control.billing import sure
from spotctl.errors import Interrupted, LedgerError, UsageError
from spotctl.job.resolve import resolve
from spotctl.job.settings import WorldKind
from spotctl.queue.error_locations import about
from spotctl.queue.file import problem_of
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.job_locks import Claims, reopened
from spotctl.queue.lifecycle.open_job import Watcher
from spotctl.queue.lifecycle.outcome import exit_code, outcome
from spotctl.queue.lifecycle.requests import Request, Unreadable
from spotctl.queue.lifecycle.scheduler import Runner
from spotctl.queue.spec import Member, QueueSettings, member_text, parse_member
from spotctl.records.run import Run, Runs
from spotctl.report.final import final_object
from spotctl.session.interrupts import signalled
from spotctl.session.open import Recorded, runs_of, undriven_now
from spotctl.timesource import PacedTime, TimeSource, VirtualTime, wall_clock

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a queue gracefully. One whose terminal is closed goes on."""


class Observer(Watcher, Protocol):
    """Who watches a queue's run."""

    def on_queue(self, run: j.QueueRun, settings: QueueSettings) -> None: ...


def run_queue(settings: QueueSettings, observer: Observer, start: Instant | None = None) -> dict[str, Any]:
    """Run a queue to its end, going on with its last run where that was never closed; its final object.

    A new run begins at ``start``, as its plan showed; None: as ``start_of`` says.
    Raises AlreadyRunning where another process runs it, DeadlineInfeasible where it is not begun.
    """
    folder = _folder(settings)
    with folder.lock():
        going = _unfinished(settings, folder)
        if going is None:
            return _begun(settings, folder, observer, start)
        if going.record().settings == settings.text():
            return go_on_with(settings, folder, going, observer)
        _give_up(going, folder)
        return _begun(settings, folder, observer, start)


def goes_on(settings: QueueSettings) -> bool:
    """Whether ``run_queue`` goes on with an earlier run, whose promises stand. Raises as that does."""
    folder = _folder(settings)
    with folder.lock():
        going = _unfinished(settings, folder)
        return going is not None and going.record().settings == settings.text()


def _folder(settings: QueueSettings) -> j.QueueFolder:
    return j.QueueFolder(settings.spec.name, j.root_of(settings.options.world))


def _unfinished(settings: QueueSettings, folder: j.QueueFolder) -> j.QueueRun | None:
    """The run that was never closed. Raises UsageError where it has other settings and a job that goes on."""
    going = None if settings.options.world is WorldKind.REPLAY else folder.unfinished()
    if going is None or going.record().settings == settings.text():
        return going
    known = {(run.name, run.id): run for run in runs_of(settings.options.world).all()}
    entered = [known.get((one.job, one.run)) for one in going.record().entered.values()]
    begun = [run.name for run in entered if run is not None and run.state().closed is None]
    if begun:
        raise UsageError(
            f"{settings.spec.name} has an unfinished run with other settings ({going.folder}); run it as "
            f"before to go on with it, or end its jobs: {', '.join(f'spotctl down {name}' for name in begun)}"
        )
    return going


def _give_up(run: j.QueueRun, folder: j.QueueFolder) -> None:
    """Close a run of which no job goes on. What was added to it and never began is asked for again."""
    with closing(j.Journal(run)) as journal:
        record = journal.record
        for name, member in record.added.items():
            if name not in {*record.entered, *record.left, *record.removed}:
                folder.ask(Request(name, member))
        journal.write(j.Closed(record.at, Interrupted.exit_code))


def _begun(
    settings: QueueSettings, folder: j.QueueFolder, observer: Observer, start: Instant | None
) -> dict[str, Any]:
    start = start_of(settings) if start is None else start
    settled = starting_at(settings, start)
    members, handled = asked_for(settings, folder)
    run = folder.create()
    with (
        closing(j.Journal(run)) as journal,
        Claims(runs_of(settings.options.world)) as claims,
        Runner(settled, folder, journal, claims, _time(settings, start), observer) as runner,
    ):
        try:
            arrivals = runner.weigh(in_order(members))
        except BaseException:
            run.discard()
            raise
        journal.write(_beginning(settings, start, members, handled))
        observer.on_queue(run, settings)
        runner.begin(arrivals)
        return _driven(settings, journal, runner)


def _beginning(settings: QueueSettings, start: Instant, members: Sequence[Member], handled: int) -> j.Began:
    listed, names = settings.spec.jobs, {member.name for member in members}
    added = {member.name: member_text(member) for member in members if member not in listed}
    removed = tuple(member.name for member in listed if member.name not in names)
    return j.Began(start, settings.text(), handled, added, removed)


def go_on_with(
    settings: QueueSettings, folder: j.QueueFolder, run: j.QueueRun, observer: Observer
) -> dict[str, Any]:
    """Run a queue from where another process left it to its end; its final object.

    Raises AlreadyRunning where another process runs one of its jobs: before any of them goes on.
    """
    with closing(j.Journal(run)) as journal, Claims(runs_of(settings.options.world)) as claims:
        record = journal.record
        observer.on_queue(run, settings)
        ended = {name for name in record.entered if name in record.left}
        held = {name: claims.new() if name in ended else claims.on(name) for name in record.entered}
        begun = {
            name: one for name, one in record.entered.items() if name not in ended or record.left[name].run
        }
        opened = {name: reopened(_run_of(claims.runs, one), held[name]) for name, one in begun.items()}
        settled = starting_at(settings, record.began)
        now = _now(record, settings, opened)
        with Runner(settled, folder, journal, claims, _time(settings, now), observer) as runner:
            members = {member.name: member for member in _members(settings, record)}
            for name, one in opened.items():
                if name in ended:
                    died_of = one.run.died_of()
                    final = final_object(one.state, one.run.ledger_path, 0.0, 0, died_of)
                    runner.left_before(final, sure(one.state))
                    held[name].close()
                else:
                    runner.reenter(members[name], one, held[name])
            known = {*record.entered, *record.left, *record.removed}
            runner.admit(in_order([member for member in members.values() if member.name not in known]))
            for name in record.removed:  # what was asked of a job that runs may not have come to it
                runner.remove(name)
            runner.go_on()
            return _driven(settings, journal, runner)


def _driven(settings: QueueSettings, journal: j.Journal, runner: Runner) -> dict[str, Any]:
    with signalled(lambda number: runner.interrupt() if number in _ENDING else None):
        runner.run()
    journal.write(j.Closed(journal.record.at, exit_code(journal.record)))
    return outcome(settings, journal.run.id, journal.record, runner.finals)


def asked_for(settings: QueueSettings, folder: j.QueueFolder) -> tuple[list[Member], int]:
    """The jobs of the file, with what was asked for since the last run; and the number of the last request.

    Raises UsageError where they do not go together, LedgerError where one of them cannot be read: a job that
    somebody took out must not be run.
    """
    members = {member.name: member for member in settings.spec.jobs}
    handled = folder.handled()
    for number, request in folder.requests(after=handled):
        handled = number
        if isinstance(request, Unreadable):
            raise LedgerError(f"{request}; nothing was started. Take that line out, and ask again")
        if request.member:
            members[request.job] = folder.asked.added(number, request)
        else:
            members.pop(request.job, None)
    problem = problem_of(list(members.values()))
    if problem is not None:
        raise UsageError(f"{settings.spec.name}: {problem}")
    return list(members.values()), handled


def _members(settings: QueueSettings, record: j.Record) -> Iterator[Member]:
    yield from settings.spec.jobs
    yield from (parse_member(member) for member in record.added.values())
    yield from (parse_member(entered.member) for entered in record.entered.values() if entered.member)


def in_order(members: Sequence[Member]) -> list[Member]:
    """As they count as having come."""
    return sorted(members, key=lambda member: -member.priority)


def start_of(settings: QueueSettings) -> Instant:
    """When all jobs begin: as named, or as the clock says, and each has its history of prices by then."""
    given = settings.options.prices.start
    if given is not None or not settings.spec.jobs:
        return given or Instant(0)
    starts = []
    for member in settings.spec.jobs:
        with about(member.name):
            seed, now = settings.options.seed or 0, wall_clock()
            starts.append(resolve(member.spec, settings.options.prices, "", seed, now=now).terms.start)
    return max(starts)


def starting_at(settings: QueueSettings, start: Instant) -> QueueSettings:
    """The same with its start said, so that every job sees the same prices."""
    prices = replace(settings.options.prices, start=start)
    return replace(settings, options=replace(settings.options, prices=prices))


def _time(settings: QueueSettings, now: Instant) -> TimeSource:
    if settings.options.world is WorldKind.REPLAY:
        return VirtualTime(now)
    return PacedTime(now, settings.options.speed)


def _run_of(runs: Runs, entered: j.Entered) -> Run:
    found = next((run for run in runs.all() if (run.name, run.id) == (entered.job, entered.run)), None)
    if found is None:
        raise LedgerError(f"{entered.job}: the record of its run {entered.run} is gone")
    return found


def _now(record: j.Record, settings: QueueSettings, opened: Mapping[str, Recorded]) -> Instant:
    """The nominal moment at which an interrupted queue goes on: what has passed since, at its speed
    (decision 4).
    """
    last = [one.ledger.last() for name, one in opened.items() if name not in record.left]
    known = [at for at in last if at is not None]
    stopped = max((at for at, _ in known), default=record.at)
    recorded = max((when for _, when in known), default=wall_clock())
    if settings.options.world is WorldKind.REPLAY:
        return max(stopped, record.at)  # nothing passes there while nobody looks
    gap_s = max(0.0, wall_clock() - recorded)
    reckoned = max(stopped, record.at) + gap_s * settings.options.speed
    shown = [undriven_now(one.run) for name, one in opened.items() if name not in record.left]
    clocks = [at for at in shown if at is not None]
    return Instant(int(max(clocks, default=reckoned)))
