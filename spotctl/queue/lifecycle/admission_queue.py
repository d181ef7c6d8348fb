"""Jobs that come to a queue: each is resolved, weighed and claimed before anything of it is begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from pricing_data.model.units import Instant, MicroUsd
from spotctl.errors import DeadlineInfeasible, SpotctlError, UsageError
from spotctl.job.checks import check_job
from spotctl.job.clock_work import find_clock_work
from spotctl.job.resolve import Resolved, resolve
from spotctl.job.settings import Settings, WorldKind
from spotctl.queue.allocation.admission import Admission, admission
from spotctl.queue.allocation.deadline_admission import Promised
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.error_locations import about
from spotctl.queue.lifecycle.job_locks import Claims, reopened
from spotctl.queue.spec import Member, QueueSettings
from spotctl.session.open import Recorded, has_begun, opening_state, settings_of


@dataclass(frozen=True, slots=True)
class Room:
    """What a queue has for jobs that come ``at`` some moment.

    ``taken``: machines by pool that are reserved for others; ``money``: what is not put aside for them, None
    without a budget.
    """

    at: Instant
    taken: Mapping[str, int]
    money: MicroUsd | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that may begin. ``unfinished``: a run of its own that it goes on with. ``claim``: on both."""

    member: Member
    settings: Settings
    resolved: Resolved
    judgement: Promised
    allowance: MicroUsd | None
    unfinished: Recorded | None
    claim: ExitStack


@dataclass(frozen=True, slots=True)
class Refusal:
    """A job that cannot begin, and why."""

    member: Member
    error: SpotctlError


class Arrivals:
    """Jobs of the queue of ``settings``, which say when they start; ``claims`` holds those that may begin."""

    def __init__(self, settings: QueueSettings, pools: Pools, claims: Claims) -> None:
        self._settings = settings
        self._pools = pools
        self._claims = claims

    def all(self, members: Sequence[Member], room: Room) -> list[Arrival]:
        """All of them, or none: for a queue that is to begin.

        Raises DeadlineInfeasible if a deadline cannot be promised that must be, UsageError if the quotas can
        never hold a job, AlreadyRunning if one runs already, and whatever else speaks against one.
        """
        resolved = {}
        for member in members:
            with about(member.name):
                resolved[member.name] = self._resolved(member, room)
        weighed = self._weighed(members, resolved, room)
        weighed.check(self._settings.spec.name)
        return [self._arrival(member, resolved[member.name], weighed) for member in members]

    def each(self, members: Sequence[Member], room: Room) -> list[Arrival | Refusal]:
        """What becomes of each of them: for a queue that runs."""
        found: list[Arrival | Refusal] = []
        resolved, able = {}, []
        for member in members:
            try:
                resolved[member.name] = self._resolved(member, room)
            except SpotctlError as error:
                found.append(Refusal(member, error))
            else:
                able.append(member)
        weighed = self._weighed(able, resolved, room)
        for member in able:
            try:
                found.append(self._arrival(member, resolved[member.name], weighed))
            except SpotctlError as error:
                found.append(Refusal(member, error))
        return found

    def _resolved(self, member: Member, room: Room) -> Resolved:
        """Its terms, from now on, at the prices that the whole queue sees."""
        settings = self._settings.of(member)
        resolved = resolve(settings.spec, settings.prices, "", settings.seed)
        size = check_job(settings, resolved.terms)
        work = find_clock_work(settings.spec, resolved.terms, size).core_seconds
        terms = replace(resolved.terms, start=room.at, core_seconds_per_clock=work)
        return replace(resolved, terms=terms)

    def _weighed(self, members: Sequence[Member], resolved: Mapping[str, Resolved], room: Room) -> Admission:
        states = {name: opening_state(of) for name, of in resolved.items()}
        return admission(members, states, self._pools, room.taken, room.money)

    def _arrival(self, member: Member, resolved: Resolved, weighed: Admission) -> Arrival:
        name, settings = member.name, self._settings.of(member)
        if name in weighed.refused:
            raise DeadlineInfeasible(
                f"its deadline cannot be promised: {weighed.refused[name]}. Allow more time, machines or "
                "money, or add it with --best-effort"
            )
        if name in weighed.never:
            raise UsageError(weighed.never[name])
        judgement, allowance = weighed.judged[name], weighed.allowances.get(name)
        resolved = replace(resolved, terms=judgement.terms)
        claim = self._claims.on(name)
        try:
            unfinished = self._unfinished(settings, claim)
            _check(unfinished, judgement)
        except SpotctlError:
            claim.close()
            raise
        return Arrival(member, settings, resolved, judgement, allowance, unfinished, claim)

    def _unfinished(self, settings: Settings, claim: ExitStack) -> Recorded | None:
        name = settings.spec.name
        run = None if settings.world is WorldKind.REPLAY else self._claims.runs.unfinished(name)
        if run is None:
            return None
        if settings_of(run) != settings:
            if not has_begun(run):
                run.discard()  # whoever made it was refused or killed before it asked for anything
                return None
            raise UsageError(
                f"{name} has an unfinished run of its own ({run.folder}); end it first: spotctl down {name}"
            )
        return reopened(run, claim)


def _check(unfinished: Recorded | None, judgement: Promised) -> None:
    """Raises UsageError for a run that was begun under another promise than can be made now."""
    if unfinished is None:
        return
    before, now = unfinished.state.terms, judgement.terms
    if (before.queued, before.limits) != (now.queued, now.limits):
        raise UsageError(
            f"{before.job} has an unfinished run that was promised something else ({unfinished.run.folder}); "
            f"end it first: spotctl down {before.job}"
        )
