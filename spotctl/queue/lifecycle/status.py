"""Reads the state of a queue's jobs from its journal and their ledgers; for any process, at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from bidbrain.cluster.lease import Lease
from bidbrain.performance.throughput_completion import ThroughputEstimate
from pricing_data.model.units import Instant, MicroUsd, seconds_after
from spotctl.control.state import State
from spotctl.errors import LedgerError
from spotctl.job.choices import WorldKind
from spotctl.queue.allocation.throughput_estimates import estimate_throughputs
from spotctl.queue.lifecycle.journal import QueueFolder, QueueRecord, QueueRun, ServiceTime, root_of
from spotctl.queue.lifecycle.requests import UnreadableRequest
from spotctl.queue.spec import QueueSpec
from spotctl.report.fold import build_account
from spotctl.session.open import runs_of


class RunningState(Enum):
    """Tells whether a process runs a queue."""

    NOT_BEGUN = "not begun"
    RUNNING = "running"
    STOPPED = "stopped"
    """Its process is gone; the same command resumes it."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class DeadlineStatus:
    """Shows a job's deadline, and what the queue promised of it."""

    at: Instant | None = None
    """None where the job has no deadline, or has not begun."""
    promised: bool = False
    why_not: str = ""
    kept: bool | None = None
    """Whether the work was done in time; None until that is known."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Shows one job.

    ``state``: "waiting" before it begins, "unreadable" if its record is damaged. ``cost``: None if the record
    is unreadable. ``share``: the fraction of time for which the policy would run it now. ``served``: the
    machine time that it received so far, beside what it was due. ``lease``: the spot machines that it may
    hold in this round. ``finish``: when it ended, or will end at its present speed; None if unknown.
    ``why``: why it ended, or never began. ``after``: unfinished jobs that it waits for.
    """

    job: str
    run: str | None
    state: str
    share: float | None
    served: ServiceTime
    lease: Lease | None
    cost: MicroUsd | None
    deadline: DeadlineStatus
    finish: Instant | None
    exit_code: int | None
    why: str
    done: float | None
    rates: Mapping[str, ThroughputEstimate]
    """Its speed on each instance type (``throughput_estimates.py``); empty before it begins."""
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Shows a queue's current run, or its last one.

    ``run``: None if the queue never ran. ``failures``: records that cannot be read.
    """

    queue: str
    run: QueueRun | None
    status: RunningState
    policy: str
    rounds: int
    budget: MicroUsd | None
    rows: tuple[JobStatus, ...]
    failures: tuple[str, ...] = ()

    @property
    def cost(self) -> MicroUsd:
        """Returns the cost of all jobs for which it is known."""
        return MicroUsd(sum(row.cost or 0 for row in self.rows))


def read_status(spec: QueueSpec, world: WorldKind = WorldKind.LOCAL) -> QueueStatus:
    """Returns the status of the current run, or of the last one.

    Raises LedgerError if the queue's own journal cannot be read; a job's unreadable ledger is only listed.
    """
    folder = QueueFolder(spec.name, root_of(world))
    newest = folder.newest_run()
    record = QueueRecord() if newest is None else newest.read_record()
    # Listing runs opens their ledgers, which a queue without jobs does not need.
    runs = {(run.name, run.id): run for run in runs_of(world).list_runs()} if record.entered else {}
    names = dict.fromkeys([*record.entered, *record.left])
    if record.closed is None:
        listed = (*(member.name for member in spec.jobs), *record.added)
        names |= dict.fromkeys(name for name in listed if name not in record.removed)
    rows, failures = [], []
    # Requests that no process has handled yet are shown as if they were: users see what they asked for. A
    # journal that was killed before its first note has no number, so the last closed run's counts.
    for _, request in folder.requests_after(
        after=record.handled if record.settings else folder.handled_number()
    ):
        if isinstance(request, UnreadableRequest):
            failures.append(str(request))
        elif request.member:
            names[request.job] = None
        elif request.job not in record.entered:
            names.pop(request.job, None)
    status = _running_state(record, folder.is_live())
    ends = None if record.last is None else seconds_after(record.last.at, spec.round_s)
    after = {member.name: member.after for member in spec.jobs}
    for name in names:
        entered = record.entered.get(name)
        run = None if entered is None else runs.get((name, entered.run))
        waits = after.get(name, ()) if entered is None and name not in record.left else ()
        # Built from the journal alone, so that a job whose ledger is damaged keeps its row.
        row = replace(
            _job_status(name, record, None, ends), after=tuple(x for x in waits if x not in record.left)
        )
        try:
            rows.append(row if run is None else _job_status(name, record, run.fold_state(), ends))
        except LedgerError as error:
            rows.append(replace(row, state="unreadable", cost=None))
            failures.append(f"{name}: {error}")
    return QueueStatus(
        spec.name, newest, status, spec.policy.name, record.rounds, spec.budget, tuple(rows), tuple(failures)
    )


def _running_state(record: QueueRecord, live: bool) -> RunningState:
    if live:
        return RunningState.RUNNING
    if not record.settings:
        return RunningState.NOT_BEGUN
    return RunningState.STOPPED if record.closed is None else RunningState.ENDED


def _job_status(name: str, record: QueueRecord, state: State | None, ends: Instant | None) -> JobStatus:
    """Returns the status of one job; ``ends``: the end of the current round."""
    entered, left = record.entered.get(name), record.left.get(name)
    # The last round's note still names jobs that have left since; they hold nothing.
    last = None if left is not None else record.last
    shares = {} if last is None else last.shares.get(name, {})
    lease = None if last is None else last.leases.get(name)
    return JobStatus(
        job=name,
        run=None if entered is None else entered.run,
        state=_state_word(state, left is not None),
        share=sum(shares.values()) if shares else None,
        served=record.service_time(name, record.at if state is None else state.now),
        lease=None if lease is None or ends is None else replace(lease, until=ends),
        cost=MicroUsd(0) if state is None else build_account(state).spending.total,
        deadline=DeadlineStatus(
            at=None if state is None else _deadline_of(state),
            promised=entered is not None and entered.promised,
            why_not="" if entered is None else entered.why,
            kept=None if state is None else met_deadline(state),
        ),
        finish=None if state is None else _expected_finish(state),
        exit_code=None if left is None else left.exit_code,
        why="" if left is None else left.why,
        done=None if state is None or state.work_left is None else _done_fraction(state),
        rates={} if state is None else estimate_throughputs(state),
    )


def _deadline_of(state: State) -> Instant | None:
    limit = state.terms.objective.deadline_s
    return None if limit is None else seconds_after(state.terms.start, limit)


def met_deadline(state: State) -> bool | None:
    """Tells whether the work was done by its deadline; None if that is open, or if it ended early."""
    deadline, over, left = _deadline_of(state), state.training.training_over_at, state.work_left
    if deadline is None:
        return None
    ended_well = state.ending.failure is None and state.ending.asked is None
    # Training's end counts, and not the run's: machines may be kept until their paid hour is over.
    if over is not None and (left == 0 or (left is None and ended_well)):
        return over <= deadline
    return False if state.now > deadline else None


def _state_word(state: State | None, left: bool) -> str:
    if state is None:
        return "never began" if left else "waiting"
    if state.ending.closed is not None:
        return state.ending.closed.outcome.value
    return (
        "parked" if state.is_parked and not any(True for _ in state.live_instances()) else state.phase.value
    )


def _done_fraction(state: State) -> float:
    left = state.work_left
    assert left is not None
    whole = state.work_done + left
    # A job of no work is done at once.
    return state.work_done / whole if whole else 1.0


def _expected_finish(state: State) -> Instant | None:
    if state.ending.closed is not None:
        return state.training.training_over_at or state.now
    left, done = state.work_left, state.work_done
    if left is None or done <= 0:
        return None
    return seconds_after(state.now, left / done * (state.now - state.terms.start))
