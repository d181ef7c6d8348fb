"""How the jobs of a queue stand, read from its journal and their ledgers; for anybody, at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from bidbrain.cluster.lease import Lease
from bidbrain.performance.throughput_completion import Estimate
from pricing_data.model.units import Instant, MicroUsd, later
from spotctl.control.state import State
from spotctl.errors import LedgerError
from spotctl.job.settings import WorldKind
from spotctl.queue.allocation.throughput_estimates import rates
from spotctl.queue.lifecycle.journal import QueueFolder, QueueRun, Record, Served, root_of
from spotctl.queue.lifecycle.requests import Unreadable
from spotctl.queue.spec import QueueSpec
from spotctl.report.fold import account
from spotctl.session.open import runs_of


class Status(Enum):
    """Whether anybody runs a queue."""

    NOT_BEGUN = "not begun"
    RUNNING = "running"
    STOPPED = "stopped"
    """Its process is gone; the same command goes on with it."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Row:
    """One job. ``state``: "waiting" before it begins, "unreadable" where its record is damaged; then nobody
    can say what it has cost. ``after``: jobs that it waits for. ``share``: of its time that the policy would
    have it run now; ``served``: what it has had until now, and should have had. ``lease``: the spot machines
    that are its in this round.

    ``deadline``: None where it has none, or has not begun. ``kept``: whether it was; None before that is
    known. ``finish``: when it ended, or will if it goes on as it did; None where that cannot be said.
    ``why``: why it ended, or never began.
    """

    job: str
    run: str | None
    state: str
    share: float | None
    served: Served
    lease: Lease | None
    cost: MicroUsd | None
    promised: bool
    why_not: str
    deadline: Instant | None
    kept: bool | None
    finish: Instant | None
    exit_code: int | None
    why: str
    done: float | None
    rates: Mapping[str, Estimate]
    """How fast it is on each instance type (``throughput_estimates.py``); empty before it begins."""
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """A queue. ``run``: the one shown; None where it never ran. ``failures``: records that cannot be read."""

    queue: str
    run: QueueRun | None
    status: Status
    policy: str
    rounds: int
    budget: MicroUsd | None
    rows: tuple[Row, ...]
    failures: tuple[str, ...] = ()

    @property
    def cost(self) -> MicroUsd:
        """Of all jobs of which that can be said."""
        return MicroUsd(sum(row.cost or 0 for row in self.rows))


def standing(spec: QueueSpec, world: WorldKind = WorldKind.LOCAL) -> Standing:
    """Of the run that goes on, or of the last one. Raises LedgerError where the queue's own record cannot be
    read.
    """
    folder = QueueFolder(spec.name, root_of(world))
    newest = folder.newest()
    record = Record() if newest is None else newest.record()
    runs = {(run.name, run.id): run for run in runs_of(world).all()} if record.entered else {}
    names = dict.fromkeys([*record.entered, *record.left])
    if record.closed is None:
        listed = (*(member.name for member in spec.jobs), *record.added)
        names |= dict.fromkeys(name for name in listed if name not in record.removed)
    rows, failures = [], []
    for _, request in folder.requests(after=record.handled if record.settings else folder.handled()):
        if isinstance(request, Unreadable):
            failures.append(str(request))
        elif request.member:
            names[request.job] = None
        elif request.job not in record.entered:
            names.pop(request.job, None)
    status = _status(record, folder.is_live())
    ends = None if record.last is None else later(record.last.at, spec.round_s)
    after = {member.name: member.after for member in spec.jobs}
    for name in names:
        entered = record.entered.get(name)
        run = None if entered is None else runs.get((name, entered.run))
        waits = after.get(name, ()) if entered is None and name not in record.left else ()
        row = replace(_row(name, record, None, ends), after=tuple(x for x in waits if x not in record.left))
        try:
            rows.append(row if run is None else _row(name, record, run.state(), ends))
        except LedgerError as error:
            rows.append(replace(row, state="unreadable", cost=None))
            failures.append(f"{name}: {error}")
    return Standing(
        spec.name, newest, status, spec.policy.name, record.rounds, spec.budget, tuple(rows), tuple(failures)
    )


def _status(record: Record, live: bool) -> Status:
    if live:
        return Status.RUNNING
    if not record.settings:
        return Status.NOT_BEGUN
    return Status.STOPPED if record.closed is None else Status.ENDED


def _row(name: str, record: Record, state: State | None, ends: Instant | None) -> Row:
    """``ends``: when the round that goes on does."""
    entered, left = record.entered.get(name), record.left.get(name)
    last = None if left is not None else record.last
    shares = {} if last is None else last.shares.get(name, {})
    lease = None if last is None else last.leases.get(name)
    return Row(
        job=name,
        run=None if entered is None else entered.run,
        state=_word(state, left is not None),
        share=sum(shares.values()) if shares else None,
        served=record.served(name, record.at if state is None else state.now),
        lease=None if lease is None or ends is None else replace(lease, until=ends),
        cost=MicroUsd(0) if state is None else account(state).spending.total,
        promised=entered is not None and entered.promised,
        why_not="" if entered is None else entered.why,
        deadline=None if state is None else _deadline(state),
        kept=None if state is None else kept(state),
        finish=None if state is None else _finish(state),
        exit_code=None if left is None else left.exit_code,
        why="" if left is None else left.why,
        done=None if state is None or state.work_left is None else _done(state),
        rates={} if state is None else rates(state),
    )


def _deadline(state: State) -> Instant | None:
    limit = state.terms.deadline_s
    return None if limit is None else later(state.terms.start, limit)


def kept(state: State) -> bool | None:
    """Whether the work was done by its deadline; None where it still can be, or was given up before."""
    deadline, over, left = _deadline(state), state.training_over_at, state.work_left
    if deadline is None:
        return None
    ended_well = state.failure is None and state.asked is None
    if over is not None and (left == 0 or (left is None and ended_well)):
        return over <= deadline
    return False if state.now > deadline else None


def _word(state: State | None, left: bool) -> str:
    if state is None:
        return "never began" if left else "waiting"
    if state.closed is not None:
        return state.closed.outcome.value
    return "parked" if state.parked and not any(True for _ in state.live()) else state.phase.value


def _done(state: State) -> float:
    left = state.work_left
    assert left is not None
    whole = state.work_done + left
    return state.work_done / whole if whole else 1.0


def _finish(state: State) -> Instant | None:
    if state.closed is not None:
        return state.training_over_at or state.now
    left, done = state.work_left, state.work_done
    if left is None or done <= 0:
        return None
    return later(state.now, left / done * (state.now - state.terms.start))
