"""Minimises expected cost within the safety net: the policy that runs live, and in the benchmark.

``LeastCost`` is made once per job and set of prices; it holds tables, no memory. What was learned about the
market is the caller's ``Belief``, how the job stands is its ``DeadlineState``: the same two values always
give the same choice. It is written for n jobs at once; the live ``choose_machine`` is its one-row case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.deadline.availability_belief import PRIOR, Belief, BeliefBatch, SpellPrior
from bidbrain.deadline.model import Choice, Codes, DeadlineJob, DeadlineState, DeadlineStates, MachineKind
from bidbrain.deadline.safety_net import allowed_machines, margins_after
from bidbrain.deadline.value_iteration import CostToGo
from pricing_data.model.units import HOUR_S, Seconds, Usd


@dataclass(frozen=True, slots=True, eq=False)
class LeastCost:
    """Chooses for one job; ``for_job`` takes about a second, a choice well under a millisecond."""

    job: DeadlineJob
    plan: CostToGo

    @classmethod
    def for_job(cls, job: DeadlineJob, prior: SpellPrior = PRIOR) -> Self:
        """Makes the policy.

        Make it again, from what is left of the job, when a price changed by over a few percent.
        """
        return cls(job, CostToGo.for_job(job, prior))

    def expected_costs(self, now: DeadlineStates, beliefs: BeliefBatch) -> Floats:
        """Returns expected dollars from now on for each ``MachineKind``, shape (3, n).

        Infinite where the net forbids it; on-demand is always finite. ``beliefs`` have seen this tick's
        ``now.spot_up``.
        """
        tick_s = self.plan.tick_s
        margins = margins_after(self.job, now, tick_s)
        # The plan charges a start's overhead to spot's margin at once; the net does so tick by tick.
        margins[MachineKind.SPOT] -= np.maximum(now.overhead_s(self.job, MachineKind.SPOT) - tick_s, 0.0)
        spell = self.plan.spell_states(now.spot_up, beliefs.age_s)
        weights = beliefs.pair_weights
        charges = self.job.tick_charges(tick_s)
        costs = np.empty((len(MachineKind), len(now)))
        for machine in MachineKind:
            ahead = self.plan.look_up(now.left_s - tick_s, machine, spell, margins[machine])
            costs[machine] = charges[machine] + np.where(
                self._finishes_in_tick(now, machine), 0.0, (weights * ahead).sum(axis=1)
            )
        # The net has the last word: the plan is approximate, the net is exact.
        return np.where(allowed_machines(self.job, now), costs, np.inf)

    def cheapest_machines(self, now: DeadlineStates, beliefs: BeliefBatch) -> Codes:
        """Returns the cheapest allowed ``MachineKind`` of each row, (n,). Ties go to what runs less."""
        cheapest: Codes = self.expected_costs(now, beliefs).argmin(axis=0)
        return cheapest

    def choose_machine(self, now: DeadlineState, belief: Belief) -> Choice:
        """Chooses what the live job runs until its next decision, a tick from now at the latest."""
        rows = now.as_batch(self.job)
        costs = self.expected_costs(rows, belief.as_batch())
        machine = MachineKind(int(costs.argmin(axis=0)[0]))
        margin_s = float(margins_after(self.job, rows, self.job.tick_s)[machine, 0])
        cost = float(costs[machine, 0])
        why = _explain_choice(machine, costs[:, 0], now.spot_up, margin_s)
        return Choice(machine, Usd(cost), Seconds(margin_s), why)

    def _finishes_in_tick(self, now: DeadlineStates, machine: MachineKind) -> Flags:
        """Returns whether a tick of the plan is enough for the rest of the work."""
        if machine is MachineKind.NOTHING:
            return np.zeros(len(now), dtype=np.bool_)
        return now.work_left_s + now.overhead_s(self.job, machine) <= self.plan.tick_s


_DOES: Final = {
    MachineKind.NOTHING: "run nothing and wait for spot",
    MachineKind.SPOT: "run on spot",
    MachineKind.ON_DEMAND: "run on-demand",
}


def _explain_choice(machine: MachineKind, costs: Floats, spot_up: bool, margin_s: float) -> str:
    """Explains for people: the expected cost, and that of the next best choice."""
    others = [other for other in MachineKind if other is not machine and np.isfinite(costs[other])]
    if not others:
        return f"{_DOES[machine]}: nothing else is sure to keep deadline and budget"
    second = min(others, key=lambda other: costs[other])
    market = "spot is up" if spot_up else "spot is away"
    return (
        f"{_DOES[machine]}: {market}, expected {costs[machine]:.2f} $ to the end,"
        f" {costs[second] - costs[machine]:.2f} $ less than to {_DOES[second]};"
        f" {max(margin_s, 0.0) / HOUR_S:.1f} h stay in hand"
    )
