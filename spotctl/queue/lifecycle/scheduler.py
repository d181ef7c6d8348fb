"""The loop of a queue: one time, many jobs, a round every few minutes.

    take up what happened in each job, in the order of the queue
    a round is due?  take up requests, let jobs in, deal leases
    machines are gone?  give the leases that there is room for now
    nothing left to do now: move the time on

Everything about a job is in its own ledger; the queue's journal has what is about all of them. Restarted,
it goes on from both: who holds what follows from the ledgers, and the round that comes first sees to the
rest.
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
from spotctl.control.billing import sure
from spotctl.errors import DeadlineInfeasible, Interrupted, LedgerError, SpotctlError, UsageError
from spotctl.queue.allocation import job_views
from spotctl.queue.allocation.budget_fallback import dealt, too_much
from spotctl.queue.allocation.lease_changes import changes
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.allocation.round_inputs import Hand, Table, Wanting, chosen_policy
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.admission_queue import Arrival, Arrivals, Refusal, Room
from spotctl.queue.lifecycle.job_locks import Claims
from spotctl.queue.lifecycle.open_job import OpenJob, Watcher
from spotctl.queue.lifecycle.requests import Request, Unreadable
from spotctl.queue.lifecycle.shared_time import SharedTime
from spotctl.queue.spec import Member, QueueSettings, member_text
from spotctl.session.open import Recorded, begin, opening_state
from spotctl.timesource import TimeSource


class Runner:
    """Runs what ``journal`` says of a queue, to the end of all its jobs.

    As a context: whatever breaks in it, no machine of a job that was let in is left behind.
    """

    def __init__(
        self,
        settings: QueueSettings,
        folder: j.QueueFolder,
        journal: j.Journal,
        claims: Claims,
        time: TimeSource,
        watcher: Watcher,
    ) -> None:
        self._settings = settings
        self._spec = settings.spec
        self._folder = folder
        self._journal = journal
        self._claims = claims
        self._time = SharedTime(time)
        self._watcher = watcher
        self._pools = Pools(settings.spec.quotas)
        self._arrivals = Arrivals(settings, self._pools, claims)
        self._waiting: dict[str, Member] = {}
        self._open: dict[str, OpenJob] = {}
        self._wanted: Mapping[str, Lease | None] = {}
        self._round_at = time.now
        self._unsettled = True
        self._spent = MicroUsd(0)
        """By jobs that have ended."""
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
        with ExitStack() as every:  # also where one of them raises
            for job in self._open.values():  # none after an end that was run to
                every.callback(job.abandon)

    # ---- the loop -------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """End all jobs gracefully, as soon as the loop comes by."""
        self._interrupted = True

    def run(self) -> None:
        """Until every job has ended, those that were asked for meanwhile too."""
        while self._goes_on():
            self._step()

    def _goes_on(self) -> bool:
        if not (self._open or self._waiting or self._cancelled):
            self._take_up_requests()
        return bool(self._open or self._waiting)

    def _step(self) -> None:
        if self._interrupted:
            self._cancel_all()
        if self._drain():
            return
        if self._time.now >= self._round_at:
            self._round()
        elif self._unsettled and self._settle():
            return
        elif self._open:
            worlds = {name: job.world for name, job in self._open.items()}
            self._time.advance(worlds, self._round_at, lambda: self._interrupted)
        else:
            self._round_at = self._time.now

    def _drain(self) -> bool:
        any_news = False
        for job in list(self._open.values()):
            any_news |= job.drain(self._moved)
            if job.closed:
                self._left(job)
        return any_news

    def _moved(self, fact: e.Fact) -> None:
        if isinstance(fact, (e.InstancesEnded, e.TrainingFinished, e.TrainingFailed)):
            self._unsettled = True

    def _cancel_all(self) -> None:
        self._interrupted, self._cancelled = False, True
        for job in self._open.values():
            job.ask(e.Ask.CANCEL)
        for name in list(self._waiting):
            self._never_began(name, 7, "it was cancelled before it began")

    # ---- jobs come and go -------------------------------------------------------------------------

    def weigh(self, members: Sequence[Member]) -> list[Arrival]:
        """Of the jobs of a queue that is to begin those that begin at once. Raises as ``Arrivals.all``."""
        return self._arrivals.all(self._ready(members), self._room())

    def begin(self, arrivals: Sequence[Arrival]) -> None:
        """Let in whom ``weigh`` found able to begin."""
        for arrival in arrivals:
            self._enter(arrival)

    def admit(self, members: Sequence[Member]) -> None:
        """Let jobs into a queue that runs, in the order of their arrival. One that cannot begin does not."""
        self._let_begin(self._ready(members))

    def _ready(self, members: Sequence[Member]) -> list[Member]:
        """Those that wait for nobody. The others wait for the next round at least."""
        self._waiting |= {member.name: member for member in members if member.after}
        return [member for member in members if not member.after]

    def _let_begin(self, members: Sequence[Member]) -> None:
        for one in self._arrivals.each(members, self._room()):
            if isinstance(one, Refusal):
                self._refuse(one.member, one.error)
            elif why := self._too_much(one):
                one.claim.close()
                self._refuse(one.member, DeadlineInfeasible(why))
            else:
                self._enter(one)

    def _too_much(self, one: Arrival) -> str:
        """Why the policy cannot take in a job that was added; "" where it can."""
        if one.member in self._spec.jobs or one.unfinished is not None:
            return ""
        state, kept = opening_state(one.resolved), Counter(one.judgement.reserved)
        seat = job_views.wanting(state, one.member, self._pools, kept, {}, None)
        why = "" if seat is None else too_much(seat, self._wanting(), self._table())
        return why and f"{self._spec.policy.name} cannot take it in beside the others: {why}"

    def _refuse(self, member: Member, error: SpotctlError) -> None:
        self._never_began(member.name, error.exit_code, str(error))

    def _room(self) -> Room:
        taken = Counter[str]()
        for name in self._open:
            taken += self._journal.record.reserved(name)
        return Room(self._time.now, taken, self._uncommitted())

    def _enter(self, arrival: Arrival) -> None:
        member, opened = arrival.member, arrival.unfinished
        down = None if opened is None else e.ControllerDown(opened.state.now, self._time.now)
        if opened is None:
            try:
                opened = begin(self._claims.runs, arrival.settings, arrival.resolved, self._watcher)
            except SpotctlError as error:
                arrival.claim.close()
                self._refuse(member, error)
                return
            arrival.claim.callback(opened.ledger.close)
        job = OpenJob(member, opened, arrival.allowance, self._watcher, arrival.claim)
        self._open[member.name] = job
        self._journal.write(
            j.Entered(
                self._time.now,
                member.name,
                opened.run.id,
                arrival.judgement.made,
                arrival.judgement.why,
                arrival.allowance,
                dict(arrival.judgement.reserved or {}),
                "" if member in self._spec.jobs else member_text(member),
            )
        )
        self._build(job, down)

    def go_on(self) -> None:
        """With the round that was going on, where nobody came or went since it was dealt."""
        record = self._journal.record
        if record.last is not None and not record.stale:
            self._wanted = record.last.leases
            self._round_at = Instant(int(record.last.at + self._spec.round_s))

    def reenter(self, member: Member, opened: Recorded, claim: ExitStack) -> None:
        """Take a job up again that an earlier process ran."""
        allowance = self._journal.record.entered[member.name].allowance
        down = e.ControllerDown(opened.state.now, self._time.now)
        self._watcher.on_start(opened.run, opened.resolved.recording)
        job = self._open[member.name] = OpenJob(member, opened, allowance, self._watcher, claim)
        self._build(job, down)

    def _build(self, job: OpenJob, down: e.ControllerDown | None) -> None:
        try:
            job.build(self._time.seen_by(job.name), down)
        except (UsageError, Interrupted) as error:
            del self._open[job.name]
            self._time.forget(job.name)
            job.abandon()
            self._spent = MicroUsd(self._spent + sure(job.state))
            self._never_began(job.name, error.exit_code, str(error))
            if down is None:
                job.run.discard()
            return
        self._round_at = self._time.now

    def _left(self, job: OpenJob) -> None:
        """A job has ended: nothing of it is kept in memory but its final object."""
        closed = job.state.closed
        assert closed is not None
        final = self.finals[job.name] = job.finish()
        del self._open[job.name]
        self._time.forget(job.name)
        self._spent = MicroUsd(self._spent + sure(job.state))
        self._journal.write(
            j.Left(self._time.now, job.name, job.run.id, closed.exit_code, closed.why, job.removed)
        )
        self._watcher.on_left(job.name, closed.exit_code, closed.why, final)
        self._round_at = self._time.now
        self._unsettled = True

    def left_before(self, final: dict[str, Any], spent: MicroUsd) -> None:
        """A job that had ended when the queue was taken up again."""
        self.finals[str(final["job"])] = final
        self._spent = MicroUsd(self._spent + spent)

    def _never_began(self, name: str, exit_code: int, why: str, removed: bool = False) -> None:
        self._waiting.pop(name, None)
        self._journal.write(j.Left(self._time.now, name, "", exit_code, why, removed))
        self._watcher.on_left(name, exit_code, why, None)

    # ---- a round ----------------------------------------------------------------------------------

    def _round(self) -> None:
        self._round_at = Instant(int(self._time.now + self._spec.round_s))
        self._take_up_requests()
        self._let_in()
        hand, why = dealt(self._wanting(), self._table())
        if why and not self._no_answer:
            name = self._spec.policy.name
            self._watcher.on_trouble(
                f"{name}: {why}. As long as that is so, machines are shared as by makespan"
            )
        self._no_answer = bool(why)
        self._wanted = hand.leases
        self._end_the_broke(hand)
        self._journal.write(j.Dealt(self._time.now, hand.shares, hand.received, hand.leases, hand.since))
        self._settle()

    def _table(self) -> Table:
        spec, money = self._spec, self._uncommitted()
        purse = left = inf
        if spec.budget is not None and money is not None:
            purse = float(money) - sum(self._owed(job) for job in self._open.values())
            left = float(spec.budget) - self._spent - sum(sure(job.state) for job in self._open.values())
        chosen = chosen_policy(spec.policy, left)
        return Table(self._time.now, spec.round_s, self._pools, chosen, spec.entities, purse)

    def _wanting(self) -> list[Wanting]:
        """Jobs that can use machines, in the order of their arrival."""
        record, found = self._journal.record, []
        for job in sorted(self._open.values(), key=lambda job: -job.member.priority):
            one = job.wanting(
                self._pools,
                record.reserved(job.name),
                record.received(job.name),
                record.since(job.name),
            )
            if one is not None:
                found.append(one)
        return found

    def _settle(self) -> bool:
        """Give the leases that there is room for, take back the others; whether anything changed."""
        self._unsettled = False
        record = self._journal.record
        holders = [job.holder(self._pools, record.reserved(job.name)) for job in self._open.values()]
        wanted = {name: lease for name, lease in self._wanted.items() if name in self._open}
        last = {change.job: change.lease for change in changes(wanted, holders, self._pools)}
        for name, lease in last.items():
            self._open[name].lease(lease, self._spec.budget)
        return bool(last)

    def _end_the_broke(self, hand: Hand) -> None:
        """Jobs that live on money that is all spent end, and are paid for; those that were promised go on."""
        starving = [job for job in self._open.values() if not job.promised and job.name in hand.leases]
        nothing_runs = not any(hand.leases.values()) and not any(job.promised for job in self._open.values())
        idle = nothing_runs and not any(True for job in starving for _ in job.state.live())
        poor = self._spec.budget is not None and idle
        for job in starving:
            if job.name in hand.broke or poor:
                job.lease(None, MicroUsd(0))

    # ---- money ------------------------------------------------------------------------------------

    def _uncommitted(self) -> MicroUsd | None:
        """Of the budget: neither owed by ended jobs nor put aside for promised ones."""
        if self._spec.budget is None:
            return None
        entered = self._journal.record.entered
        aside = sum(entered[name].allowance or 0 for name, job in self._open.items() if job.promised)
        return MicroUsd(self._spec.budget - self._spent - aside)

    def _owed(self, job: OpenJob) -> int:
        """What it owes that no promise covers."""
        return 0 if job.promised else sure(job.state)

    # ---- requests ---------------------------------------------------------------------------------

    def _take_up_requests(self) -> None:
        try:
            asked = self._folder.requests(after=self._journal.record.handled)
        except LedgerError as error:
            self._tell_once(f"{error}. Until it can be, nothing that is asked of the queue is done")
            return
        for number, request in asked:
            if isinstance(request, Unreadable):
                self._tell_once(f"{request}; nothing was done for it. Leave the line, and ask again")
                self._journal.write(j.Handled(self._time.now, number))
            elif request.member:
                self._add(number, request)
            else:
                self.remove(request.job)
                self._journal.write(j.Handled(self._time.now, number, removed=request.job))

    def _tell_once(self, told: str) -> None:
        if told not in self._told:
            self._told.add(told)
            self._watcher.on_trouble(told)

    def _add(self, number: int, request: Request) -> None:
        """On record before it is let in: whoever goes on after a kill lets it in then, and says it once."""
        try:
            member = self._newcomer(number, request)
        except SpotctlError as error:
            self._watcher.on_left(request.job, error.exit_code, str(error), None)
            self._journal.write(j.Handled(self._time.now, number))
            return
        self._journal.write(j.Handled(self._time.now, number, {request.job: request.member}))
        self.admit([member])

    def _newcomer(self, number: int, request: Request) -> Member:
        record = self._journal.record
        if request.job in {*self._waiting, *record.entered, *record.left}:
            raise UsageError(f"{self._spec.name} has had a job called {request.job} in this run; say --name")
        member = self._folder.asked.added(number, request)
        unknown = [name for name in member.after if name not in {*self._waiting, *self._open, *record.left}]
        if unknown:
            raise UsageError(f"it waits for {unknown[0]}, which is no job here")
        return member

    def remove(self, name: str) -> None:
        """A job is to leave the queue: one that waits never begins, one that runs is cancelled."""
        if name in self._waiting:
            self._never_began(name, 0, "it was removed before it began", removed=True)
        elif name in self._open:
            self._open[name].removed = True
            self._open[name].ask(e.Ask.CANCEL)

    def _let_in(self) -> None:
        """Jobs whose predecessors are done; those whose predecessors failed, or were removed, never begin."""
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
