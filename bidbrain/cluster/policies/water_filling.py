"""Implements water filling: max-min fairness that goes on where the least well off cannot be helped any more.

    L[m]    level: normalized throughput thr(m, X) / thr(m, X_equal) that the job is sure of by now
    p[m]    its part of its entity's weight while it can still rise; the rest is frozen
    c       how far this round raises all who can: to L[m] + c p[m] / s[m]

Each round is one linear program for the largest c. The paper then finds the stuck jobs by an integer program
(z[m] = 1 if some X raises m and lowers nobody). The prices of the round's own program know, by complementary
slackness: every X that keeps the levels after the round is an optimum of the round. So

- a job whose row has a price other than 0 is at exactly its level in every such X: it is stuck. The prices
  of the rows that c appears in add up to 1, so every round finds at least one job;
- a job that would have to pay to be on a type (its reduced cost is not 0) is there in no such X, now or
  later. That type is closed to it. A job with all its time on the best type still open to it is stuck too,
  which takes no program: how levels rise from one such job to the next is arithmetic, until a type runs out.

So rounds in which jobs just reach the top of what is open to them are tried many at a time (``levels.py``):
the levels after any of them are known, and they only rise. A search finds the last that fits, with the prices
of those that do not.

Knows no other objective than fairness over time.

Source: Narayanan 5.4.3; levels as in Radunovic and Le Boudec, IEEE/ACM Transactions on Networking 15, 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.cluster.policies.base import Answer, list_unrunnable, runnable_jobs
from bidbrain.cluster.policies.bisection import RaisedFloors, raise_floors
from bidbrain.cluster.policies.levels import LevelCourse, LevelState, Sharing
from bidbrain.cluster.policies.problem import ShareProblem, Shares
from bidbrain.cluster.solver import Unsolvable

_ROUNDING: Final = 1e-9
"""Part of a round's length within which its end counts as reached."""
_GIVEN_UP: Final = (1e-8, 1e-7, 1e-6)
"""Parts that everybody's levels lose, one after the other, where rounding made them impossible together."""
_PRICED: Final = 1e-7
"""Part of all prices together that a row's, or a variable's, price must exceed to count."""
_FIRST_AHEAD: Final = 32
"""Number of rounds tried at once at first; then four times as many."""


class Inside(StrEnum):
    """Says how an entity divides its weight among its jobs that can still rise."""

    FAIRNESS = "fairness"
    """In proportion to their weights."""
    FIFO = "fifo"
    """All of it goes to the first."""


