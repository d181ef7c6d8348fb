"""Runs the loop of a queue: one time, many jobs, a round every few minutes.

    process what happened in each job, in the order of the queue
    a round is due?  take up requests, let jobs in, allocate leases
    machines are gone?  give the leases that there is room for now
    nothing left to do now: move the time on

Everything about a job is in its own ledger; the queue's journal has what concerns all of them. A restarted
queue goes on from both: the ledgers show which job holds what, and the next round sees to the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import inf
from types import TracebackType
from typing import Any, Self

from bidbrain.cluster.lease import Lease
from pricing_data.model.units import Instant, MicroUsd
from spotctl.control import entries as e
from spotctl.control.billing import certain_cost
from spotctl.errors import DeadlineInfeasible, Interrupted, LedgerError, SpotctlError, UsageError
from spotctl.queue.allocation import job_views
from spotctl.queue.allocation.allocate import allocate_with_fallback, rejects_newcomer
from spotctl.queue.allocation.lease_changes import find_lease_changes
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.allocation.round_inputs import RoundInputs, RoundPlan, SchedulableJob, make_round_policy
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.admission_queue import AdmissionQueue, Arrival, QueueCapacity, Refusal
from spotctl.queue.lifecycle.job_locks import JobLocks
from spotctl.queue.lifecycle.open_job import OpenJob, QueueWatcher
from spotctl.queue.lifecycle.requests import Request, UnreadableRequest
from spotctl.queue.lifecycle.shared_time import SharedTime
from spotctl.queue.spec import Member, QueueSettings, member_text
from spotctl.session.open import RecordedRun, create_run, opening_state
from spotctl.timesource import TimeSource


class QueueScheduler:
    """Runs the queue of ``journal``, to the end of all its jobs.

    As a context manager: whatever breaks in it, no machine of a job that was let in is left behind.
    """

    def __init__(
        self,
        settings: QueueSettings,
        folder: j.QueueFolder,
        journal: j.QueueJournal,
        claims: JobLocks,
        time: TimeSource,
        watcher: QueueWatcher,
    ) -> None:
        self._settings = settings
        self._spec = settings.spec
        self._folder = folder
        self._journal = journal
        self._claims = claims
        self._time = SharedTime(time)
        self._watcher = watcher
        self._pools = Pools(settings.spec.quotas)
        self._arrivals = AdmissionQueue(settings, self._pools, claims)
        self._waiting: dict[str, Member] = {}
        self._open: dict[str, OpenJob] = {}
        self._wanted: Mapping[str, Lease | None] = {}
        self._round_at = time.now
        self._unsettled = True
        self._spent = MicroUsd(0)
        """Micro-dollars that ended jobs owe."""
        self._interrupted = False
        self._cancelled = False
        self._no_answer = False
        """Whether the last round was not the policy's own."""
        self._told: set[str] = set()
        self.finals: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as every:  # runs all of them, even where one raises
            for job in self._open.values():  # empty after a normal end
                every.callback(job.abandon)

    # ---- the loop -------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Ends all jobs gracefully, in the next step of the loop."""
        self._interrupted = True

    def run_jobs(self) -> None:
        """Runs until every job has ended, those requested meanwhile too."""
        while self._goes_on():
            self._run_step()

    def _goes_on(self) -> bool:
        if not (self._open or self._waiting or self._cancelled):
            self._take_up_requests()
        return bool(self._open or self._waiting)

    def _run_step(self) -> None:
        if self._interrupted:
            self._cancel_all()
        # Facts come first: a round has to see everything that is known.
        if self._process_facts():
            return
        if self._time.now >= self._round_at:
            self._run_round()
        elif self._unsettled and self._apply_lease_changes():
            return
        elif self._open:
            worlds = {name: job.world for name, job in self._open.items()}
            self._time.advance(worlds, self._round_at, lambda: self._interrupted)
        else:
            self._round_at = self._time.now

    def _process_facts(self) -> bool:
        any_news = False
        for job in list(self._open.values()):
            any_news |= job.process_facts(self._note_freed_machines)
            if job.is_closed:
                self._finish_job(job)
        return any_news

    def _note_freed_machines(self, fact: e.Fact) -> None:
        if isinstance(fact, (e.InstancesEnded, e.TrainingFinished, e.TrainingFailed)):
            self._unsettled = True

    def _cancel_all(self) -> None:
        self._interrupted, self._cancelled = False, True
        for job in self._open.values():
            job.send_request(e.UserRequest.CANCEL)
        # A copy, since jobs leave ``_waiting`` in the loop.
        for name in list(self._waiting):
            self._never_began(name, 7, "it was cancelled before it began")

    # ---- jobs come and go -------------------------------------------------------------------------

    def judge_arrivals(self, members: Sequence[Member]) -> list[Arrival]:
        """Judges the jobs of a beginning queue that begin at once. Raises as ``AdmissionQueue.admit_all``."""
        return self._arrivals.admit_all(self._set_aside_waiting(members), self._capacity_left())

    def begin_jobs(self, arrivals: Sequence[Arrival]) -> None:
        """Lets in the jobs that ``judge_arrivals`` admitted."""
        for arrival in arrivals:
            self._enter_job(arrival)

    def admit_jobs(self, members: Sequence[Member]) -> None:
        """Lets jobs into a running queue, in the order of their arrival, except those that cannot begin."""
        self._let_begin(self._set_aside_waiting(members))

    def _set_aside_waiting(self, members: Sequence[Member]) -> list[Member]:
        """Returns jobs without predecessors. The others wait for the next round at least."""
        self._waiting |= {member.name: member for member in members if member.after}
        return [member for member in members if not member.after]

    def _let_begin(self, members: Sequence[Member]) -> None:
        for one in self._arrivals.admit_each(members, self._capacity_left()):
            if isinstance(one, Refusal):
                self._refuse_job(one.member, one.error)
            elif why := self._why_rejected(one):
                one.claim.close()
                self._refuse_job(one.member, DeadlineInfeasible(why))
            else:
                self._enter_job(one)

    def _why_rejected(self, one: Arrival) -> str:
        """Returns why the policy cannot take in a job that was added; "" where it can."""
        if one.member in self._spec.jobs or one.unfinished is not None:
            return ""
        state, kept = opening_state(one.resolved), Counter(one.judgement.reserved)
        seat = job_views.schedulable_job(state, one.member, self._pools, kept, {}, None)
        why = "" if seat is None else rejects_newcomer(seat, self._schedulable_jobs(), self._round_inputs())
        return why and f"{self._spec.policy.name} cannot take it in beside the others: {why}"

    def _refuse_job(self, member: Member, error: SpotctlError) -> None:
        self._never_began(member.name, error.exit_code, str(error))

    def _capacity_left(self) -> QueueCapacity:
        taken = Counter[str]()
        for name in self._open:
            taken += self._journal.record.reserved_machines(name)
        return QueueCapacity(self._time.now, taken, self._uncommitted_budget())

    def _enter_job(self, arrival: Arrival) -> None:
        member, opened = arrival.member, arrival.unfinished
        down = None if opened is None else e.ControllerDown(opened.state.now, self._time.now)
        if opened is None:
            try:
                opened = create_run(self._claims.runs, arrival.settings, arrival.resolved, self._watcher)
            except SpotctlError as error:
                arrival.claim.close()
                self._refuse_job(member, error)
                return
            arrival.claim.callback(opened.ledger.close)
        job = OpenJob(member, opened, arrival.allowance, self._watcher, arrival.claim)
        self._open[member.name] = job
        # On record before its world is built: from here on a restart knows of this run.
        self._journal.write_note(
            j.JobAdmitted(
                self._time.now,
                member.name,
                opened.run.id,
                arrival.judgement.is_promised,
                arrival.judgement.why,
                arrival.allowance,
                dict(arrival.judgement.reserved or {}),
                "" if member in self._spec.jobs else member_text(member),
            )
        )
        self._build_world(job, down)

    def resume_round(self) -> None:
        """Continues the current round, where no job came or left since it was allocated."""
        record = self._journal.record
        if record.last is not None and not record.stale:
            self._wanted = record.last.leases
            self._round_at = Instant(int(record.last.at + self._spec.round_s))

    def reenter_job(self, member: Member, opened: RecordedRun, claim: ExitStack) -> None:
        """Takes a job up again that an earlier process ran."""
        allowance = self._journal.record.entered[member.name].allowance
        down = e.ControllerDown(opened.state.now, self._time.now)
        self._watcher.on_start(opened.run, opened.state.terms.origin.prices)
        job = self._open[member.name] = OpenJob(member, opened, allowance, self._watcher, claim)
        self._build_world(job, down)

    def _build_world(self, job: OpenJob, down: e.ControllerDown | None) -> None:
        try:
            job.build_world(self._time.job_time(job.name), down)
        except (UsageError, Interrupted) as error:
            del self._open[job.name]
            self._time.remove_job(job.name)
            job.abandon()
            self._spent = MicroUsd(self._spent + certain_cost(job.state))
            self._never_began(job.name, error.exit_code, str(error))
            if down is None:
                job.run.discard()
            return
        # A new job changes the shares of all: a round is due at once.
        self._round_at = self._time.now

    def _finish_job(self, job: OpenJob) -> None:
        """Closes an ended job: nothing of it stays in memory but its final object."""
        closed = job.state.ending.closed
        assert closed is not None
        final = self.finals[job.name] = job.close_job()
        del self._open[job.name]
        self._time.remove_job(job.name)
        self._spent = MicroUsd(self._spent + certain_cost(job.state))
        self._journal.write_note(
            j.JobLeft(self._time.now, job.name, job.run.id, closed.exit_code, closed.why, job.removed)
        )
        self._watcher.on_left(job.name, closed.exit_code, closed.why, final)
        # Its machines and its money are free for others: a round is due at once.
        self._round_at = self._time.now
        self._unsettled = True

    def add_ended_job(self, final: dict[str, Any], spent: MicroUsd) -> None:
        """Adds a job that had ended when the queue was resumed."""
        self.finals[str(final["job"])] = final
        self._spent = MicroUsd(self._spent + spent)

    def _never_began(self, name: str, exit_code: int, why: str, removed: bool = False) -> None:
        self._waiting.pop(name, None)
        self._journal.write_note(j.JobLeft(self._time.now, name, "", exit_code, why, removed))
        self._watcher.on_left(name, exit_code, why, None)

    # ---- a round ----------------------------------------------------------------------------------

    def _run_round(self) -> None:
        self._round_at = Instant(int(self._time.now + self._spec.round_s))
        self._take_up_requests()
        self._admit_ready()
        hand, why = allocate_with_fallback(self._schedulable_jobs(), self._round_inputs())
        if why and not self._no_answer:
            name = self._spec.policy.name
            self._watcher.on_trouble(
                f"{name}: {why}. As long as that is so, machines are shared as by makespan"
            )
        self._no_answer = bool(why)
        self._wanted = hand.leases
        self._end_unpaid_jobs(hand)
        self._journal.write_note(
            j.RoundAllocated(self._time.now, hand.shares, hand.received, hand.leases, hand.since)
        )
        self._apply_lease_changes()

    def _round_inputs(self) -> RoundInputs:
        spec, money = self._spec, self._uncommitted_budget()
        budget_left = left = inf
        if spec.budget is not None and money is not None:
            budget_left = float(money) - sum(self._owed_by(job) for job in self._open.values())
            left = (
                float(spec.budget) - self._spent - sum(certain_cost(job.state) for job in self._open.values())
            )
        chosen = make_round_policy(spec.policy, left)
        return RoundInputs(self._time.now, spec.round_s, self._pools, chosen, spec.entities, budget_left)

    def _schedulable_jobs(self) -> list[SchedulableJob]:
        """Returns jobs that can use machines, in the order of their arrival."""
        record, found = self._journal.record, []
        for job in sorted(self._open.values(), key=lambda job: -job.member.priority):
            one = job.schedulable_job(
                self._pools,
                record.reserved_machines(job.name),
                record.received_s(job.name),
                record.hold_since(job.name),
            )
            if one is not None:
                found.append(one)
        return found

    def _apply_lease_changes(self) -> bool:
        """Gives the leases that there is room for, takes back the others; returns whether anything
        changed.
        """
        self._unsettled = False
        record = self._journal.record
        holders = [
            job.lease_holder(self._pools, record.reserved_machines(job.name)) for job in self._open.values()
        ]
        wanted = {name: lease for name, lease in self._wanted.items() if name in self._open}
        # A job may lose one lease and get another at once; it hears of the last change alone.
        last = {change.job: change.lease for change in find_lease_changes(wanted, holders, self._pools)}
        for name, lease in last.items():
            self._open[name].give_lease(lease, self._spec.budget)
        return bool(last)

    def _end_unpaid_jobs(self, hand: RoundPlan) -> None:
        """Ends jobs whose money is all spent, and settles their bills; promised jobs go on."""
        starving = [job for job in self._open.values() if not job.is_promised and job.name in hand.leases]
        nothing_runs = not any(hand.leases.values()) and not any(
            job.is_promised for job in self._open.values()
        )
        idle = nothing_runs and not any(True for job in starving for _ in job.state.live_instances())
        poor = self._spec.budget is not None and idle
        for job in starving:
            if job.name in hand.out_of_budget or poor:
                job.give_lease(None, MicroUsd(0))

    # ---- money ------------------------------------------------------------------------------------

    def _uncommitted_budget(self) -> MicroUsd | None:
        """Returns the budget that ended jobs do not owe and that is not put aside for promises."""
        if self._spec.budget is None:
            return None
        entered = self._journal.record.entered
        aside = sum(entered[name].allowance or 0 for name, job in self._open.items() if job.is_promised)
        return MicroUsd(self._spec.budget - self._spent - aside)

    def _owed_by(self, job: OpenJob) -> int:
        """Returns what a job owes that no promise covers."""
        return 0 if job.is_promised else certain_cost(job.state)

    # ---- requests ---------------------------------------------------------------------------------

    def _take_up_requests(self) -> None:
        try:
            asked = self._folder.requests_after(after=self._journal.record.handled)
        except LedgerError as error:
            self._tell_once(f"{error}. Until it can be, nothing that is asked of the queue is done")
            return
        for number, request in asked:
            if isinstance(request, UnreadableRequest):
                self._tell_once(f"{request}; nothing was done for it. Leave the line, and ask again")
                self._journal.write_note(j.RequestHandled(self._time.now, number))
            elif request.member:
                self._add_job(number, request)
            else:
                self.remove_job(request.job)
                self._journal.write_note(j.RequestHandled(self._time.now, number, removed=request.job))

    def _tell_once(self, told: str) -> None:
        if told not in self._told:
            self._told.add(told)
            self._watcher.on_trouble(told)

    def _add_job(self, number: int, request: Request) -> None:
        """Adds a job. It is on record before it is let in: after a kill the next process lets it in, once."""
        try:
            member = self._parse_newcomer(number, request)
        except SpotctlError as error:
            self._watcher.on_left(request.job, error.exit_code, str(error), None)
            self._journal.write_note(j.RequestHandled(self._time.now, number))
            return
        self._journal.write_note(j.RequestHandled(self._time.now, number, {request.job: request.member}))
        self.admit_jobs([member])

    def _parse_newcomer(self, number: int, request: Request) -> Member:
        record = self._journal.record
        if request.job in {*self._waiting, *record.entered, *record.left}:
            raise UsageError(f"{self._spec.name} has had a job called {request.job} in this run; say --name")
        member = self._folder.request_file.parse_added(number, request)
        unknown = [name for name in member.after if name not in {*self._waiting, *self._open, *record.left}]
        if unknown:
            raise UsageError(f"it waits for {unknown[0]}, which is no job here")
        return member

    def remove_job(self, name: str) -> None:
        """Removes a job from the queue: a waiting one never begins, a running one is cancelled."""
        if name in self._waiting:
            self._never_began(name, 0, "it was removed before it began", removed=True)
        elif name in self._open:
            self._open[name].removed = True
            self._open[name].send_request(e.UserRequest.CANCEL)

    def _admit_ready(self) -> None:
        """Lets in jobs whose predecessors are done; if one failed, or was removed, they never begin."""
        left = self._journal.record.left
        for name, member in list(self._waiting.items()):
            gone = [left[before] for before in member.after if before in left]
            failed = next((one for one in gone if one.exit_code or one.removed), None)
            if failed is not None:
                why = f"it was to come after {failed.job}, which was not done"
                self._never_began(name, failed.exit_code or Interrupted.exit_code, why)
            elif len(gone) == len(member.after):
                del self._waiting[name]
                self._let_begin([member])
