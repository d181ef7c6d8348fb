"""Allocates machines to the open jobs of a queue, a round every few minutes, and moves their leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from bidbrain.cluster.lease import Lease
from pricing_data.model.units import Instant, MicroUsd
from spotctl.control import entries as e
from spotctl.control.state import State
from spotctl.queue.allocation import job_views
from spotctl.queue.allocation.allocate import allocate_with_fallback, rejects_newcomer
from spotctl.queue.allocation.lease_changes import find_lease_changes
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.allocation.round_inputs import RoundInputs, RoundPlan, SchedulableJob, make_round_policy
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.budget import QueueBudget
from spotctl.queue.lifecycle.open_job import OpenJob, QueueWatcher
from spotctl.queue.lifecycle.shared_time import SharedTime
from spotctl.queue.spec import Member, QueueSpec


class LeaseRounds:
    """Allocates machines in ``pools`` to ``jobs``, the open jobs by name, under the policy of ``spec``."""

    def __init__(
        self,
        spec: QueueSpec,
        pools: Pools,
        jobs: Mapping[str, OpenJob],
        budget: QueueBudget,
        journal: j.QueueJournal,
        time: SharedTime,
        watcher: QueueWatcher,
    ) -> None:
        self._spec = spec
        self._pools = pools
        self._jobs = jobs
        self._budget = budget
        self._journal = journal
        self._time = time
        self._watcher = watcher
        self._wanted: Mapping[str, Lease | None] = {}
        self._policy_failed = False
        """Whether the last round was allocated by the fallback."""
        self.next_at = time.now
        """When the next round is due."""
        self.has_freed_machines = True
        """Whether machines may have become free since the leases were last moved."""

    @property
    def is_due(self) -> bool:
        return self._time.now >= self.next_at

    def request_round(self) -> None:
        """Makes a round due at once: the open jobs or their money changed."""
        self.next_at = self._time.now

    def start_interval(self) -> None:
        """Sets the next round one interval from now."""
        self.next_at = Instant(int(self._time.now + self._spec.round_s))

    def resume_round(self) -> None:
        """Continues the round of an earlier process, unless jobs came or left since it was allocated."""
        record = self._journal.record
        # Its leases are on record, so nobody loses machines to a restart. After jobs came or left, the next
        # round is due at once, as it was.
        if record.last is not None and not record.stale:
            self._wanted = record.last.leases
            self.next_at = Instant(int(record.last.at + self._spec.round_s))

    def note_fact(self, fact: e.Fact) -> None:
        if isinstance(fact, (e.InstancesEnded, e.TrainingFinished, e.TrainingFailed)):
            self.has_freed_machines = True

    def allocate(self) -> None:
        """Allocates a round, records it, and moves the leases for which machines are free."""
        plan, why = allocate_with_fallback(self._schedulable_jobs(), self._round_inputs())
        # Reported once, and not every round, until the policy has an answer again.
        if why and not self._policy_failed:
            name = self._spec.policy.name
            self._watcher.on_trouble(
                f"{name}: {why}. As long as that is so, machines are shared as by makespan"
            )
        self._policy_failed = bool(why)
        self._wanted = plan.leases
        self._end_unpaid_jobs(plan)
        # On record before any lease moves: a restarted queue goes on with the same leases.
        self._journal.write_note(
            j.RoundAllocated(self._time.now, plan.shares, plan.received, plan.leases, plan.since)
        )
        self.move_leases()

    def move_leases(self) -> bool:
        """Withdraws leases, and grants those whose machines are free; returns whether any lease changed."""
        self.has_freed_machines = False
        record = self._journal.record
        holders = [
            job.lease_holder(self._pools, record.reserved_machines(job.name)) for job in self._jobs.values()
        ]
        wanted = {name: lease for name, lease in self._wanted.items() if name in self._jobs}
        # A job may lose one lease and get another at once; it hears of the last change alone.
        last = {change.job: change.lease for change in find_lease_changes(wanted, holders, self._pools)}
        for name, lease in last.items():
            self._jobs[name].give_lease(lease, self._budget.limit)
        return bool(last)

    def why_rejected(self, state: State, member: Member, reserved: Counter[str]) -> str:
        """Returns why the policy cannot take in a job, described by its opening state; "" if it can."""
        seat = job_views.schedulable_job(state, member, self._pools, reserved, {}, None)
        why = "" if seat is None else rejects_newcomer(seat, self._schedulable_jobs(), self._round_inputs())
        return why and f"{self._spec.policy.name} cannot take it in beside the others: {why}"

    def _round_inputs(self) -> RoundInputs:
        spec, policy = self._spec, make_round_policy(self._spec.policy, self._budget.left())
        money = self._budget.left_for_unpromised()
        return RoundInputs(self._time.now, spec.round_s, self._pools, policy, spec.entities, money)

    def _schedulable_jobs(self) -> list[SchedulableJob]:
        """Returns the jobs that can use machines, by priority, then in the order of their arrival."""
        record, found = self._journal.record, []
        for job in sorted(self._jobs.values(), key=lambda job: -job.member.priority):
            one = job.schedulable_job(
                self._pools,
                record.reserved_machines(job.name),
                record.received_s(job.name),
                record.hold_since(job.name),
            )
            if one is not None:
                found.append(one)
        return found

    def _end_unpaid_jobs(self, plan: RoundPlan) -> None:
        """Ends jobs for which no money is left, by an allowance of 0. Promised jobs go on."""
        unpromised = [job for job in self._jobs.values() if not job.is_promised and job.name in plan.leases]
        any_promised = any(job.is_promised for job in self._jobs.values())
        nothing_runs = not any(plan.leases.values()) and not any_promised
        # While a machine still runs, its bill is open: a refund may pay for another round.
        idle = nothing_runs and not any(True for job in unpromised for _ in job.state.live_instances())
        poor = self._budget.limit is not None and idle
        for job in unpromised:
            if job.name in plan.out_of_budget or poor:
                job.give_lease(None, MicroUsd(0))
