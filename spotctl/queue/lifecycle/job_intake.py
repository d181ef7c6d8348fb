"""Takes jobs into a running queue: from its file, from requests of users, and once their predecessors end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from spotctl.control import entries as e
from spotctl.errors import DeadlineInfeasible, Interrupted, LedgerError, SpotctlError, UsageError
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.admission_queue import AdmissionQueue, Arrival, QueueCapacity, Refusal
from spotctl.queue.lifecycle.budget import QueueBudget
from spotctl.queue.lifecycle.lease_rounds import LeaseRounds
from spotctl.queue.lifecycle.open_job import OpenJob, QueueWatcher
from spotctl.queue.lifecycle.open_jobs import OpenJobs
from spotctl.queue.lifecycle.requests import Request, UnreadableRequest
from spotctl.queue.lifecycle.shared_time import SharedTime
from spotctl.queue.spec import Member, QueueSpec
from spotctl.session.open import opening_state


class JobIntake:
    """Admits jobs into ``jobs``, and holds those that wait for their predecessors."""

    def __init__(
        self,
        spec: QueueSpec,
        admission: AdmissionQueue,
        jobs: OpenJobs,
        rounds: LeaseRounds,
        budget: QueueBudget,
        journal: j.QueueJournal,
        time: SharedTime,
    ) -> None:
        self._spec = spec
        self._admission = admission
        self._jobs = jobs
        self._rounds = rounds
        self._budget = budget
        self._journal = journal
        self._time = time
        self.waiting: dict[str, Member] = {}
        """Jobs that wait for predecessors, by name."""

    def judge_all(self, members: Sequence[Member]) -> list[Arrival]:
        """Judges the jobs of a new queue that begin at once. Raises as ``AdmissionQueue.admit_all``."""
        return self._admission.admit_all(self._set_aside_waiting(members), self._capacity_left())

    def admit_jobs(self, members: Sequence[Member]) -> None:
        """Admits jobs into a running queue, in the order of ``members``; refuses those that cannot begin."""
        self._start_jobs(self._set_aside_waiting(members))

    def admit_ready(self) -> None:
        """Admits jobs whose predecessors are done. If one failed, or was removed, they never begin."""
        left = self._journal.record.left
        for name, member in list(self.waiting.items()):
            # A removed predecessor ended with exit code 0 if it never began, and still did no work.
            gone = [left[before] for before in member.after if before in left]
            failed = next((one for one in gone if one.exit_code or one.removed), None)
            if failed is not None:
                why = f"it was to come after {failed.job}, which was not done"
                self._end_waiting(name, failed.exit_code or Interrupted.exit_code, why)
            elif len(gone) == len(member.after):
                del self.waiting[name]
                self._start_jobs([member])

    def cancel_waiting(self) -> None:
        for name in list(self.waiting):
            self._end_waiting(name, 7, "it was cancelled before it began")

    def remove_waiting(self, name: str) -> None:
        """Removes a waiting job: it never begins."""
        self._end_waiting(name, 0, "it was removed before it began", removed=True)

    def _end_waiting(self, name: str, exit_code: int, why: str, removed: bool = False) -> None:
        del self.waiting[name]
        self._jobs.end_unstarted(name, exit_code, why, removed)

    def _set_aside_waiting(self, members: Sequence[Member]) -> list[Member]:
        """Returns the jobs without predecessors. The others wait until the next round at least."""
        self.waiting |= {member.name: member for member in members if member.after}
        return [member for member in members if not member.after]

    def _start_jobs(self, members: Sequence[Member]) -> None:
        for one in self._admission.admit_each(members, self._capacity_left()):
            if isinstance(one, Refusal):
                self._jobs.refuse_job(one.member.name, one.error)
            elif why := self._why_rejected(one):
                # Unlocked, so that a user can launch it by itself.
                one.claim.close()
                self._jobs.refuse_job(one.member.name, DeadlineInfeasible(why))
            else:
                self._jobs.start_job(one)

    def _why_rejected(self, one: Arrival) -> str:
        """Returns why the policy rejects a job; "" if it does not."""
        # Jobs of the queue's file were admitted together, and an unfinished run keeps its place.
        if one.member in self._spec.jobs or one.unfinished is not None:
            return ""
        state, reserved = opening_state(one.resolved), Counter(one.judgement.reserved)
        return self._rounds.why_rejected(state, one.member, reserved)

    def _capacity_left(self) -> QueueCapacity:
        # Ended jobs keep their note of what was reserved; only open ones still need it.
        taken = Counter[str]()
        for name in self._jobs.names:
            taken += self._journal.record.reserved_machines(name)
        return QueueCapacity(self._time.now, taken, self._budget.uncommitted())


class RequestIntake:
    """Carries out what users request of a running queue: to add a job, or to remove one."""

    def __init__(
        self,
        spec: QueueSpec,
        folder: j.QueueFolder,
        journal: j.QueueJournal,
        jobs: Mapping[str, OpenJob],
        intake: JobIntake,
        time: SharedTime,
        watcher: QueueWatcher,
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._journal = journal
        self._jobs = jobs
        self._intake = intake
        self._time = time
        self._watcher = watcher
        self._reported: set[str] = set()

    def take_up_requests(self) -> None:
        """Carries out the requests since the last call. Reports those that it cannot read, and goes on."""
        try:
            requests = self._folder.requests_after(after=self._journal.record.handled)
        except LedgerError as error:
            # The queue's jobs can go on without requests, so this ends nothing.
            self._report_once(f"{error}. Until it can be, nothing that is asked of the queue is done")
            return
        for number, request in requests:
            if isinstance(request, UnreadableRequest):
                self._report_once(f"{request}; nothing was done for it. Leave the line, and ask again")
                self._journal.write_note(j.RequestHandled(self._time.now, number))
            elif request.member:
                self._add_job(number, request)
            else:
                # A process that dies before the note reads the request again, to the same end. One that dies
                # after it, before the job's ledger has the cancel: ``resume_queue`` repeats it.
                self.remove_job(request.job)
                self._journal.write_note(j.RequestHandled(self._time.now, number, removed=request.job))

    def remove_job(self, name: str) -> None:
        """Removes a job from the queue: a waiting one never begins, a running one is cancelled."""
        if name in self._intake.waiting:
            self._intake.remove_waiting(name)
        elif name in self._jobs:
            self._jobs[name].removed = True
            self._jobs[name].send_request(e.UserRequest.CANCEL)

    def _add_job(self, number: int, request: Request) -> None:
        try:
            member = self._parse_newcomer(number, request)
        except SpotctlError as error:
            self._watcher.on_left(request.job, error.exit_code, str(error), None)
            self._journal.write_note(j.RequestHandled(self._time.now, number))
            return
        # On record before it is admitted: after a kill the next process admits it, once.
        self._journal.write_note(j.RequestHandled(self._time.now, number, {request.job: request.member}))
        self._intake.admit_jobs([member])

    def _parse_newcomer(self, number: int, request: Request) -> Member:
        # Names must be new in this run: the journal knows its jobs by name.
        record, waiting = self._journal.record, self._intake.waiting
        if request.job in {*waiting, *record.entered, *record.left}:
            raise UsageError(f"{self._spec.name} has had a job called {request.job} in this run; say --name")
        member = self._folder.request_file.parse_added(number, request)
        unknown = [name for name in member.after if name not in {*waiting, *self._jobs, *record.left}]
        if unknown:
            raise UsageError(f"it waits for {unknown[0]}, which is no job here")
        return member

    def _report_once(self, trouble: str) -> None:
        if trouble not in self._reported:
            self._reported.add(trouble)
            self._watcher.on_trouble(trouble)
