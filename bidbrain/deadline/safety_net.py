"""Implements the safety net: what may run in the next tick so that deadline and budget hold whatever comes.

    s       slack       time left - work left - the job's reserve
    o_a     overhead    without progress from now if machine a runs
    d       overhead_s  of starting a machine
    margin  of a state: slack less what on-demand, started now (or going on), would yet lose

The net asks one thing: after the tick, on-demand alone must still be in time. The margin that each choice
leaves then follows by arithmetic, without any look at how likely anything is:

    nothing    s - tick - d
    spot       s - min(o_spot, tick) - d     (it may vanish at any moment)
    on-demand  s - o_on-demand               (it never loses margin)

So on-demand is always allowed, and as long as the margin was not negative at the start, a job that keeps
within the net is never late. The budget has a net of the same kind: what is spent in the tick, and on-demand
alone from then on, must be covered. This is the safety net of "Can't Be Late" (Wu et al., NSDI 2024), stated
for states instead of policies.
"""

from __future__ import annotations

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.deadline.model import Codes, DeadlineJob, DeadlineStates, MachineKind

_DUST = 1e-9
"""Dollars and seconds that rounding may lose."""


def margins_after(job: DeadlineJob, now: DeadlineStates, tick_s: float) -> Floats:
    """Returns the margin in seconds that each ``MachineKind`` leaves after ``tick_s``, at worst.

    Shape (3, n).
    """
    slack = now.left_s - now.work_left_s - job.reserve_s
    spot = np.minimum(now.overhead_s(job, MachineKind.SPOT), tick_s)
    return np.stack(
        [
            slack - tick_s - job.overhead_s,
            slack - spot - job.overhead_s,
            slack - now.overhead_s(job, MachineKind.ON_DEMAND),
        ]
    )


def safe_costs_after(job: DeadlineJob, now: DeadlineStates) -> Floats:
    """Returns dollars for each ``MachineKind``'s next tick and on-demand alone from then on; shape (3, n).

    Ticks are paid in full. Where spot can be lost within a tick, one tick of it should be kept out of
    ``budget_left``: that is the most by which the truth can exceed this.
    """
    charges = job.tick_charges(job.tick_s)
    costs = []
    for machine in MachineKind:
        work, overhead = work_off_tick(job, now, machine)
        # Any other machine may be gone after the tick, and on-demand then pays a start.
        if machine is not MachineKind.ON_DEMAND:
            overhead = np.full(len(now), float(job.overhead_s))
        ticks = np.ceil((work + overhead) / job.tick_s - _DUST)
        costs.append(charges[machine] + charges[MachineKind.ON_DEMAND] * np.where(work > 0, ticks, 0.0))
    return np.stack(costs)


def work_off_tick(job: DeadlineJob, now: DeadlineStates, machine: MachineKind) -> tuple[Floats, Floats]:
    """Returns work and overhead left after a tick of ``machine``, in seconds.

    Overhead is worked off first.
    """
    overhead = now.overhead_s(job, machine)
    progress = 0.0 if machine is MachineKind.NOTHING else np.maximum(job.tick_s - overhead, 0.0)
    return np.maximum(now.work_left_s - progress, 0.0), np.maximum(overhead - job.tick_s, 0.0)


def allowed_machines(job: DeadlineJob, now: DeadlineStates) -> Flags:
    """Returns which machines the net lets run in the next tick, shape (3, n); on-demand always."""
    in_time = margins_after(job, now, job.tick_s) >= -_DUST
    covered = safe_costs_after(job, now) <= now.budget_left + _DUST
    may = in_time & covered
    may[MachineKind.SPOT] &= now.spot_up
    # Even a job that is late already runs on-demand: nothing finishes sooner.
    may[MachineKind.ON_DEMAND] = True
    return may


def apply_net(job: DeadlineJob, now: DeadlineStates, wish: Codes) -> Codes:
    """Returns ``wish`` where the net allows it, on-demand elsewhere; shape (n,)."""
    may = allowed_machines(job, now)[wish, np.arange(len(now))]
    return np.where(may, wish, int(MachineKind.ON_DEMAND))
