"""Computes the clairvoyant optimum: the least a job can cost when every coming tick is known.

    t    tick
    s    slack, time left - work left, on the lattice of the greatest common divisor g of tick, overhead
         and work, so that the recursion is exact
    m    what ran, and how much of its start's overhead is left

    G_t(m, s) = min over machines b that are up of  charge_b + G_{t+1}(m', s - lost(m, b))

Running loses the overhead that is worked off, waiting loses the tick. This is a lower bound for every rule of
the benchmark; no policy may call it.
"""

from __future__ import annotations

import math

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.deadline.model import DeadlineJob, MachineKind

_State = tuple[MachineKind, int]
"""The machine that ran, and the overhead still to work off; idle is (NOTHING, 0)."""


def least_costs(job: DeadlineJob, up: Flags) -> Floats:
    """Returns dollars for each window of ``up``, shape (n, ticks) -> (n,); infinite where no way is in time.

    Raises ValueError where tick, overhead, work or deadline is no whole number of seconds.
    """
    tick, overhead, slack = _lattice_steps(job)
    if slack < 0:
        return np.full(len(up), np.inf)
    states = _list_states(tick, overhead)
    grid = np.arange(slack + 1)
    charges = job.tick_charges(job.tick_s)
    costs = np.zeros((len(states), len(up), slack + 1))
    # Backwards from the deadline: costs of the next tick are known when a tick is computed.
    for t in range(job.tick_count - 1, -1, -1):
        now = np.full_like(costs, np.inf)
        for at, before in enumerate(states):
            for then in MachineKind:
                lost, after = _apply_move(before, then, tick, overhead)
                if lost > slack:
                    continue
                cost = charges[then] + costs[states.index(after)][:, : slack + 1 - lost]
                if then is MachineKind.SPOT:
                    cost = np.where(up[:, t, None], cost, np.inf)
                np.minimum(now[at][:, lost:], cost, out=now[at][:, lost:])
        for at, (running, _) in enumerate(states):
            if running is MachineKind.SPOT:
                now[at] = np.where(up[:, t, None], now[at], now[0])
        # As much slack as time left means that no work is left.
        now[:, :, grid >= (job.tick_count - t) * tick] = 0.0
        costs = now
    least: Floats = costs[0][:, -1]
    return least


def _lattice_steps(job: DeadlineJob) -> tuple[int, int, int]:
    """Returns tick, overhead and the first slack, in multiples of the lattice's step."""
    seconds = (job.tick_s, job.overhead_s, job.work_s, job.deadline_s)
    if any(value % 1 != 0 for value in seconds):
        raise ValueError(f"the exact optimum needs whole seconds, not {seconds}")
    tick, overhead, work = int(job.tick_s), int(job.overhead_s), int(job.work_s)
    step = math.gcd(tick, overhead, work)
    return tick // step, overhead // step, (job.tick_count * tick - work) // step


def _list_states(tick: int, overhead: int) -> list[_State]:
    """Returns every state that a border between two ticks can find; the idle one first."""
    left = sorted({max(overhead - ticks * tick, 0) for ticks in range(1, overhead // tick + 2)})
    return [
        (MachineKind.NOTHING, 0),
        *((m, o) for m in (MachineKind.SPOT, MachineKind.ON_DEMAND) for o in left),
    ]


def _apply_move(before: _State, then: MachineKind, tick: int, overhead: int) -> tuple[int, _State]:
    """Returns the slack that a tick of ``then`` loses, and the state it ends in."""
    if then is MachineKind.NOTHING:
        return tick, (then, 0)
    running, begun = before
    to_work_off = begun if running is then else overhead
    return min(to_work_off, tick), (then, max(to_work_off - tick, 0))
