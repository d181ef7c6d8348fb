"""A strategy for spot machines, kept within a deadline and a budget: the deadline policy on a live footprint.

    N        target   machines that are meant to work together: the job's most
    choice   spot, on-demand or nothing, by ``bidbrain.deadline``: at least cost within the safety net, or by
             another rule within the same net

The policy thinks of one footprint, all spot or all on-demand. Here that becomes machines: on spot the
wrapped strategy decides as it always does; on demand, what is missing to N is had on demand, and spot
machines that still live work on beside it, but those of a smaller type, which would be too slow for the net:
they are replaced. What is had on demand is given up once spot is worth it
again: at the end of its paid hour or, where seconds are billed, as soon as spot machines are granted.
For that moment there are more machines than the job's most.

Without a deadline nothing of this applies: a strategy is then cheapest alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, TypeAlias

from bidbrain.bidding.footprint import bid_at, held, reckon
from bidbrain.bidding.observation_batch import Single
from bidbrain.deadline.availability_belief import Belief
from bidbrain.deadline.least_cost import LeastCost
from bidbrain.deadline.model import Choice, Job, Machine, Situation
from bidbrain.model import Action, Decision, Holding, Observation, Weighed
from bidbrain.strategies.deadline_inputs import (
    Pledge,
    look,
    on_demand_held,
    pledged_job,
    rounded,
    seen,
    situation,
    spot_held,
    target,
)
from bidbrain.strategies.target_footprints import Target, fair_offers
from bidbrain.strategies.without_reliable_tier import Deciding
from pricing_data.model.units import HOUR_S, Seconds


class Choosing(Protocol):
    """A deadline policy, made for one job."""

    def choose(self, now: Situation, belief: Belief) -> Choice: ...


Policy: TypeAlias = Callable[[Job], Choosing]


@lru_cache(maxsize=16)
def least_cost(job: Job) -> LeastCost:
    """``LeastCost.of``, which takes long enough to be remembered."""
    return LeastCost.of(job)


@dataclass(frozen=True, slots=True)
class Kept:
    """``strategy`` within the pledge of each decision; ``policy`` chooses when it may buy."""

    strategy: Deciding
    policy: Policy = least_cost

    def decide(self, observation: Observation, pledge: Pledge) -> Decision:
        """What to do now. Machines on demand come and go one allocation a decision."""
        goal = target(observation, pledge)
        choice = self._choose(observation, pledge, goal)
        rented = on_demand_held(observation)
        if choice.machine is Machine.ON_DEMAND:
            return _filled(observation, choice, goal)
        if rented and observation.rules.quantum_s >= HOUR_S:
            return _plain(observation, Action.HOLD, choice)  # its hour is paid for
        if rented and (choice.machine is Machine.NOTHING or spot_held(observation)):
            return _about(observation, Action.TERMINATE, choice, rented[0])
        if choice.machine is Machine.NOTHING:
            return _plain(observation, Action.HOLD, choice)
        # What runs on demand stays until spot machines are granted; until then it is as if it were gone.
        on_spot = replace(observation, footprint=spot_held(observation))
        decision = _grown(on_spot, pledge, self.strategy.decide(on_spot))
        if rented and decision.action is Action.ACQUIRE and decision.bid is None:
            return _plain(observation, Action.HOLD, choice)  # what it would rent is rented
        return replace(decision, why=f"{decision.why} {_sentence(choice)}")

    def renew_or_terminate(self, observation: Observation, pledge: Pledge, holding_id: str) -> Decision:
        """Before a holding's hour ends. Raises KeyError where there is no such holding."""
        holding, goal = observation.holding(holding_id), target(observation, pledge)
        choice = self._choose(observation, pledge, goal)
        wanted = choice.machine is Machine.ON_DEMAND
        if holding.on_demand:
            return _about(observation, Action.RENEW if wanted else Action.TERMINATE, choice, holding)
        offer = observation.offer(holding.market)
        if wanted and holding.cores < goal.cores:
            return _about(observation, Action.TERMINATE, choice, holding)
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

    def _choose(self, observation: Observation, pledge: Pledge, goal: Target) -> Choice:
        """Spot, on-demand or nothing until the next decision."""
        looked = look(observation)
        up = looked is not False
        at_s = Seconds(float(observation.now - pledge.start))
        job = pledged_job(observation, pledge, goal)
        if pledge.measured:
            job = rounded(job)
        now = situation(observation, pledge, goal, job, up)
        return self.policy(job).choose(now, seen(pledge.belief, up, at_s))


def _filled(observation: Observation, choice: Choice, goal: Target) -> Decision:
    """Up to the most machines, all at least as fast as the net reckons with.

    Slower ones that live stand in nobody's way: their successors are had at once, and then they go, one
    allocation a decision. For that moment there are more machines than the job's most.
    """
    slower = [holding for holding in spot_held(observation) if holding.cores < goal.cores]
    missing = goal.count - observation.live + sum(holding.counts_for for holding in slower)
    if missing > 0:
        return replace(_plain(observation, Action.ACQUIRE, choice), market=goal.market, count=missing)
    if slower:
        return _about(observation, Action.TERMINATE, choice, slower[0])
    return _plain(observation, Action.HOLD, choice)


def _grown(observation: Observation, pledge: Pledge, decision: Decision) -> Decision:
    """``decision`` or, where it holds a footprint too slow for the deadline, the cheapest way to grow.

    Cheapest per work is often small; machines on demand would have to make up for it later.
    """
    needed = _speed_needed(observation, pledge)
    if decision.action is not Action.HOLD or _speed(observation) >= needed:
        return decision
    fair = {offer.market for offer in fair_offers(observation)}
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
    job = pledged_job(observation, pledge, target(observation, pledge))
    left_s = float(pledge.deadline - observation.now) - job.overhead_s - job.reserve_s
    return observation.work_left / left_s if left_s > 0 else math.inf


def _speed(observation: Observation, more: Weighed | None = None) -> float:
    """Core-seconds per second of the footprint as it stands, and with ``more`` of it, all of it working."""
    members = [(h.counts_for, h.cores) for h in observation.footprint]
    if more is not None and more.market is not None:
        members.append((more.count, observation.offer(more.market).cores))
    return observation.scaling.speed(members, observation.reliable)


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
