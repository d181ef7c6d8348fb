"""What a deadline policy is told of a live footprint: from ``Observation`` and ``Pledge`` to ``Situation``.

    N    target      machines that are meant to work together: the job's most
    d    overhead    from a request to work: start, sigma, and lambda for what was running

The policies of ``bidbrain.deadline`` think of one footprint, all spot or all on-demand, in seconds of its
work. Who buys the machines, and what follows from a choice, is not known here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from bidbrain.deadline.feasibility import Promise, least_budget, least_deadline_s
from bidbrain.deadline.model import Job, Machine, Situation
from bidbrain.deadline.spells import PRIOR, Belief
from bidbrain.model import Holding, Observation, Offer
from bidbrain.schedule import DECISION_PERIOD_S
from pricing_data.market import Market
from pricing_data.units import HOUR_S, Instant, Seconds, Usd, UsdPerHour

_PRICE_STEP: Final = 0.1
"""Spot prices are rounded up to the next of a scale of 10 % steps, so that one plan serves many decisions."""
UNLIMITED: Final = Usd(math.inf)


@dataclass(frozen=True, slots=True)
class Pledge:
    """What was promised for a job, and what it has seen of the market since it began."""

    start: Instant
    deadline: Instant
    work: float
    """Core-seconds, the whole job's."""
    start_s: Seconds
    """From a request to a running machine."""
    budget_left: Usd = UNLIMITED
    """Dollars not yet owed."""
    belief: Belief | None = None
    """Folded by ``seen``; None before the first look."""


@dataclass(frozen=True, slots=True)
class Target:
    """The footprint that the deadline is reckoned with."""

    market: Market
    """Where its machines are had on demand: the lowest list price per core."""
    count: int
    cores: int
    """Of one of them."""
    speed: float
    """Core-seconds per second, reliable machines included where they work."""
    on_demand: UsdPerHour
    """Of all its machines together."""
    spot: UsdPerHour
    """The same cores in the cheapest spot market; the on-demand price where there is none below it."""


def target(observation: Observation) -> Target:
    """The most machines the job may have, of the type cheapest on demand; ValueError without offers."""
    if not observation.offers:
        raise ValueError("a deadline needs a market whose on-demand price is known")
    offer = min(observation.offers, key=lambda o: (o.on_demand / o.cores, o.market))
    count, reliable, scaling = observation.limits.max_instances, observation.reliable, observation.scaling
    beside = reliable.count if scaling.stage(count, reliable.count) < 3 else 0
    cores = count * offer.cores + beside * reliable.cores
    on_demand = UsdPerHour(count * offer.on_demand)
    below = [o.price / o.cores for o in fair_offers(observation)]
    spot = min([count * offer.cores * price for price in below], default=on_demand)
    speed = cores * scaling.efficiency(count + beside)
    return Target(offer.market, count, offer.cores, speed, on_demand, UsdPerHour(min(spot, on_demand)))


def look(observation: Observation) -> bool | None:
    """Whether spot machines live, or could be had for less than their list price; None: only asking tells.

    Where markets clear by bid their prices tell. Elsewhere a market that lately refused tells, and no other.
    """
    if spot_held(observation):
        return True
    if observation.rules.cleared_by_bid or not fair_offers(observation):
        return bool(fair_offers(observation))
    return None


def seen(belief: Belief | None, up: bool, at_s: Seconds) -> Belief:
    """What is held of the market after a look at ``at_s`` seconds into the job."""
    return Belief.begin(PRIOR, up, at_s) if belief is None else belief.seen(up, at_s)


def spot_held(observation: Observation) -> tuple[Holding, ...]:
    """Beside the reliable machines."""
    return tuple(h for h in observation.footprint if h.counts_for and not h.on_demand)


def on_demand_held(observation: Observation) -> tuple[Holding, ...]:
    """Beside the reliable machines."""
    return tuple(h for h in observation.footprint if h.counts_for and h.on_demand)


def fair_offers(observation: Observation) -> list[Offer]:
    """Where spot machines can be had for less than on demand."""
    return [offer for offer in observation.offers if offer.open and offer.price < offer.on_demand]


def promise(observation: Observation, pledge: Pledge) -> Promise:
    """Whether the pledge can be kept by machines on demand alone, started now; and what could."""
    goal = target(observation)
    job = pledged_job(observation, pledge, goal)
    deadline_s = least_deadline_s(job)
    billed = replace(job, tick_s=Seconds(max(job.tick_s, observation.rules.quantum_s)))
    reliable = _reliable_cost(observation, deadline_s)
    return Promise(job, pledge.budget_left, deadline_s, Usd(least_budget(billed) + reliable))


def pledged_job(observation: Observation, pledge: Pledge, goal: Target) -> Job:
    """The whole job, in seconds of ``goal``'s work."""
    scaling, limits = observation.scaling, observation.limits
    losses = math.ceil(limits.max_instances / limits.max_per_allocation)
    return Job(
        work_s=Seconds(pledge.work / goal.speed),
        deadline_s=Seconds(float(pledge.deadline - pledge.start)),
        overhead_s=Seconds(pledge.start_s + scaling.sigma_s + scaling.lambda_s),
        tick_s=Seconds(float(DECISION_PERIOD_S)),
        spot=UsdPerHour(min(_rounded(goal.spot), goal.on_demand)),
        on_demand=goal.on_demand,
        # A decision may be one period late twice: to see what is missing, and to fill it up. Each spot
        # allocation that works on beside machines on demand may yet be lost.
        reserve_s=2.0 * DECISION_PERIOD_S + losses * scaling.lambda_s,
    )


def situation(observation: Observation, pledge: Pledge, goal: Target, job: Job, up: bool) -> Situation:
    """How it stands. The footprint counts as spot while any of it is; ``up``: whether spot can be had."""
    spot, rented = spot_held(observation), on_demand_held(observation)
    running = Machine.SPOT if spot else Machine.ON_DEMAND if rented else Machine.NOTHING
    time_left_s = max(float(pledge.deadline - observation.now), 0.0)
    reliable = _reliable_cost(observation, time_left_s)
    rounding = goal.on_demand * observation.rules.quantum_s / HOUR_S
    return Situation(
        at_s=Seconds(float(observation.now - pledge.start)),
        work_left_s=Seconds(observation.work_left / goal.speed),
        running=running,
        overhead_left_s=Seconds(max((_starting(observation, job, h) for h in spot or rented), default=0.0)),
        spot_up=up,
        budget_left=pledge.budget_left - reliable - rounding,
    )


def _starting(observation: Observation, job: Job, holding: Holding) -> float:
    """Seconds until a machine works: all of the overhead while nobody knows when it will run."""
    if holding.started is None:
        return float(job.overhead_s)
    return max(observation.scaling.sigma_s - holding.age_s(observation.now), 0.0)


def _reliable_cost(observation: Observation, seconds: float) -> float:
    """Dollars for the reliable machines from now on, billing steps begun counted whole."""
    rules, reliable = observation.rules, observation.reliable
    billed_s = math.ceil(seconds / rules.quantum_s) * rules.quantum_s
    return reliable.count * reliable.price * billed_s / HOUR_S


def _rounded(price: float) -> float:
    steps = math.ceil(math.log(price) / math.log1p(_PRICE_STEP) - 1e-9) if price > 0 else None
    return 0.0 if steps is None else float(round((1 + _PRICE_STEP) ** steps, 9))
