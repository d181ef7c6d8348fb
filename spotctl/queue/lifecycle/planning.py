"""Plans a queue: the promises it would make, and the leases of its first round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from msgspec import structs

from bidbrain.cluster.policies.base import Infeasible
from bidbrain.performance.throughput_completion import ThroughputEstimate
from pricing_data.model.units import Instant
from spotctl.errors import DeadlineInfeasible
from spotctl.job.checks import check_job
from spotctl.job.clock_work import find_clock_work
from spotctl.job.resolve import resolve_job
from spotctl.queue.allocation import job_views
from spotctl.queue.allocation.admission import Admission, decide_admission
from spotctl.queue.allocation.allocate import allocate_round
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.allocation.round_inputs import RoundInputs, RoundPlan, SchedulableJob, make_round_policy
from spotctl.queue.allocation.throughput_estimates import estimate_throughputs
from spotctl.queue.error_locations import attribute_errors_to
from spotctl.queue.lifecycle.journal import QueueFolder, root_of
from spotctl.queue.lifecycle.run_queue import by_priority, requested_jobs, start_of, with_start
from spotctl.queue.spec import Member, QueueSettings
from spotctl.session.open import opening_state


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """Shows a queue before it begins.

    ``admission``: the verdict on jobs that would begin at once; ``waiting``: the others.
    """

    start: Instant
    prices: str
    admission: Admission
    waiting: tuple[str, ...]
    first: RoundPlan
    members: Mapping[str, Member]
    rates: Mapping[str, Mapping[str, ThroughputEstimate]]
    """Speed on each instance type of each job that would begin at once."""
    leasable: Mapping[str, int]
    """Machines of each quota that no promise reserves, so that leases can have them."""
    unused: tuple[str, ...]
    """Quotas of machines that no job may use."""
    slower: Mapping[str, float]
    """By job that would begin at once: how many times too slow this computer is for the queue's speed.

    It assumes all machines that the job may have, and lacks jobs whose work on this computer is unknown.
    """


def plan_queue(settings: QueueSettings) -> QueuePlan:
    """Plans a queue that starts now, in the trace's time, with the requests since its last run.

    Writes and starts nothing. Raises UsageError where requests do not go together, and DeadlineInfeasible
    where the policy cannot keep to its budget.
    """
    folder = QueueFolder(settings.spec.name, root_of(settings.options.world))
    asked, _ = requested_jobs(settings, folder)
    start = start_of(settings, asked)
    settled = with_start(settings, start)
    pools = Pools(settings.spec.quotas)
    members = {member.name: member for member in by_priority(asked)}
    resolved, slower = {}, {}
    for name, member in members.items():
        # When the others begin is unknown, so nothing about them can be planned.
        if not member.after:
            with attribute_errors_to(name):
                resolved[name] = resolve_job(member.spec, settled.options.prices, "plan", 0)
                terms = resolved[name].terms
                size = check_job(settled.settings_for(member), terms)
                work = find_clock_work(member.spec, terms, size)
                terms = replace(terms, work=replace(terms.work, core_seconds_per_clock=work.core_seconds))
                resolved[name] = replace(resolved[name], terms=terms)
                most = terms.most_machines * max(t.nu for t in (*terms.spot, terms.reliable))
                if (times := work.slower_here(most, settled.options.speed)) is not None:
                    slower[name] = times
    states = {name: opening_state(of) for name, of in resolved.items()}
    ready = [members[name] for name in states]
    weighed = decide_admission(ready, states, pools, {}, settings.spec.budget)
    wanting = []
    for name, state in states.items():
        # Under the terms of its promise: it may hold fewer machines than its file allows.
        one = weighed.judged[name]
        seat = job_views.schedulable_job(
            structs.replace(state, terms=one.terms), members[name], pools, one.reserved or {}, {}, None
        )
        if seat is not None:
            wanting.append(seat)
    hand = _allocate_first_round(wanting, settings, start, weighed, pools)
    prices = next((of.terms.origin.prices for of in resolved.values()), "")
    kept = sum((Counter(one.reserved or {}) for one in weighed.judged.values()), Counter[str]())
    usable = {pools.pool_of(t.market) for s in states.values() for t in (*s.terms.spot, s.terms.reliable)}
    waiting = tuple(name for name in members if name not in resolved)
    return QueuePlan(
        start,
        prices,
        weighed,
        waiting,
        hand,
        members,
        rates={name: estimate_throughputs(state) for name, state in states.items()},
        leasable={pool: count - kept[pool] for pool, count in pools.limits.items()},
        # A waiting job may use any of them.
        unused=() if waiting else tuple(pool for pool in pools.limits if pool not in usable),
        slower=slower,
    )


def _allocate_first_round(
    wanting: list[SchedulableJob], settings: QueueSettings, start: Instant, weighed: Admission, pools: Pools
) -> RoundPlan:
    """Allocates the first round. Raises DeadlineInfeasible where the policy cannot keep to its budget."""
    spec = settings.spec
    budget_left = left = inf
    if spec.budget is not None:
        left = float(spec.budget)
        budget_left = left - sum(amount or 0 for amount in weighed.allowances.values())
    chosen = make_round_policy(spec.policy, left)
    try:
        return allocate_round(
            wanting, RoundInputs(start, spec.round_s, pools, chosen, spec.entities, budget_left)
        )
    except Infeasible as error:
        raise DeadlineInfeasible(
            f"{spec.name}: nothing was started. {spec.policy.name}: {error}. Allow as much, or name another "
            "policy"
        ) from error
