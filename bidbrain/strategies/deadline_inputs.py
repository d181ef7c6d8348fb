"""Translates a live footprint for deadline policies: ``Observation`` and ``Pledge`` to ``DeadlineState``.

    N    target      machines that should work together: the job's maximum, of one type
    d    overhead    seconds from a request to work: start, sigma, and lambda for what was running

The policies of ``bidbrain.deadline`` plan for one footprint, all spot or all on-demand, in seconds of its
work. Buys nothing; ``deadline_bound.py`` acts on the choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from bidbrain.bidding.decision_times import DECISION_PERIOD_S
from bidbrain.deadline.availability_belief import PRIOR, Belief
from bidbrain.deadline.feasibility import Promise, least_budget, least_deadline_s
from bidbrain.deadline.model import DeadlineJob, DeadlineState, MachineKind
from bidbrain.model import Holding, Observation
from bidbrain.relocation.egress import NO_MOVE, JobSite, MoveCost
from bidbrain.strategies.target_footprints import Target, fair_offers, list_targets
from pricing_data.model.units import HOUR_S, Instant, Seconds, Usd, UsdPerHour

_PRICE_STEP: Final = 0.1
"""Spot prices are rounded up on a scale of 10 % steps, so that one plan serves many decisions."""
_WORK_STEP: Final = 0.02
_OVERHEAD_STEP_S: Final = 10.0
UNLIMITED: Final = Usd(math.inf)
_DUST_S: Final = 1e-6
"""Seconds that rounding may lose."""


@dataclass(frozen=True, slots=True)
class Pledge:
    """States what a job was promised, and what it has seen of the market since it began."""

    start: Instant
    deadline: Instant
    work: float
    """Core-seconds of the whole job."""
    start_s: Seconds
    """Seconds from a request to a running machine."""
    budget_left: Usd = UNLIMITED
    """Dollars not yet owed."""
    belief: Belief | None = None
    """Updated by ``update_belief``; None before the first look."""
    unsaved_work: float = 0.0
    """Core-seconds that the loss of a machine may cost on top of lambda.

    These are steps that count as done but are in no checkpoint, and the step under way.
    """
    measured: bool = False
    """Whether speeds and overheads are measured; they then change from decision to decision."""


def spot_available(observation: Observation) -> bool | None:
    """Returns whether spot is up: spot machines live, or can be bought below their list price.

    None where only a request can tell.
    """
    if spot_held(observation):
        return True
    # Where prices clear by bid, a price below the list price means that machines are available. Elsewhere
    # prices say nothing of capacity; only a refusal, which closes the offer, is certain.
    if observation.rules.cleared_by_bid or not fair_offers(observation):
        return bool(fair_offers(observation))
    return None


def update_belief(belief: Belief | None, up: bool, at_s: Seconds) -> Belief:
    """Returns the belief after spot was seen ``up`` or not, ``at_s`` seconds into the job."""
    return Belief.first_look(PRIOR, up, at_s) if belief is None else belief.observe(up, at_s)


def spot_held(observation: Observation) -> tuple[Holding, ...]:
    """Returns the live spot holdings beside the reliable machines."""
    return tuple(h for h in observation.footprint if h.counts_for and not h.on_demand)


def on_demand_held(observation: Observation) -> tuple[Holding, ...]:
    """Returns the live on-demand holdings beside the reliable machines."""
    return tuple(h for h in observation.footprint if h.counts_for and h.on_demand)


def choose_target(observation: Observation, pledge: Pledge) -> Target:
    """Chooses the on-demand machines that the safety net relies on.

    The cheapest type that keeps the deadline from now on; the fastest where none is in time any more. A type
    that is rented already takes precedence. Raises ValueError without offers.
    """
    known = list_targets(observation)
    rented = {holding.market for holding in on_demand_held(observation)}
    # Rented machines are paid for and at work; another type would pay another start for nothing.
    known = tuple(goal for goal in known if goal.market in rented) or known
    if len(known) == 1:
        return known[0]
    alone = [_on_demand_only(observation, pledge, goal, observation.work_left) for goal in known]
    left_s = float(pledge.deadline - observation.now)
    # A type that is just in time must not be lost to rounding.
    in_time = [found for found in alone if found.needs_s <= left_s + _DUST_S]
    if in_time:
        return min(in_time, key=lambda found: (found.cost, found.goal.market)).goal
    return min(alone, key=lambda found: (found.needs_s, found.goal.market)).goal


@dataclass(frozen=True, slots=True)
class _OnDemandOnly:
    """Holds the time and cost of some work on on-demand machines of ``goal`` alone, rented now."""

    goal: Target
    needs_s: Seconds
    cost: Usd
    """Includes the reliable machines."""


def _on_demand_only(observation: Observation, pledge: Pledge, goal: Target, work: float) -> _OnDemandOnly:
    left = replace(pledged_job(observation, pledge, goal), work_s=Seconds(max(work, 1.0) / goal.speed))
    # A job that has done nothing has no checkpoint to carry.
    if work == pledge.work:
        left = replace(left, overhead_s=Seconds(left.overhead_s - _move_cost(observation, goal).delay_s))
    needs_s = least_deadline_s(left)
    # Where hours are billed, a tick of two minutes still costs an hour at the end.
    billed = replace(left, tick_s=Seconds(max(left.tick_s, observation.rules.quantum_s)))
    return _OnDemandOnly(goal, needs_s, Usd(least_budget(billed) + _reliable_cost(observation, needs_s)))


def check_promise(observation: Observation, pledge: Pledge) -> Promise:
    """Checks the pledge against on-demand machines alone, started now, and computes what could be promised.

    The least deadline is that of the fastest type, the least budget that of the cheapest type in time.
    """
    alone = [_on_demand_only(observation, pledge, goal, pledge.work) for goal in list_targets(observation)]
    fastest = min(alone, key=lambda found: (found.needs_s, found.cost))
    in_time = [found for found in alone if found.needs_s <= pledge.deadline - pledge.start]
    cheapest = min(in_time, key=lambda found: found.cost, default=fastest)
    job = pledged_job(observation, pledge, cheapest.goal)
    return Promise(job, pledge.budget_left, fastest.needs_s, cheapest.cost)


def pledged_job(observation: Observation, pledge: Pledge, goal: Target) -> DeadlineJob:
    """Returns the whole job, in seconds of ``goal``'s work."""
    scaling, limits = observation.scaling, observation.limits
    start_s = pledge.start_s + _move_cost(observation, goal).delay_s
    losses = math.ceil(limits.max_instances / limits.max_per_allocation)
    return DeadlineJob(
        work_s=Seconds(pledge.work / goal.speed),
        deadline_s=Seconds(float(pledge.deadline - pledge.start)),
        # The worst start: machines boot, join, and what ran before was lost with a pause.
        overhead_s=Seconds(start_s + scaling.sigma_s + scaling.lambda_s),
        tick_s=Seconds(float(DECISION_PERIOD_S)),
        spot=UsdPerHour(min(_round_up_price(goal.spot), goal.on_demand)),
        on_demand=goal.on_demand,
        # Two decisions may each come a period late: one to notice a loss, one to replace the machines. Every
        # spot allocation that works beside on-demand machines, or in place of one, may still be lost.
        reserve_s=2.0 * DECISION_PERIOD_S + losses * (scaling.lambda_s + pledge.unsaved_work / goal.speed),
    )


