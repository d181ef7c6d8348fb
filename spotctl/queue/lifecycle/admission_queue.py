"""Takes in jobs: resolves, judges and locks each of them before anything of it begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from pricing_data.model.units import Instant, MicroUsd
from spotctl.errors import DeadlineInfeasible, SpotctlError, UsageError
from spotctl.job.checks import check_job
from spotctl.job.choices import WorldKind
from spotctl.job.clock_work import find_clock_work
from spotctl.job.resolve import ResolvedJob, resolve_job
from spotctl.job.settings import Settings
from spotctl.queue.allocation.admission import Admission, decide_admission
from spotctl.queue.allocation.deadline_admission import DeadlineVerdict
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.error_locations import attribute_errors_to
from spotctl.queue.lifecycle.job_locks import JobLocks, reopen_claimed
from spotctl.queue.spec import Member, QueueSettings
from spotctl.session.open import RecordedRun, has_begun, opening_state, settings_of


@dataclass(frozen=True, slots=True)
class QueueCapacity:
    """Holds what a queue has left for jobs that arrive at the moment ``at``.

    ``taken``: machines by pool that are reserved for others; ``money``: what is not reserved for others, None
    without a budget.
    """

    at: Instant
    taken: Mapping[str, int]
    money: MicroUsd | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """Describes a job that may begin.

    ``unfinished``: its earlier run, to be resumed; None for a new run. ``claim``: holds its lock, and the
    ledger of that run.
    """

    member: Member
    settings: Settings
    resolved: ResolvedJob
    judgement: DeadlineVerdict
    allowance: MicroUsd | None
    unfinished: RecordedRun | None
    claim: ExitStack


@dataclass(frozen=True, slots=True)
class Refusal:
    """Says why a job cannot begin."""

    member: Member
    error: SpotctlError


class AdmissionQueue:
    """Judges the jobs of a queue; ``settings`` name its start, and ``claims`` locks jobs that may begin."""

    def __init__(self, settings: QueueSettings, pools: Pools, claims: JobLocks) -> None:
        self._settings = settings
        self._pools = pools
        self._claims = claims

    def admit_all(self, members: Sequence[Member], room: QueueCapacity) -> list[Arrival]:
        """Admits all jobs of a queue that is to begin, or none.

        Raises DeadlineInfeasible if a deadline must be promised and cannot be, UsageError if the quotas can
        never hold a job, AlreadyRunning if one runs already, and any other error that keeps one from
        beginning.
        """
        resolved = {}
        for member in members:
            with attribute_errors_to(member.name):
                resolved[member.name] = self._resolve_member(member, room)
        weighed = self._decide_admission(members, resolved, room)
        weighed.raise_if_refused(self._settings.spec.name)
        return [self._build_arrival(member, resolved[member.name], weighed) for member in members]

    def admit_each(self, members: Sequence[Member], room: QueueCapacity) -> list[Arrival | Refusal]:
        """Admits or refuses each job for a running queue; refusing one does not affect the others."""
        found: list[Arrival | Refusal] = []
        resolved, able = {}, []
        for member in members:
            try:
                resolved[member.name] = self._resolve_member(member, room)
            except SpotctlError as error:
                found.append(Refusal(member, error))
            else:
                able.append(member)
        weighed = self._decide_admission(able, resolved, room)
        for member in able:
            try:
                found.append(self._build_arrival(member, resolved[member.name], weighed))
            except SpotctlError as error:
                found.append(Refusal(member, error))
        return found

    def _resolve_member(self, member: Member, room: QueueCapacity) -> ResolvedJob:
        """Resolves a job that starts now, at the prices that the whole queue sees."""
        settings = self._settings.settings_for(member)
        resolved = resolve_job(settings.spec, settings.prices, "", settings.seed)
        size = check_job(settings, resolved.terms)
        work = find_clock_work(settings.spec, resolved.terms, size).core_seconds
        # ``start`` of the prices is the queue's; the job begins, and its deadline counts, from now.
        terms = replace(
            resolved.terms, start=room.at, work=replace(resolved.terms.work, core_seconds_per_clock=work)
        )
        return replace(resolved, terms=terms)

    def _decide_admission(
        self, members: Sequence[Member], resolved: Mapping[str, ResolvedJob], room: QueueCapacity
    ) -> Admission:
        states = {name: opening_state(of) for name, of in resolved.items()}
        return decide_admission(members, states, self._pools, room.taken, room.money)

    def _build_arrival(self, member: Member, resolved: ResolvedJob, weighed: Admission) -> Arrival:
        name, settings = member.name, self._settings.settings_for(member)
        if name in weighed.refused:
            raise DeadlineInfeasible(
                f"its deadline cannot be promised: {weighed.refused[name]}. Allow more time, machines or "
                "money, or add it with --best-effort"
            )
        if name in weighed.never:
            raise UsageError(weighed.never[name])
        judgement, allowance = weighed.judged[name], weighed.allowances.get(name)
        resolved = replace(resolved, terms=judgement.terms)
        # Locked before its record is read: another process might be writing to it.
        claim = self._claims.claim_job(name)
        try:
            unfinished = self._reopen_unfinished(settings, claim)
            _check_promise(unfinished, judgement)
        except SpotctlError:
            claim.close()
            raise
        return Arrival(member, settings, resolved, judgement, allowance, unfinished, claim)

    def _reopen_unfinished(self, settings: Settings, claim: ExitStack) -> RecordedRun | None:
        name = settings.spec.name
        run = None if settings.world is WorldKind.REPLAY else self._claims.runs.find_unfinished(name)
        if run is None:
            return None
        # The same settings: the queue's process died between the job's first entry and its own note.
        if settings_of(run) != settings:
            if not has_begun(run):
                run.discard()  # its process was refused or killed before it requested anything
                return None
            raise UsageError(
                f"{name} has an unfinished run of its own ({run.folder}); end it first: spotctl down {name}"
            )
        return reopen_claimed(run, claim)


def _check_promise(unfinished: RecordedRun | None, judgement: DeadlineVerdict) -> None:
    """Raises UsageError for a run that began under another promise than the queue can make now."""
    if unfinished is None:
        return
    before, now = unfinished.state.terms, judgement.terms
    if (before.queued, before.limits) != (now.queued, now.limits):
        raise UsageError(
            f"{before.job} has an unfinished run that was promised something else ({unfinished.run.folder}); "
            f"end it first: spotctl down {before.job}"
        )
