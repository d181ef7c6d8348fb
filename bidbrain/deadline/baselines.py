"""Implements the rules that deadline policies are compared with: "Can't Be Late" (Wu et al., NSDI 2024).

Each looks at the clock, the work done and whether spot is up; none learns. All but ``spot_only_rule`` and
``on_demand_rule`` are held by the safety net of this package, which reacts a tick later than the paper's
"R(t) < C(t) + 2d". That favours them, as none of them is ever late with it either. ``RuleOfThumb`` makes any
of them decide for a running job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.deadline.availability_belief import Belief, BeliefBatch
from bidbrain.deadline.benchmark import Rule
from bidbrain.deadline.model import Choice, Codes, DeadlineJob, DeadlineState, DeadlineStates, MachineKind
from bidbrain.deadline.safety_net import apply_net, margins_after
from pricing_data.model.units import HOUR_S, Seconds, Usd

_NOTHING, _SPOT, _ON_DEMAND = (int(machine) for machine in MachineKind)


@dataclass(frozen=True, slots=True)
class RuleOfThumb:
    """Applies ``rule`` to one running job: the counterpart of ``LeastCost``."""

    name: str
    job: DeadlineJob
    rule: Rule

    def choose_machine(self, now: DeadlineState, belief: Belief) -> Choice:
        """Chooses what the live job runs until its next decision, a tick from now at the latest."""
        rows = now.as_batch(self.job)
        machine = MachineKind(int(self.rule(rows, belief.as_batch())[0]))
        margin_s = float(margins_after(self.job, rows, self.job.tick_s)[machine, 0])
        market = "up" if now.spot_up else "away"
        hand = f"{max(margin_s, 0.0) / HOUR_S:.1f} h stay in hand"
        why = f"{self.name} says {machine}: spot is {market}, {hand}"
        return Choice(machine, Usd(math.nan), Seconds(margin_s), why)


def on_demand_rule(now: DeadlineStates, _: BeliefBatch) -> Codes:
    """Runs on-demand from start to end."""
    return np.full(len(now), _ON_DEMAND)


def spot_only_rule(now: DeadlineStates, _: BeliefBatch) -> Codes:
    """Runs spot whenever it is up, without a net: often late."""
    return _spot_else_nothing(now)


def greedy_rule(job: DeadlineJob) -> Rule:
    """Runs spot whenever it is up, until the net says on-demand; then on-demand to the end."""

    def rule(now: DeadlineStates, _: BeliefBatch) -> Codes:
        wish = np.where(now.running == _ON_DEMAND, _ON_DEMAND, _spot_else_nothing(now))
        return apply_net(job, now, wish)

    return rule


def uniform_progress_rule(job: DeadlineJob, *, spot_first: bool = False) -> Rule:
    """Keeps to the line of uniform progress, c(t) >= t C / R, with on-demand where spot does not.

    Idle and behind the line: on-demand. Spot up: spot, however far behind, until it is lost. On-demand is
    kept until the line of 2 d later is reached (hysteresis). ``spot_first`` is the variant that the published
    programs start from: it leaves on-demand for spot at any time.
    """

    def rule(now: DeadlineStates, _: BeliefBatch) -> Codes:
        # c(t) of the paper, in terms of this package's states.
        done = job.work_s - now.work_left_s
        elapsed = job.deadline_s - now.left_s
        slope = job.work_s / job.deadline_s
        # Hysteresis: without it on-demand would stop and start at every tick around the line.
        catching_up = (now.running == _ON_DEMAND) & (done < (elapsed + 2 * job.overhead_s) * slope)
        behind = done < elapsed * slope
        wish = np.where(behind | catching_up, _ON_DEMAND, _NOTHING)
        free = now.spot_up if spot_first else now.spot_up & ~catching_up
        return apply_net(job, now, np.where(free, _SPOT, wish))

    return rule


def time_sliced_rule(job: DeadlineJob, slices: int = 8) -> Rule:
    """Runs greedily within each of ``slices`` equal parts.

    Every part has its share of the work and its own net.
    """

    def rule(now: DeadlineStates, _: BeliefBatch) -> Codes:
        elapsed = job.deadline_s - now.left_s
        # The slice that is under way, counted from 1.
        part = np.floor(elapsed / job.deadline_s * slices) + 1
        due = _work_missing(job, now, part / slices)
        left = part / slices * job.deadline_s - elapsed
        short = (due > 0) & (left - job.tick_s < due + job.overhead_s)
        wish = np.where(short, _ON_DEMAND, _spot_else_nothing(now))
        return apply_net(job, now, wish)

    return rule


def _work_missing(job: DeadlineJob, now: DeadlineStates, share: Floats) -> Floats:
    """Returns seconds of work still missing to ``share`` of the job."""
    return job.work_s * share - (job.work_s - now.work_left_s)


def _spot_else_nothing(now: DeadlineStates) -> Codes:
    return np.where(now.spot_up, _SPOT, _NOTHING)