def round_up_job(job: DeadlineJob) -> DeadlineJob:
    """Returns ``job`` with durations rounded up, by 2 % or ten seconds at most, so never less safe.

    Many decisions then share one plan.
    """
    # A value that is on the scale already must not move up by a rounding error.
    steps = math.ceil(math.log(job.work_s) / math.log1p(_WORK_STEP) - 1e-9)
    return replace(
        job,
        work_s=Seconds(round((1 + _WORK_STEP) ** steps, 6)),
        overhead_s=Seconds(math.ceil(job.overhead_s / _OVERHEAD_STEP_S) * _OVERHEAD_STEP_S),
        reserve_s=math.ceil(job.reserve_s / _OVERHEAD_STEP_S) * _OVERHEAD_STEP_S,
    )


def deadline_state(
    observation: Observation, pledge: Pledge, goal: Target, job: DeadlineJob, up: bool
) -> DeadlineState:
    """Returns the job's state now, in seconds of ``goal``'s work.

    The footprint counts as spot while any of it is. ``up``: whether spot machines can run.
    """
    spot, rented = spot_held(observation), on_demand_held(observation)
    running = MachineKind.SPOT if spot else MachineKind.ON_DEMAND if rented else MachineKind.NOTHING
    time_left_s = max(float(pledge.deadline - observation.now), 0.0)
    reliable = _reliable_cost(observation, time_left_s)
    # The last billing quantum may be paid for and not used.
    rounding = goal.on_demand * observation.rules.quantum_s / HOUR_S
    return DeadlineState(
        at_s=Seconds(float(observation.now - pledge.start)),
        work_left_s=Seconds(observation.work_left / goal.speed),
        running=running,
        overhead_left_s=Seconds(
            max((_start_left_s(observation, job, h) for h in spot or rented), default=0.0)
        ),
        spot_up=up,
        # The checkpoint may leave its region twice: to spot machines elsewhere, and back to on-demand ones.
        budget_left=pledge.budget_left - reliable - rounding - 2 * _move_cost(observation, goal).egress,
    )


def _move_cost(observation: Observation, goal: Target) -> MoveCost:
    """Returns the cost of carrying the checkpoint to ``goal`` from the worst place it may be in by then."""
    if observation.carried is None:
        return NO_MOVE
    there = JobSite(goal.market, goal.on_demand, goal.speed)
    return observation.carried.worst_cost(there, (offer.market for offer in observation.offers))


def _start_left_s(observation: Observation, job: DeadlineJob, holding: Holding) -> float:
    """Returns seconds until a machine works."""
    # Nobody knows when a pending machine will run, so it is assumed to need the whole overhead.
    if holding.started is None:
        return float(job.overhead_s)
    return max(observation.scaling.sigma_s - holding.age_s(observation.now), 0.0)


def _reliable_cost(observation: Observation, seconds: float) -> float:
    """Returns dollars for the reliable machines from now on, with started billing quanta in full."""
    rules, reliable = observation.rules, observation.reliable
    billed_s = math.ceil(seconds / rules.quantum_s) * rules.quantum_s
    return reliable.count * reliable.price * billed_s / HOUR_S


def _round_up_price(price: float) -> float:
    if price <= 0:
        return 0.0
    # A price that is on the scale already must not move up by a rounding error.
    steps = math.ceil(math.log(price) / math.log1p(_PRICE_STEP) - 1e-9)
    return float(round((1 + _PRICE_STEP) ** steps, 9))