@dataclass(frozen=True, slots=True)
class WaterFilling:
    """Shares by single-level fairness with jobs' weights; Pareto efficient.

    The value is the level of the worst off.
    """

    def compute_shares(self, problem: ShareProblem) -> Answer:
        jobs = problem.jobs
        everybody = np.zeros(len(jobs.kind), np.int64)
        return _Filling(
            problem,
            Sharing(everybody, jobs.weight, problem.scale, np.ones(1), np.zeros(1, np.bool_)),
        ).fill_levels()


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Shares by weighted fairness among entities.

    Inside each, fairness or FIFO (``inside``: one for every entity).
    """

    inside: tuple[Inside, ...] | Inside = Inside.FAIRNESS

    def compute_shares(self, problem: ShareProblem) -> Answer:
        fifo = np.array(
            [self._sharing_inside(number) is Inside.FIFO for number in range(len(problem.entity_weight))]
        )
        jobs = problem.jobs
        return _Filling(
            problem, Sharing(jobs.entity, jobs.weight, problem.scale, problem.entity_weight, fifo)
        ).fill_levels()

    def _sharing_inside(self, entity: int) -> Inside:
        return self.inside if isinstance(self.inside, Inside) else self.inside[entity]


class _Filling:
    """Runs one water filling: the state between rounds, which types are open to whom, the last program."""

    def __init__(self, problem: ShareProblem, sharing: Sharing) -> None:
        self._problem, self._sharing = problem, sharing
        self._equal = problem.equal_throughput()
        self._runs = runnable_jobs(problem)
        self._open = problem.allowed_types[problem.jobs.kind]
        self._cap = self._level_caps()
        self._state = LevelState(np.zeros(len(self._equal)), self._runs & (sharing.whole > 0)[sharing.entity])
        self._shares = Shares(np.zeros(self._open.shape))
        self._kept = 1.0

    def fill_levels(self) -> Answer:
        while (state := self._state.without_capped(self._cap)).rising.any():
            course = LevelCourse(self._sharing, state, self._cap)
            # Up to the first cap the program's answer is exact; beyond it, levels follow by arithmetic.
            distance = float(course.times[0]) if len(course.times) else np.inf
            raised = self._raise_levels(state.level, course.step, distance)
            # The round ended before anybody's cap: a type ran out, and its prices tell who is stuck.
            if raised.t < distance * (1 - _ROUNDING):
                self._state = self._find_stuck(state, course.step, raised)
                self._shares = raised.shares
            else:
                self._state, self._shares = self._last_feasible_event(course, raised.shares)
        least = float(self._state.level[self._runs].min(initial=np.inf))
        return Answer(self._shares, least, list_unrunnable(self._problem))

    def _level_caps(self) -> Floats:
        """Returns the level of each job that has all its time on the best type open to it.

        With space sharing none is known: beside another job one may be as fast, on less.
        """
        if self._problem.kinds.together is not None:
            return np.full(len(self._equal), np.inf)
        best = np.where(self._open, self._problem.rates, 0.0).max(axis=1)
        cap: Floats = np.divide(best, self._equal, out=np.zeros(len(best)), where=self._equal > 0)
        return cap

    def _raise_levels(
        self, level: Floats, step: Floats, limit: float, enough: float = -np.inf
    ) -> RaisedFloors:
        """Returns the largest c <= ``limit`` for which everybody can have ``level`` + c ``step``.

        Levels come from a previous program, to its tolerance; taken exactly they may be just impossible. Then
        all give up a little. Below ``enough`` one c is as good as another.
        """
        for given_up in _GIVEN_UP:
            try:
                return self._solve_round(level, step, limit, enough)
            except Unsolvable:
                # Kept for all later rounds: what was impossible once stays so.
                self._kept *= 1 - given_up
        return self._solve_round(level, step, limit, enough)

    def _solve_round(self, level: Floats, step: Floats, limit: float, enough: float) -> RaisedFloors:
        unit = self._equal * self._kept
        floor, slope = unit * level, unit * step
        # Most rounds reach their limit, so the search begins there.
        start = limit if np.isfinite(limit) else 0.0
        return raise_floors(
            self._problem,
            lambda c: (floor + c * slope, slope),
            (level, step),
            start,
            limit,
            open_to=self._open,
            enough=enough,
        )

    def _find_stuck(self, state: LevelState, step: Floats, raised: RaisedFloors) -> LevelState:
        """Finds, after a round that ended before any cap, who is stuck and which types are closed to whom."""
        program, best = raised.program, raised.best
        tight = np.zeros(len(program.classes.size), np.bool_)
        prices = (
            np.abs(best.duals[raised.rows]) / raised.unit * program.classes.means(raised.slope)[raised.asks]
        )
        # Relative to all prices: their unit depends on the problem's.
        tight[raised.asks] = prices > _PRICED * prices.sum()
        if self._problem.kinds.together is None:
            uses = program.uses
            kept_out = np.abs(best.reduced[: len(uses.mine)]) > _PRICED * prices.sum() / len(tight)
            closed = np.zeros((len(tight), self._open.shape[1]), np.bool_)
            closed[uses.mine[kept_out], uses.type[kept_out]] = True
            # A type whose reduced cost keeps a class out is closed to its jobs for good.
            self._open &= ~closed[program.classes.of]
            self._cap = self._level_caps()
        level = state.level + max(raised.t, 0.0) * step
        stuck = tight[program.classes.of] & (step > 0)
        return LevelState(level, np.asarray(state.rising & ~stuck))

    def _last_feasible_event(self, course: LevelCourse, shares: Shares) -> tuple[LevelState, Shares]:
        """Returns the last event of a course whose levels can be met together; the first one's can.

        The prices of one that does not fit exclude others. The last that they allow is tried next, and where
        that does not fit either, one in the middle.
        """
        good, bad, tried = 0, len(course.times), _FIRST_AHEAD
        level, by_prices = course.levels_at(good), False
        # Between the last event known to fit and the first known not to.
        while good + 1 < bad:
            tried = min(tried, bad - 1)
            raised = self._raise_levels(level, course.levels_at(tried) - level, 1.0, enough=1 - _ROUNDING)
            if raised.t >= 1 - _ROUNDING:
                good, shares = tried, raised.shares
                level, tried = course.levels_at(good), 4 * tried
            else:
                bad, by_prices = self._first_forbidden(course, good + 1, tried, raised), not by_prices
                tried = bad - 1 if by_prices else (good + bad) // 2
        return course.state_at(good), shares

    def _first_forbidden(self, course: LevelCourse, low: int, high: int, raised: RaisedFloors) -> int:
        """Returns the first event from ``low`` on that the prices of a program forbid.

        They forbid ``high``.
        """
        price, most = raised.price_limit()
        price, most = price * self._equal * self._kept, most * (1 + _ROUNDING)
        while low < high:
            middle = (low + high) // 2
            if float(price @ course.levels_at(middle)) <= most:
                low = middle + 1
            else:
                high = middle
        return low
