"""Computes what a job should cost from any state on, for every pair of spell laws, by backward induction.

    r       ticks left until the deadline
    x       margin, the safety net's: what is left once on-demand's way out is paid for (``net``)
    m       what ran during the last tick
    a       state of the market: up or down, and the age of that spell, in A classes on either side
    k       a pair of laws of spell lengths
    G_r     expected dollars from a state with r ticks left, under law k

    G_r(k, m, a, x) = min over machines b of  charge_b + E_k[ G_{r-1}(k, b, a', x - loss(m, b)) | a ]

A market in age class a ends its spell with the law's hazard, else grows older; a spot machine is gone when
its spell ends. The margin replaces the work left, because it is what choices differ in: on-demand never loses
margin, spot loses its overhead, waiting loses the tick. Three simplifications keep the tables small: a
start's whole overhead is charged to the margin at once, ages within a class are alike, and costs are
interpolated between the margins of the grid. None of them affects the net, which is exact.

With known laws this is the least expected cost. But the law is not known; taking the mean of the K costs
under the current belief acts as if it were found out after the next tick (Littman, Cassandra and Kaelbling's
QMDP, 1995). Seeing is free here, so little is lost by never buying information.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Floats
from bidbrain.deadline.availability_belief import SpellPrior
from bidbrain.deadline.model import DeadlineJob, MachineKind

AGE_CLASSES: Final = np.array([0, 1, 2, 4, 7, 12, 23, 47])
"""First age of each class, in whole ticks after the spell's first."""
_OLDEST: Final = 77.0
"""Where the last class is assumed to end, in whole ticks: it has no end, and its middle stands for it."""
_MOST_TICKS: Final = 480
"""A plan for a longer time takes longer ticks."""
_DUST: Final = 1e-9
"""Part of a tick that rounding may add."""
_FINEST_TICKS: Final = 0.5
_COARSEST: Final = 0.04
"""Spacing of the margin grid: half a tick, or 4 % of the margin where that is more."""


def class_ages_s(tick_s: float) -> Floats:
    """Returns the age in seconds that stands for each age class, shape (A,)."""
    oldest = np.append(AGE_CLASSES[1:] - 1.0, _OLDEST)
    ages_s: Floats = (AGE_CLASSES + oldest) / 2 * tick_s
    return ages_s


def plan_tick_s(job: DeadlineJob) -> float:
    """Returns the tick that ``job`` is planned in: its own, or a multiple where there would be too many."""
    return job.tick_s * max(math.ceil(job.tick_count / _MOST_TICKS), 1)


