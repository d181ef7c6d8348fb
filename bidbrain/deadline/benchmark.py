"""Runs the deadline benchmark: what a rule costs on recorded spells, by the published rules.

In each tick a rule sees whether spot is up in it, and answers what to run; a tick is paid in full. Spot that
goes away ends its machine at the tick's border, and nothing of the finished tick is lost. Starting any
machine other than the one that runs sets the overhead, which is worked off before progress; stopping is free.
A job is late if it is not done when its last tick ends (the simulator published with "Can't Be Late", Wu et
al., NSDI 2024). All windows go forward together, tick by tick, and no rule sees beyond its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Flags, Floats
from bidbrain.deadline.availability_belief import PRIOR, BeliefBatch, SpellPrior
from bidbrain.deadline.model import Codes, DeadlineJob, DeadlineStates, MachineKind
from bidbrain.deadline.safety_net import work_off_tick

Counts = npt.NDArray[np.int64]

Rule = Callable[[DeadlineStates, BeliefBatch], Codes]
"""Chooses what each of n jobs runs in the coming tick, as ``MachineKind`` codes of shape (n,)."""


@dataclass(frozen=True, slots=True, eq=False)
class BenchmarkRuns:
    """Holds the outcomes of n jobs; every array has shape (n,)."""

    cost: Floats
    """Dollars."""
    starts: Counts
    """Machines started, the first one included."""
    ticks: Counts
    """Shape (3, n): ticks of each ``MachineKind`` until the job was done."""
    late: Flags

    def select(self, rows: slice) -> BenchmarkRuns:
        """Returns the outcomes of ``rows`` alone."""
        return BenchmarkRuns(self.cost[rows], self.starts[rows], self.ticks[:, rows], self.late[rows])


def cut_windows(up: Flags, ticks: int, count: int) -> Flags:
    """Returns at most ``count`` windows of ``ticks`` ticks from one trace, evenly spaced; shape (n, ticks).

    Raises ValueError where the trace is shorter than one window.
    """
    if len(up) < ticks:
        raise ValueError(f"the trace has {len(up)} ticks, a window needs {ticks}; choose an earlier deadline")
    # Short traces give fewer windows than asked for, none of them twice.
    starts = np.unique(np.linspace(0, len(up) - ticks, count).astype(np.int64))
    return np.stack([up[start : start + ticks] for start in starts])


def simulate_rule(
    job: DeadlineJob, up: Flags, rule: Rule, prior: SpellPrior = PRIOR, budget: float = np.inf
) -> BenchmarkRuns:
    """Runs ``rule`` on every window of ``up``, shape (n, ticks): whether spot is up in each tick.

    Raises ValueError where the deadline is no border between ticks or a window does not reach it.
    """
    if job.deadline_s % job.tick_s or up.shape[1] < job.tick_count:
        raise ValueError(
            f"windows of {up.shape[1]} ticks of {job.tick_s} s cannot show a deadline of {job.deadline_s} s;"
            " give whole ticks, up to the deadline at least"
        )
    n = len(up)
    charges = job.tick_charges(job.tick_s)
    now = DeadlineStates(
        left_s=np.full(n, job.deadline_s),
        work_left_s=np.full(n, job.work_s),
        running=np.zeros(n, dtype=np.int64),
        overhead_left_s=np.zeros(n),
        spot_up=up[:, 0],
        budget_left=np.full(n, budget),
    )
    beliefs = BeliefBatch.first_look(prior, up[:, 0])
    starts, ticks = np.zeros(n, dtype=np.int64), np.zeros((len(MachineKind), n), dtype=np.int64)
    for tick in range(job.tick_count):
        if tick:
            now = _next_tick(job, now, up[:, tick])
            beliefs = beliefs.observe(up[:, tick], job.tick_s)
        unfinished = now.work_left_s > 0
        if not unfinished.any():
            break
        # All windows ask the rule at once; finished ones ignore its answer.
        machines = np.where(unfinished, rule(now, beliefs), int(MachineKind.NOTHING))
        starts += (machines != now.running) & (machines != MachineKind.NOTHING)
        ticks[machines, np.arange(n)] += unfinished
        now = _run_tick(job, now, machines, now.budget_left - charges[machines])
    cost = charges @ ticks
    return BenchmarkRuns(cost, starts, ticks, now.work_left_s > 0)


def _next_tick(job: DeadlineJob, now: DeadlineStates, up: Flags) -> DeadlineStates:
    """Moves over the border between two ticks: spot machines end where spot went away."""
    lost = (now.running == MachineKind.SPOT) & ~up
    return DeadlineStates(
        left_s=now.left_s - job.tick_s,
        work_left_s=now.work_left_s,
        running=np.where(lost, int(MachineKind.NOTHING), now.running),
        overhead_left_s=np.where(lost, 0.0, now.overhead_left_s),
        spot_up=up,
        budget_left=now.budget_left,
    )


def _run_tick(job: DeadlineJob, now: DeadlineStates, machines: Codes, budget_left: Floats) -> DeadlineStates:
    """Does one tick of work. Raises ValueError where a rule runs spot that is not up."""
    if ((machines == MachineKind.SPOT) & ~now.spot_up).any():
        raise ValueError("the rule answered spot in a tick in which spot is not up")
    work, overhead = now.work_left_s.copy(), np.zeros(len(now))
    for machine in MachineKind:
        chosen = machines == machine
        after_work, after_overhead = work_off_tick(job, now, machine)
        work[chosen], overhead[chosen] = after_work[chosen], after_overhead[chosen]
    return DeadlineStates(now.left_s, work, machines, overhead, now.spot_up, budget_left)
