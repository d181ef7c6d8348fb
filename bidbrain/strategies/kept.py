"""A strategy for spot machines, kept within a deadline and a budget: the deadline policy on a live footprint.

    N        target   machines that are meant to work together: the job's most
    d        overhead from a request to work: start, sigma, and lambda for what was running
    choice   spot, on-demand or nothing, by ``bidbrain.deadline``: least cost within the safety net

The policy thinks of one footprint, all spot or all on-demand. Here that becomes machines: on spot the
wrapped strategy decides as it always does; on demand, what is missing to N is had on demand, and spot
machines that still live work on beside it. What is had on demand is given up once spot is worth it
again: at the end of its paid hour or, where seconds are billed, as soon as spot machines are granted.
For that moment there are more machines than the job's most.

Without a deadline nothing of this applies: a strategy is then cheapest alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Protocol

from bidbrain.deadline.feasibility import Promise, least_budget, least_deadline_s
from bidbrain.deadline.model import Choice, Job, Machine, Situation
from bidbrain.deadline.policy import LeastCost
from bidbrain.deadline.spells import PRIOR, Belief
from bidbrain.footprint import bid_at, held, reckon
from bidbrain.model import Action, Decision, Holding, Observation, Offer, Weighed
from bidbrain.schedule import DECISION_PERIOD_S
from bidbrain.single import Single
from pricing_data.market import Market
from pricing_data.units import HOUR_S, Instant, Seconds, Usd, UsdPerHour

_PRICE_STEP: Final = 0.1
"""Spot prices are rounded up to the next of a scale of 10 % steps, so that one plan serves many decisions."""


UNLIMITED: Final = Usd(math.inf)


class Deciding(Protocol):
    """The live half of a strategy."""

    def decide(self, observation: Observation) -> Decision: ...

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision: ...


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
    below = [o.price / o.cores for o in _fair(observation)]
    spot = min([count * offer.cores * price for price in below], default=on_demand)
    speed = cores * scaling.efficiency(count + beside)
    return Target(offer.market, count, speed, on_demand, UsdPerHour(min(spot, on_demand)))


def look(observation: Observation) -> bool | None:
    """Whether spot machines live, or could be had for less than their list price; None: only asking tells.

    Where markets clear by bid their prices tell. Elsewhere a market that lately refused tells, and no other.
    """
    if _spot(observation):
        return True
    if observation.rules.cleared_by_bid or not _fair(observation):
        return bool(_fair(observation))
    return None


def seen(belief: Belief | None, up: bool, at_s: Seconds) -> Belief:
    """What is held of the market after a look at ``at_s`` seconds into the job."""
    return Belief.begin(PRIOR, up, at_s) if belief is None else belief.seen(up, at_s)


def promise(observation: Observation, pledge: Pledge) -> Promise:
    """Whether the pledge can be kept by machines on demand alone, started now; and what could."""
    goal = target(observation)
    job = _job(observation, pledge, goal)
    deadline_s = least_deadline_s(job)
    billed = replace(job, tick_s=Seconds(max(job.tick_s, observation.rules.quantum_s)))
    reliable = _reliable_cost(observation, deadline_s)
    return Promise(job, pledge.budget_left, deadline_s, Usd(least_budget(billed) + reliable))


@dataclass(frozen=True, slots=True)
class Kept:
    """``strategy`` within the pledge of each decision."""

    strategy: Deciding

    def decide(self, observation: Observation, pledge: Pledge) -> Decision:
        """What to do now. Machines on demand come and go one allocation a decision."""
        goal = target(observation)
        choice = choose(observation, pledge, goal)
        rented = _rented(observation)
        if choice.machine is Machine.ON_DEMAND:
            missing = goal.count - observation.live
            if missing < 1:
                return _plain(observation, Action.HOLD, choice)
            wanted = _plain(observation, Action.ACQUIRE, choice)
            return replace(wanted, market=goal.market, count=missing)
        if rented and observation.rules.quantum_s >= HOUR_S:
            return _plain(observation, Action.HOLD, choice)  # its hour is paid for
        if rented and (choice.machine is Machine.NOTHING or _spot(observation)):
            return _about(observation, Action.TERMINATE, choice, rented[0])
        if choice.machine is Machine.NOTHING:
            return _plain(observation, Action.HOLD, choice)
        # What runs on demand stays until spot machines are granted; until then it is as if it were gone.
        on_spot = replace(observation, footprint=_spot(observation))
        decision = _grown(on_spot, pledge, self.strategy.decide(on_spot))
        return replace(decision, why=f"{decision.why} {_sentence(choice)}")

    def renew_or_terminate(self, observation: Observation, pledge: Pledge, holding_id: str) -> Decision:
        """Before a holding's hour ends. Raises KeyError where there is no such holding."""
        holding = observation.holding(holding_id)
        choice = choose(observation, pledge, target(observation))
        wanted = choice.machine is Machine.ON_DEMAND
        if holding.on_demand:
            return _about(observation, Action.RENEW if wanted else Action.TERMINATE, choice, holding)
        offer = observation.offer(holding.market)
        if wanted and offer.price <= offer.on_demand:
            return _about(observation, Action.RENEW, choice, holding)
        decision = self.strategy.renew_or_terminate(observation, holding_id)
        others = tuple(h for h in observation.footprint if h is not holding)
        without = _speed(replace(observation, footprint=others))
        dear = offer.price >= offer.on_demand
        if dear or decision.action is Action.RENEW or without >= _speed_needed(observation, pledge):
            return decision
        why = "Without it the footprint is too slow for the deadline."
        return replace(decision, action=Action.RENEW, why=why)