@dataclass(frozen=True, slots=True, eq=False)
class CostToGo:
    """Holds expected costs to go; read with ``look_up``."""

    tick_s: float
    margins_s: Floats
    """Shape (X,), increasing from 0."""
    table: npt.NDArray[np.float32]
    """Shape (ticks, K, 3, 2A, X): by ticks left, the mean of G over the next a', given this tick's a."""

    @classmethod
    def for_job(cls, job: DeadlineJob, prior: SpellPrior) -> Self:
        """Computes the costs of ``job`` under every pair of the prior's laws."""
        tick_s = plan_tick_s(job)
        return cls.from_hazards(job, tick_s, prior.pair_hazards(class_ages_s(tick_s), tick_s))

    @classmethod
    def from_hazards(cls, job: DeadlineJob, tick_s: float, hazards: Floats) -> Self:
        """Computes the costs from hazards per tick and age class, shape (K, 2, A), up side first."""
        ticks = max(math.ceil(job.deadline_s / tick_s), 1)
        margins_s = _margin_grid(job.deadline_s - job.work_s, tick_s)
        chances = np.stack([_transition_chances(of_up, of_down) for of_up, of_down in hazards])
        shape = (len(hazards), len(MachineKind), chances.shape[-1], len(margins_s))
        table = np.empty((ticks, *shape), dtype=np.float32)
        moves = _list_moves(job, tick_s, margins_s)
        not_work_s = margins_s + np.array([[job.overhead_s], [job.overhead_s], [0.0]]) + job.reserve_s
        costs = np.zeros(shape)
        for left in range(ticks):
            down = shape[2] // 2
            # A spot machine is gone in a market that is down.
            costs[:, MachineKind.SPOT, down:] = costs[:, MachineKind.NOTHING, down:]
            expected = np.matmul(chances[:, None], costs)
            # Stored after the expectation, so that a look-up needs no transition.
            table[left] = expected
            done = not_work_s >= (left + 1) * tick_s
            costs = np.where(done[:, None], 0.0, _cheapest_moves(expected, moves, shape))
        return cls(tick_s, margins_s, table)

    def look_up(
        self, left_s: Floats, machine: MachineKind, spell: npt.NDArray[np.int64], margin_s: Floats
    ) -> Floats:
        """Returns expected dollars after a tick of ``machine``, under each pair of laws; shape (n, K).

        ``left_s`` is the time left after that tick, ``margin_s`` the margin it leaves, and ``spell`` the
        market's state during it, as ``spell_states`` gives it; each of shape (n,). Margins beyond the grid
        count as its ends.
        """
        ticks = np.clip(np.ceil(left_s / self.tick_s - _DUST), 0, len(self.table) - 1).astype(np.int64)
        low, share = _locate_between(self.margins_s, margin_s)
        high = np.minimum(low + 1, len(self.margins_s) - 1)
        near = self.table[ticks, :, machine, spell, low]
        far = self.table[ticks, :, machine, spell, high]
        return near * (1.0 - share)[:, None] + far * share[:, None]

    def spell_states(self, up: npt.NDArray[np.bool_], age_s: Floats) -> npt.NDArray[np.int64]:
        """Returns the state a of markets whose current spell is ``age_s`` old; shape (n,)."""
        age = np.searchsorted(AGE_CLASSES, age_s // self.tick_s, side="right") - 1
        return age + np.where(up, 0, len(AGE_CLASSES))


def _margin_grid(most_s: float, tick_s: float) -> Floats:
    """Returns margins from 0 to at least ``most_s``."""
    points = [0.0]
    while points[-1] < most_s:
        points.append(points[-1] + max(_FINEST_TICKS * tick_s, _COARSEST * points[-1]))
    return np.array(points)


def _locate_between(grid: Floats, values: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """Returns the grid point at or below each value, and how far the value is towards the next, in [0, 1]."""
    inside = np.clip(values, grid[0], grid[-1])
    low = np.searchsorted(grid, inside, side="right") - 1
    step = np.diff(grid, append=grid[-1] + 1.0)
    return low, (inside - grid[low]) / step[low]


def _transition_chances(of_up: Floats, of_down: Floats) -> Floats:
    """Returns chances from state to state in one tick, shape (2A, 2A); rows sum to 1.

    A spell stays in an age class for as many ticks as the class is wide, on average.
    """
    ages = len(AGE_CLASSES)
    # The oldest class has no end, so nothing leaves it by ageing.
    older = np.append(1.0 / np.diff(AGE_CLASSES), 0.0)
    chances = np.zeros((2 * ages, 2 * ages))
    for begin, hazard, other in ((0, of_up, ages), (ages, of_down, 0)):
        for age in range(ages):
            row = chances[begin + age]
            row[other] += hazard[age]
            row[begin + min(age + 1, ages - 1)] += (1.0 - hazard[age]) * older[age]
            row[begin + age] += (1.0 - hazard[age]) * (1.0 - older[age])
    return chances


@dataclass(frozen=True, slots=True, eq=False)
class _Move:
    """Describes a move from what ran to what shall run: its charge, and where on the margin grid it leads."""

    before: MachineKind
    then: MachineKind
    charge: float
    possible: npt.NDArray[np.bool_]
    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]
    share: Floats


def _list_moves(job: DeadlineJob, tick_s: float, margins_s: Floats) -> list[_Move]:
    """Returns all nine moves.

    Margins of on-demand are counted without the start that leaving it would cost.
    """
    moves = []
    for before in MachineKind:
        for then, charge in zip(MachineKind, job.tick_charges(tick_s).tolist(), strict=True):
            start = 0.0 if before is then else job.overhead_s
            loss = {MachineKind.NOTHING: tick_s, MachineKind.SPOT: start, MachineKind.ON_DEMAND: 0.0}[then]
            if before is MachineKind.ON_DEMAND and then is not MachineKind.ON_DEMAND:
                loss += job.overhead_s
            # Margins below zero are impossible moves; the grid clips them and the mask excludes them.
            after = margins_s - loss
            low, share = _locate_between(margins_s, after)
            high = np.minimum(low + 1, len(margins_s) - 1)
            moves.append(_Move(before, then, charge, after >= 0, low, high, share))
    return moves


def _cheapest_moves(expected: Floats, moves: list[_Move], shape: tuple[int, ...]) -> Floats:
    """Returns G for one more tick left: the cheapest possible move from every state."""
    costs = np.full(shape, np.inf)
    down = shape[2] // 2
    for move in moves:
        ahead = expected[:, move.then]
        cost = move.charge + ahead[..., move.low] * (1.0 - move.share) + ahead[..., move.high] * move.share
        cost[..., ~move.possible] = np.inf
        if move.then is MachineKind.SPOT:
            cost[:, down:] = np.inf
        np.minimum(costs[:, move.before], cost, out=costs[:, move.before])
    return costs
