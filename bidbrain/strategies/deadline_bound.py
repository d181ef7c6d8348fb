"""Keeps a spot strategy within a deadline and a budget: applies a deadline policy to a live footprint.

    N        target   machines that should work together: the job's maximum
    choice   spot, on-demand or nothing, by ``bidbrain.deadline``: at least cost within the safety net, or by
             another rule within the same net

The policy plans for one footprint, all spot or all on-demand; this module turns its choice into machines. On
spot the wrapped strategy decides as always. On demand, machines are rented until there are N, and live spot
machines work on beside them. Spot machines of a smaller type are too slow for the net, and are replaced.
On-demand machines are given up once spot is worth it again: at the end of their paid hour or, where seconds
are billed, once spot machines are granted. Until then the job exceeds its maximum of machines for a moment.

A job without a deadline does not need this module: the strategy alone is cheapest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, TypeAlias

from bidbrain.bidding.footprint import bid_at, estimate_footprint, held_columns
from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.deadline.availability_belief import Belief
from bidbrain.deadline.least_cost import LeastCost
from bidbrain.deadline.model import Choice, DeadlineJob, DeadlineState, MachineKind
from bidbrain.model import Action, Candidate, Decision, Holding, Observation
from bidbrain.strategies.deadline_inputs import (
    Pledge,
    choose_target,
    deadline_state,
    on_demand_held,
    pledged_job,
    round_up_job,
    spot_available,
    spot_held,
    update_belief,
)
from bidbrain.strategies.target_footprints import Target, fair_offers
from bidbrain.strategies.without_reliable_tier import LiveStrategy
from pricing_data.model.units import HOUR_S, Seconds


class DeadlinePolicy(Protocol):
    """Chooses what to run next, for the one job that it was made for."""

    def choose_machine(self, now: DeadlineState, belief: Belief) -> Choice: ...


MakePolicy: TypeAlias = Callable[[DeadlineJob], DeadlinePolicy]


@lru_cache(maxsize=16)
def cached_least_cost(job: DeadlineJob) -> LeastCost:
    """Returns ``LeastCost.for_job``, cached."""
    # Its tables take about a second, and consecutive decisions ask for the same rounded job.
    return LeastCost.for_job(job)


@dataclass(frozen=True, slots=True)
class DeadlineBound:
    """Keeps ``strategy`` within the pledge of each decision; ``policy`` chooses spot or on-demand."""

    strategy: LiveStrategy
    policy: MakePolicy = cached_least_cost

    def decide(self, observation: Observation, pledge: Pledge) -> Decision:
        """Decides what to do now; on-demand machines come and go one allocation per decision."""
        goal = choose_target(observation, pledge)
        choice = self._choose_machine(observation, pledge, goal)
        rented = on_demand_held(observation)
        if choice.machine is MachineKind.ON_DEMAND:
            return _fill_on_demand(observation, choice, goal)
        if rented and observation.rules.quantum_s >= HOUR_S:
            return _plain_decision(observation, Action.HOLD, choice)  # its hour is paid for
        # With spot chosen, rented machines go only once spot machines are granted.
        if rented and (choice.machine is MachineKind.NOTHING or spot_held(observation)):
            return _decision_about(observation, Action.TERMINATE, choice, rented[0])
        if choice.machine is MachineKind.NOTHING:
            return _plain_decision(observation, Action.HOLD, choice)
        # The strategy decides as if the rented machines were gone: they will be, once spot is granted.
        on_spot = replace(observation, footprint=spot_held(observation))
        decision = _grow_if_slow(on_spot, pledge, self.strategy.decide(on_spot))
        if rented and decision.action is Action.ACQUIRE and decision.bid is None:
            return _plain_decision(observation, Action.HOLD, choice)  # it would rent what is rented already
        return replace(decision, why=f"{decision.why} {_explain_choice(choice)}")

    def renew_or_terminate(self, observation: Observation, pledge: Pledge, holding_id: str) -> Decision:
        """Decides whether to keep a holding whose hour ends. Raises KeyError for an unknown one."""
        holding, goal = observation.find_holding(holding_id), choose_target(observation, pledge)
        choice = self._choose_machine(observation, pledge, goal)
        wanted = choice.machine is MachineKind.ON_DEMAND
        if holding.on_demand:
            return _decision_about(observation, Action.RENEW if wanted else Action.TERMINATE, choice, holding)
        offer = observation.find_offer(holding.market)
        # The net assumes machines of the target's size; a smaller one takes up a place and is too slow.
        if wanted and holding.cores < goal.cores:
            return _decision_about(observation, Action.TERMINATE, choice, holding)
        # A live spot machine stays if it costs no more than the on-demand machine that would replace it.
        if wanted and offer.price <= offer.on_demand:
            return _decision_about(observation, Action.RENEW, choice, holding)
        # The strategy may shrink a footprint that is cheap but just fast enough; the deadline overrules it.
        decision = self.strategy.renew_or_terminate(observation, holding_id)
        others = tuple(h for h in observation.footprint if h is not holding)
        without = _footprint_speed(replace(observation, footprint=others))
        dear = offer.price >= offer.on_demand
        if dear or decision.action is Action.RENEW or without >= _speed_needed(observation, pledge):
            return decision
        why = "Without it the footprint is too slow for the deadline."
        return replace(decision, action=Action.RENEW, why=why)

    def _choose_machine(self, observation: Observation, pledge: Pledge, goal: Target) -> Choice:
        """Chooses spot, on-demand or nothing until the next decision."""
        # None (only a request can tell) counts as available: the request that follows finds out.
        up = spot_available(observation) is not False
        at_s = Seconds(float(observation.now - pledge.start))
        job = pledged_job(observation, pledge, goal)
        # Measured speeds change a little at every decision; unrounded, each change takes a plan of a second.
        if pledge.measured:
            job = round_up_job(job)
        now = deadline_state(observation, pledge, goal, job, up)
        return self.policy(job).choose_machine(now, update_belief(pledge.belief, up, at_s))


def _fill_on_demand(observation: Observation, choice: Choice, goal: Target) -> Decision:
    """Rents machines until there are as many, and as fast, as the net assumes."""
    # Replacements come first: slower machines go one allocation per decision, once nothing is missing.
    slower = [holding for holding in spot_held(observation) if holding.cores < goal.cores]
    missing = goal.count - observation.live_count + sum(holding.counts_for for holding in slower)
    if missing > 0:
        return replace(
            _plain_decision(observation, Action.ACQUIRE, choice), market=goal.market, count=missing
        )
    if slower:
        return _decision_about(observation, Action.TERMINATE, choice, slower[0])
    return _plain_decision(observation, Action.HOLD, choice)


def _grow_if_slow(observation: Observation, pledge: Pledge, decision: Decision) -> Decision:
    """Returns ``decision``, or growth where it would hold a footprint too slow for the deadline."""
    # The footprint cheapest per work is often small, and on-demand machines would make up for it later.
    needed = _speed_needed(observation, pledge)
    if decision.action is not Action.HOLD or _footprint_speed(observation) >= needed:
        return decision
    fair = {offer.market for offer in fair_offers(observation)}
    # Only alternatives at a fair price: growth must not cost more than on-demand machines would.
    more = [w for w in decision.weighed if w.market in fair and math.isfinite(w.cost_per_work)]
    if not more:
        return decision
    # The cheapest of those that are fast enough; where none is, the nearest to it.
    best = min(more, key=lambda w: (max(needed - _footprint_speed(observation, w), 0.0), w.cost_per_work))
    assert best.market is not None
    assert best.bid_delta is not None
    return replace(
        decision,
        action=Action.ACQUIRE,
        why="The footprint is too slow for the deadline; this is the cheapest way to grow.",
        weighed=tuple(replace(w, chosen=w is best) for w in decision.weighed),
        market=best.market,
        count=best.count,
        bid=bid_at(observation.find_offer(best.market).price, best.bid_delta),
    )


def _speed_needed(observation: Observation, pledge: Pledge) -> float:
    """Returns the core-seconds per second to finish in time, after one more start and the reserve."""
    job = pledged_job(observation, pledge, choose_target(observation, pledge))
    left_s = float(pledge.deadline - observation.now) - job.overhead_s - job.reserve_s
    return observation.work_left / left_s if left_s > 0 else math.inf


def _footprint_speed(observation: Observation, more: Candidate | None = None) -> float:
    """Returns core-seconds per second of the footprint, grown by ``more``, with all machines at work."""
    members = [(h.counts_for, h.cores) for h in observation.footprint]
    if more is not None and more.market is not None:
        members.append((more.count, observation.find_offer(more.market).cores))
    return observation.scaling.speed(members, observation.reliable)


def _decision_about(observation: Observation, action: Action, choice: Choice, holding: Holding) -> Decision:
    plain = _plain_decision(observation, action, choice)
    bid = None if holding.on_demand else holding.bid
    return replace(plain, holding=holding.id, market=holding.market, count=holding.counts_for, bid=bid)


def _plain_decision(observation: Observation, action: Action, choice: Choice) -> Decision:
    single = ObservationBatch.from_observation(observation)
    footprint = held_columns(single.setting, single.at)
    now = estimate_footprint(single.setting, footprint, single.at.work_left, changes=False)
    why = _explain_choice(choice)
    return Decision(
        observation.now, action, float(now.cost_per_work[0]), why, (), considered=len(MachineKind)
    )


def _explain_choice(choice: Choice) -> str:
    return f"Deadline: {choice.why}."
