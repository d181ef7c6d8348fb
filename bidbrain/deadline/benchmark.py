"""The deadline benchmark: what a rule costs on recorded spells of availability, by the published rules.

In each tick a rule sees whether spot is up in it, and answers what to run; a tick is paid in full. Spot
that goes away ends its machine at the tick's border, and nothing of the finished tick is lost. Starting
any machine other than the one that runs sets the overhead, which is worked off before progress; stopping
is free. A job is late if it is not done when its last tick ends (the simulator published with "Can't Be
Late", Wu et al., NSDI 2024). All windows go forward together, tick by tick, and no rule sees beyond its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Flags, Floats
from bidbrain.deadline.availability_belief import PRIOR, Beliefs, SpellPrior
from bidbrain.deadline.model import Codes, Job, Machine, Situations
from bidbrain.deadline.safety_net import progressed

Counts = npt.NDArray[np.int64]

Rule = Callable[[Situations, Beliefs], Codes]
"""What each of n jobs runs in the coming tick, as ``Machine`` codes of shape (n,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """What became of n jobs; every array has shape (n,)."""

    cost: Floats
    """Dollars."""
    starts: Counts
    """Machines started; the first is one of them."""
    ticks: Counts
    """Shape (3, n): ticks of each ``Machine`` until the job was done."""
    late: Flags

    def part(self, rows: slice) -> Runs:
        """Those of ``rows`` alone."""
        return Runs(self.cost[rows], self.starts[rows], self.ticks[:, rows], self.late[rows])


def windows(up: Flags, ticks: int, count: int) -> Flags:
    """At most ``count`` windows of ``ticks`` ticks from one trace, evenly spaced; shape (n, ticks).

    Raises ValueError where the trace is shorter than one window.
    """
    if len(up) < ticks:
        raise ValueError(f"the trace has {len(up)} ticks, a window needs {ticks}; choose an earlier deadline")
    starts = np.unique(np.linspace(0, len(up) - ticks, count).astype(np.int64))
    return np.stack([up[start : start + ticks] for start in starts])


def simulate(job: Job, up: Flags, rule: Rule, prior: SpellPrior = PRIOR, budget: float = np.inf) -> Runs:
    """``rule`` on every window of ``up``, shape (n, ticks): whether spot is up in each tick.

    Raises ValueError where the deadline is no border between ticks or a window does not reach it.
    """
    if job.deadline_s % job.tick_s or up.shape[1] < job.ticks:
        raise ValueError(
            f"windows of {up.shape[1]} ticks of {job.tick_s} s cannot show a deadline of {job.deadline_s} s;"
            " give whole ticks, up to the deadline at least"
        )
    n = len(up)
    charges = job.charges(job.tick_s)
    now = Situations(
        left_s=np.full(n, job.deadline_s),
        work_left_s=np.full(n, job.work_s),
        running=np.zeros(n, dtype=np.int64),
        overhead_left_s=np.zeros(n),
        spot_up=up[:, 0],
        budget_left=np.full(n, budget),
    )
    beliefs = Beliefs.begin(prior, up[:, 0])
    starts, ticks = np.zeros(n, dtype=np.int64), np.zeros((len(Machine), n), dtype=np.int64)
    for tick in range(job.ticks):
        if tick:
            now = _next_tick(job, now, up[:, tick])
            beliefs = beliefs.seen(up[:, tick], job.tick_s)
        unfinished = now.work_left_s > 0
        if not unfinished.any():
            break
        machines = np.where(unfinished, rule(now, beliefs), int(Machine.NOTHING))
        starts += (machines != now.running) & (machines != Machine.NOTHING)
        ticks[machines, np.arange(n)] += unfinished
        now = _run(job, now, machines, now.budget_left - charges[machines])
    cost = charges @ ticks
    return Runs(cost, starts, ticks, now.work_left_s > 0)


def _next_tick(job: Job, now: Situations, up: Flags) -> Situations:
    """The border between two ticks: spot machines end where spot went away."""
    lost = (now.running == Machine.SPOT) & ~up
    return Situations(
        left_s=now.left_s - job.tick_s,
        work_left_s=now.work_left_s,
        running=np.where(lost, int(Machine.NOTHING), now.running),
        overhead_left_s=np.where(lost, 0.0, now.overhead_left_s),
        spot_up=up,
        budget_left=now.budget_left,
    )


def _run(job: Job, now: Situations, machines: Codes, budget_left: Floats) -> Situations:
    """One tick of work. Raises ValueError where a rule runs spot that is not up."""
    if ((machines == Machine.SPOT) & ~now.spot_up).any():
        raise ValueError("the rule answered spot in a tick in which spot is not up")
    work, overhead = now.work_left_s.copy(), np.zeros(len(now))
    for machine in Machine:
        chosen = machines == machine
        after_work, after_overhead = progressed(job, now, machine)
        work[chosen], overhead[chosen] = after_work[chosen], after_overhead[chosen]
    return Situations(now.left_s, work, machines, overhead, now.spot_up, budget_left)
