"""Starts, resumes and closes the jobs of a running queue. Each is a run with a ledger of its own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from pricing_data.model.units import MicroUsd
from spotctl.control import entries as e
from spotctl.control.billing import certain_cost
from spotctl.errors import Interrupted, SpotctlError, UsageError
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.admission_queue import Arrival
from spotctl.queue.lifecycle.budget import QueueBudget
from spotctl.queue.lifecycle.lease_rounds import LeaseRounds
from spotctl.queue.lifecycle.open_job import OpenJob, QueueWatcher
from spotctl.queue.lifecycle.shared_time import SharedTime
from spotctl.queue.spec import Member, QueueSpec, member_text
from spotctl.records.run import RunStore
from spotctl.session.open import RecordedRun, create_run


class OpenJobs:
    """Adds and removes the open jobs in ``jobs``, by name, which other parts of the loop only read."""

    def __init__(
        self,
        spec: QueueSpec,
        jobs: dict[str, OpenJob],
        runs: RunStore,
        rounds: LeaseRounds,
        budget: QueueBudget,
        journal: j.QueueJournal,
        time: SharedTime,
        watcher: QueueWatcher,
    ) -> None:
        self._spec = spec
        self._jobs = jobs
        self._runs = runs
        self._rounds = rounds
        self._budget = budget
        self._journal = journal
        self._time = time
        self._watcher = watcher
        self.finals: dict[str, dict[str, Any]] = {}
        """Final objects of the jobs that have ended, by name."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._jobs)

    def start_job(self, arrival: Arrival) -> None:
        """Starts an admitted job, or resumes its unfinished run; reports it as refused if neither works."""
        member, opened = arrival.member, arrival.unfinished
        down = None if opened is None else e.ControllerDown(opened.state.now, self._time.now)
        if opened is None:
            try:
                opened = create_run(self._runs, arrival.settings, arrival.resolved, self._watcher)
            except SpotctlError as error:
                arrival.claim.close()
                self.refuse_job(member.name, error)
                return
            # An unfinished run's ledger is in its claim already.
            arrival.claim.callback(opened.ledger.close)
        job = OpenJob(member, opened, arrival.allowance, self._watcher, arrival.claim)
        self._jobs[member.name] = job
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

    def resume_job(self, member: Member, opened: RecordedRun, claim: ExitStack) -> None:
        """Resumes a job that an earlier process of this queue ran."""
        allowance = self._journal.record.entered[member.name].allowance
        down = e.ControllerDown(opened.state.now, self._time.now)
        self._watcher.on_start(opened.run, opened.state.terms.origin.prices)
        job = self._jobs[member.name] = OpenJob(member, opened, allowance, self._watcher, claim)
        self._build_world(job, down)

    def add_ended_job(self, final: dict[str, Any], spent: MicroUsd) -> None:
        """Adds a job that had ended when the queue was resumed."""
        self.finals[str(final["job"])] = final
        self._budget.charge(spent)

    def process_facts(self) -> bool:
        """Processes what happened in each job, and closes those that ended; returns whether anything did."""
        any_news = False
        # A copy, because closing removes jobs; in the queue's order, so that every replay does the same.
        for job in list(self._jobs.values()):
            any_news |= job.process_facts(self._rounds.note_fact)
            if job.is_closed:
                self._close_job(job)
        return any_news

    def cancel_all(self) -> None:
        for job in self._jobs.values():
            job.send_request(e.UserRequest.CANCEL)

    def abandon_all(self) -> None:
        """Takes away the machines of all open jobs, even if that fails for some; raises the last error."""
        # The stack calls all of them, whatever one raises: a machine left behind costs money.
        with ExitStack() as every:
            for job in self._jobs.values():
                every.callback(job.abandon)

    def refuse_job(self, name: str, error: SpotctlError) -> None:
        """Records that a job never began because of ``error``."""
        self.end_unstarted(name, error.exit_code, str(error))

    def end_unstarted(self, name: str, exit_code: int, why: str, removed: bool = False) -> None:
        """Records that a job never began."""
        self._journal.write_note(j.JobLeft(self._time.now, name, "", exit_code, why, removed))
        self._watcher.on_left(name, exit_code, why, None)

    def _build_world(self, job: OpenJob, down: e.ControllerDown | None) -> None:
        try:
            job.build_world(self._time.job_time(job.name), down)
        except (UsageError, Interrupted) as error:
            del self._jobs[job.name]
            self._time.remove_job(job.name)
            # Machines first, then the note: a note that says it left must not hide a bill.
            job.abandon()
            self._budget.charge(certain_cost(job.state))
            self.refuse_job(job.name, error)
            # A resumed run has history, and costs to show; a new one has nothing.
            if down is None:
                job.run.discard()
            return
        self._rounds.request_round()  # a new job changes the shares of all

    def _close_job(self, job: OpenJob) -> None:
        """Closes an ended job, and keeps only its final object in memory."""
        closed = job.state.ending.closed
        assert closed is not None
        final = self.finals[job.name] = job.close_job()
        del self._jobs[job.name]
        self._time.remove_job(job.name)
        self._budget.charge(certain_cost(job.state))
        self._journal.write_note(
            j.JobLeft(self._time.now, job.name, job.run.id, closed.exit_code, closed.why, job.removed)
        )
        self._watcher.on_left(job.name, closed.exit_code, closed.why, final)
        # Its machines and its money are free for the others.
        self._rounds.request_round()
        self._rounds.has_freed_machines = True
