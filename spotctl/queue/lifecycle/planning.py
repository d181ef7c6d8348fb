"""What a queue would promise, and what its first round would give: for showing, before anything is begun."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from msgspec import structs

from bidbrain.cluster.policies.base import Infeasible
from bidbrain.performance.throughput_completion import Estimate
from pricing_data.model.units import Instant
from spotctl.errors import DeadlineInfeasible
from spotctl.job.checks import check_job
from spotctl.job.clock_work import find_clock_work
from spotctl.job.resolve import resolve
from spotctl.queue.allocation import job_views
from spotctl.queue.allocation.admission import Admission, admission
from spotctl.queue.allocation.allocate import deal
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.allocation.round_inputs import Hand, Table, Wanting, chosen_policy
from spotctl.queue.allocation.throughput_estimates import rates
from spotctl.queue.error_locations import about
from spotctl.queue.lifecycle.journal import QueueFolder, root_of
from spotctl.queue.lifecycle.run_queue import asked_for, in_order, start_of, starting_at
from spotctl.queue.spec import Member, QueueSettings
from spotctl.session.open import opening_state


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """``admission``: of every job that would begin at once; ``waiting``: the others."""

    start: Instant
    prices: str
    admission: Admission
    waiting: tuple[str, ...]
    first: Hand
    members: Mapping[str, Member]
    rates: Mapping[str, Mapping[str, Estimate]]
    """How fast each job that would begin at once is on each instance type."""
    leasable: Mapping[str, int]
    """Of each quota, what is not kept for promises: machines that leases can be of."""
    unused: tuple[str, ...]
    """Quotas of machines that no job may use."""
    slower: Mapping[str, float]
    """By job that would begin at once, how many times more slowly than prices pass this computer computes.

    With all machines that the job may have; nothing of a job whose work on this computer nobody knows.
    """


def plan_queue(settings: QueueSettings) -> QueuePlan:
    """The plan of a queue that starts now, in the trace's time, with what was asked of it since its last run.

    Writes and starts nothing. Raises UsageError where what was asked for does not go together, and
    DeadlineInfeasible where the policy cannot keep to its budget.
    """
    folder = QueueFolder(settings.spec.name, root_of(settings.options.world))
    asked, _ = asked_for(settings, folder)
    start = start_of(settings)
    settled = starting_at(settings, start)
    pools = Pools(settings.spec.quotas)
    members = {member.name: member for member in in_order(asked)}
    resolved, slower = {}, {}
    for name, member in members.items():
        if not member.after:
            with about(name):
                resolved[name] = resolve(member.spec, settled.options.prices, "plan", 0)
                terms = resolved[name].terms
                size = check_job(settled.of(member), terms)
                work = find_clock_work(member.spec, terms, size)
                terms = replace(terms, core_seconds_per_clock=work.core_seconds)
                resolved[name] = replace(resolved[name], terms=terms)
                most = terms.most_machines * max(t.nu for t in (*terms.spot, terms.reliable))
                if (times := work.slower_here(most, settled.options.speed)) is not None:
                    slower[name] = times
    states = {name: opening_state(of) for name, of in resolved.items()}
    ready = [members[name] for name in states]
    weighed = admission(ready, states, pools, {}, settings.spec.budget)
    wanting = []
    for name, state in states.items():
        one = weighed.judged[name]
        seat = job_views.wanting(
            structs.replace(state, terms=one.terms), members[name], pools, one.reserved or {}, {}, None
        )
        if seat is not None:
            wanting.append(seat)
    hand = _first(wanting, settings, start, weighed, pools)
    prices = next((of.terms.prices for of in resolved.values()), "")
    kept = sum((Counter(one.reserved or {}) for one in weighed.judged.values()), Counter[str]())
    usable = {pools.of(t.market) for s in states.values() for t in (*s.terms.spot, s.terms.reliable)}
    waiting = tuple(name for name in members if name not in resolved)
    return QueuePlan(
        start,
        prices,
        weighed,
        waiting,
        hand,
        members,
        rates={name: rates(state) for name, state in states.items()},
        leasable={pool: count - kept[pool] for pool, count in pools.limits.items()},
        unused=() if waiting else tuple(pool for pool in pools.limits if pool not in usable),
        slower=slower,
    )


def _first(
    wanting: list[Wanting], settings: QueueSettings, start: Instant, weighed: Admission, pools: Pools
) -> Hand:
    """The first round. Raises DeadlineInfeasible where the policy is to keep to a budget that does not do."""
    spec = settings.spec
    purse = left = inf
    if spec.budget is not None:
        left = float(spec.budget)
        purse = left - sum(amount or 0 for amount in weighed.allowances.values())
    chosen = chosen_policy(spec.policy, left)
    try:
        return deal(wanting, Table(start, spec.round_s, pools, chosen, spec.entities, purse))
    except Infeasible as error:
        raise DeadlineInfeasible(
            f"{spec.name}: nothing was started. {spec.policy.name}: {error}. Allow as much, or name another "
            "policy"
        ) from error