def _grown(observation: Observation, pledge: Pledge, decision: Decision) -> Decision:
    """``decision`` or, where it holds a footprint too slow for the deadline, the cheapest way to grow.

    Cheapest per work is often small; machines on demand would have to make up for it later.
    """
    needed = _speed_needed(observation, pledge)
    if decision.action is not Action.HOLD or _speed(observation) >= needed:
        return decision
    fair = {offer.market for offer in _fair(observation)}
    more = [w for w in decision.weighed if w.market in fair and math.isfinite(w.cost_per_work)]
    if not more:
        return decision
    best = min(more, key=lambda w: (max(needed - _speed(observation, w), 0.0), w.cost_per_work))
    assert best.market is not None
    assert best.bid_delta is not None
    return replace(
        decision,
        action=Action.ACQUIRE,
        why="As it is, the footprint is too slow for the deadline; this is the cheapest way to grow.",
        weighed=tuple(replace(w, chosen=w is best) for w in decision.weighed),
        market=best.market,
        count=best.count,
        bid=bid_at(observation.offer(best.market).price, best.bid_delta),
    )


def _speed_needed(observation: Observation, pledge: Pledge) -> float:
    """Core-seconds per second that do the work in time, with what one more start and the reserve take."""
    job = _job(observation, pledge, target(observation))
    left_s = float(pledge.deadline - observation.now) - job.overhead_s - job.reserve_s
    return observation.work_left / left_s if left_s > 0 else math.inf


def _speed(observation: Observation, more: Weighed | None = None) -> float:
    """Core-seconds per second of the footprint as it stands, and with ``more`` of it, all of it working."""
    members = [(h.counts_for, h.cores) for h in observation.footprint]
    if more is not None and more.market is not None:
        members.append((more.count, observation.offer(more.market).cores))
    reliable, scaling, count = observation.reliable, observation.scaling, sum(n for n, _ in members)
    beside = reliable.count if scaling.stage(count, reliable.count) < 3 else 0
    cores = sum(n * cores for n, cores in members) + beside * reliable.cores
    return cores * scaling.efficiency(count + beside)


def choose(observation: Observation, pledge: Pledge, goal: Target) -> Choice:
    """Spot, on-demand or nothing until the next decision."""
    looked = look(observation)
    up = looked is not False
    at_s = Seconds(float(observation.now - pledge.start))
    job = _job(observation, pledge, goal)
    return _policy(job).choose(_situation(observation, pledge, goal, job, up), seen(pledge.belief, up, at_s))


@lru_cache(maxsize=16)
def _policy(job: Job) -> LeastCost:
    return LeastCost.of(job)


def _job(observation: Observation, pledge: Pledge, goal: Target) -> Job:
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


def _situation(observation: Observation, pledge: Pledge, goal: Target, job: Job, up: bool) -> Situation:
    spot, rented = _spot(observation), _rented(observation)
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


def _spot(observation: Observation) -> tuple[Holding, ...]:
    return tuple(h for h in observation.footprint if h.counts_for and not h.on_demand)


def _rented(observation: Observation) -> tuple[Holding, ...]:
    return tuple(h for h in observation.footprint if h.counts_for and h.on_demand)


def _fair(observation: Observation) -> list[Offer]:
    """Where spot machines can be had for less than on demand."""
    return [offer for offer in observation.offers if offer.open and offer.price < offer.on_demand]


def _rounded(price: float) -> float:
    steps = math.ceil(math.log(price) / math.log1p(_PRICE_STEP) - 1e-9) if price > 0 else None
    return 0.0 if steps is None else float(round((1 + _PRICE_STEP) ** steps, 9))


def _about(observation: Observation, action: Action, choice: Choice, holding: Holding) -> Decision:
    plain = _plain(observation, action, choice)
    bid = None if holding.on_demand else holding.bid
    return replace(plain, holding=holding.id, market=holding.market, count=holding.counts_for, bid=bid)


def _plain(observation: Observation, action: Action, choice: Choice) -> Decision:
    single = Single.of(observation)
    footprint = held(single.setting, single.at)
    now = reckon(single.setting, footprint, single.at.work_left, changes=False)
    why = _sentence(choice)
    return Decision(observation.now, action, float(now.cost_per_work[0]), why, (), considered=len(Machine))


def _sentence(choice: Choice) -> str:
    return f"Deadline: {choice.why}."
