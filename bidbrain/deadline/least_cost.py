"""Least expected cost within the safety net: the policy that runs live, and in the benchmark.

``LeastCost`` is made once per job and set of prices; it holds tables, no memory. What was learned about
the market is the caller's ``Belief``, how the job stands is its ``DeadlineState``: the same two values give
the same choice for ever. It is written for n jobs at once; the live ``choose_machine`` is its one-row case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.deadline.availability_belief import PRIOR, Belief, Beliefs, SpellPrior
from bidbrain.deadline.model import Choice, Codes, DeadlineState, Job, Machine, Situations
from bidbrain.deadline.safety_net import allowed, margins_after
from bidbrain.deadline.value_iteration import Plan
from pricing_data.model.units import HOUR_S, Seconds, Usd


@dataclass(frozen=True, slots=True, eq=False)
class LeastCost:
    """The policy for one job; ``of`` takes about a second, a choice well under a millisecond."""

    job: Job
    plan: Plan

    @classmethod
    def of(cls, job: Job, prior: SpellPrior = PRIOR) -> Self:
        """Make again, from what is left of the job, when a price has changed by more than a few percent."""
        return cls(job, Plan.of(job, prior))

    def costs(self, now: Situations, beliefs: Beliefs) -> Floats:
        """Expected dollars from now on for each ``Machine``, shape (3, n); infinite where the net forbids it.

        On-demand is finite always. ``beliefs`` have seen this tick's ``now.spot_up``.
        """
        tick_s = self.plan.tick_s
        margins = margins_after(self.job, now, tick_s)
        # The plan charges a start's overhead to spot's margin at once; the net does so tick by tick.
        margins[Machine.SPOT] -= np.maximum(now.overhead_s(self.job, Machine.SPOT) - tick_s, 0.0)
        spell = self.plan.spell_states(now.spot_up, beliefs.age_s)
        weights = beliefs.weights
        charges = self.job.charges(tick_s)
        costs = np.empty((len(Machine), len(now)))
        for machine in Machine:
            ahead = self.plan.to_go(now.left_s - tick_s, machine, spell, margins[machine])
            costs[machine] = charges[machine] + np.where(
                self._finishes(now, machine), 0.0, (weights * ahead).sum(axis=1)
            )
        return np.where(allowed(self.job, now), costs, np.inf)

    def machines(self, now: Situations, beliefs: Beliefs) -> Codes:
        """The cheapest allowed ``Machine`` of each row, shape (n,); the less there is to run, the better."""
        cheapest: Codes = self.costs(now, beliefs).argmin(axis=0)
        return cheapest

    def choose_machine(self, now: DeadlineState, belief: Belief) -> Choice:
        """What the live job runs until its next decision, a tick from now at the latest."""
        rows = now.rows(self.job)
        costs = self.costs(rows, belief.rows())
        machine = Machine(int(costs.argmin(axis=0)[0]))
        margin_s = float(margins_after(self.job, rows, self.job.tick_s)[machine, 0])
        cost = float(costs[machine, 0])
        why = _sentence(machine, costs[:, 0], now.spot_up, margin_s)
        return Choice(machine, Usd(cost), Seconds(margin_s), why)

    def _finishes(self, now: Situations, machine: Machine) -> Flags:
        """Whether a tick of the plan is enough for the rest of the work."""
        if machine is Machine.NOTHING:
            return np.zeros(len(now), dtype=np.bool_)
        return now.work_left_s + now.overhead_s(self.job, machine) <= self.plan.tick_s


_DOES: Final = {
    Machine.NOTHING: "run nothing and wait for spot",
    Machine.SPOT: "run on spot",
    Machine.ON_DEMAND: "run on-demand",
}


def _sentence(machine: Machine, costs: Floats, spot_up: bool, margin_s: float) -> str:
    """Why, for a person: what it is expected to cost, and what the next best would."""
    others = [other for other in Machine if other is not machine and np.isfinite(costs[other])]
    if not others:
        return f"{_DOES[machine]}: nothing else is sure to keep deadline and budget"
    second = min(others, key=lambda other: costs[other])
    market = "spot is up" if spot_up else "spot is away"
    return (
        f"{_DOES[machine]}: {market}, expected {costs[machine]:.2f} $ to the end,"
        f" {costs[second] - costs[machine]:.2f} $ less than to {_DOES[second]};"
        f" {max(margin_s, 0.0) / HOUR_S:.1f} h stay in hand"
    )
