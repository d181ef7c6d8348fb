"""Runs the loop of a queue: one time, many jobs, a round every few minutes.

    process what happened in each job, in the order of the queue
    if a round is due, take up requests, admit jobs and allocate leases
    if machines became free, give the leases for which there is room now
    otherwise advance the time

Everything about one job is in its own ledger; the queue's journal has what concerns all of them. A restarted
queue continues from both: the ledgers show which job holds what, and the next round does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from pricing_data.model.units import MicroUsd
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.admission_queue import AdmissionQueue, Arrival
from spotctl.queue.lifecycle.budget import QueueBudget
from spotctl.queue.lifecycle.job_intake import JobIntake, RequestIntake
from spotctl.queue.lifecycle.job_locks import JobLocks
from spotctl.queue.lifecycle.lease_rounds import LeaseRounds
from spotctl.queue.lifecycle.open_job import OpenJob, QueueWatcher
from spotctl.queue.lifecycle.open_jobs import OpenJobs
from spotctl.queue.lifecycle.shared_time import SharedTime
from spotctl.queue.spec import Member, QueueSettings
from spotctl.session.open import RecordedRun
from spotctl.timesource import TimeSource


class QueueScheduler:
    """Runs the queue of ``journal`` until all its jobs have ended.

    As a context manager, it leaves no machine of an admitted job behind, whatever breaks.
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
        # One dictionary of open jobs, which all parts read and ``OpenJobs`` alone changes.
        spec, pools = settings.spec, Pools(settings.spec.quotas)
        self._time = shared = SharedTime(time)
        self._open: dict[str, OpenJob] = {}
        budget = QueueBudget(spec.budget, self._open, journal)
        self._rounds = LeaseRounds(spec, pools, self._open, budget, journal, shared, watcher)
        self._jobs = OpenJobs(spec, self._open, claims.runs, self._rounds, budget, journal, shared, watcher)
        admission = AdmissionQueue(settings, pools, claims)
        self._intake = JobIntake(spec, admission, self._jobs, self._rounds, budget, journal, shared)
        self._requests = RequestIntake(spec, folder, journal, self._open, self._intake, shared, watcher)
        self._interrupted = False
        self._cancelled = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jobs.abandon_all()  # none is open after a normal end

    @property
    def finals(self) -> dict[str, dict[str, Any]]:
        """Final objects of the jobs that have ended, by name."""
        return self._jobs.finals

    # ---- before the loop ------------------------------------------------------------------------

    def judge_arrivals(self, members: Sequence[Member]) -> list[Arrival]:
        """Judges the jobs of a new queue that begin at once. Raises as ``AdmissionQueue.admit_all``."""
        return self._intake.judge_all(members)

    def begin_jobs(self, arrivals: Sequence[Arrival]) -> None:
        """Starts the jobs that ``judge_arrivals`` admitted."""
        for arrival in arrivals:
            self._jobs.start_job(arrival)

    def admit_jobs(self, members: Sequence[Member]) -> None:
        """Admits jobs into a resumed queue, except those that cannot begin."""
        self._intake.admit_jobs(members)

    def resume_job(self, member: Member, opened: RecordedRun, claim: ExitStack) -> None:
        """Resumes a job that an earlier process of this queue ran."""
        self._jobs.resume_job(member, opened, claim)

    def add_ended_job(self, final: dict[str, Any], spent: MicroUsd) -> None:
        """Adds a job that had ended when the queue was resumed."""
        self._jobs.add_ended_job(final, spent)

    def resume_round(self) -> None:
        """Continues the current round, unless jobs came or left since it was allocated."""
        self._rounds.resume_round()

    def remove_job(self, name: str) -> None:
        """Removes a job from the queue: a waiting one never begins, a running one is cancelled."""
        self._requests.remove_job(name)

    # ---- the loop -------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Ends all jobs gracefully, in the next step of the loop."""
        self._interrupted = True

    def run_jobs(self) -> None:
        """Runs until every job has ended, those requested meanwhile too."""
        while self._goes_on():
            self._run_step()

    def _goes_on(self) -> bool:
        # A job that was added while the last one ended still runs, except after an interrupt.
        if not (self._open or self._intake.waiting or self._cancelled):
            self._requests.take_up_requests()
        return bool(self._open or self._intake.waiting)

    def _run_step(self) -> None:
        # A signal handler only sets the flag: it may come in the middle of a write.
        if self._interrupted:
            self._interrupted, self._cancelled = False, True
            self._jobs.cancel_all()
            self._intake.cancel_waiting()
        # Facts come first: a round has to see everything that is known.
        if self._jobs.process_facts():
            return
        if self._rounds.is_due:
            self._run_round()
        elif self._rounds.has_freed_machines and self._rounds.move_leases():
            return
        elif self._open:
            worlds = {name: job.world for name, job in self._open.items()}
            self._time.advance(worlds, self._rounds.next_at, lambda: self._interrupted)
        else:
            # Only waiting jobs are left: a round admits them, or ends them with their predecessors.
            self._rounds.request_round()

    def _run_round(self) -> None:
        # The interval first: a job that is admitted below makes the next round due at once.
        self._rounds.start_interval()
        self._requests.take_up_requests()
        self._intake.admit_ready()
        self._rounds.allocate()
