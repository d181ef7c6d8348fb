"""Water filling: max-min fairness that goes on where the least well off cannot be helped any more.

    L[m]    level: normalized throughput thr(m, X) / thr(m, X_equal) that the job is sure of by now
    p[m]    its part of its entity's weight while it can still rise; the rest is frozen
    c       how far this round raises all who can: to L[m] + c p[m] / s[m]

Each round is one linear program for the largest c. The paper then finds who is stuck by an integer program
(z[m] = 1 if some X raises m and lowers nobody). The prices of the round's own program know, by complementary
slackness: every X that keeps the levels after the round is an optimum of the round. So

- a job whose row has a price other than 0 is at exactly its level in every such X: it is stuck. The prices
  of the rows that c appears in add up to 1, so every round finds somebody;
- a job that would have to pay to be on a type (its reduced cost is not 0) is there in no such X, now or
  later. That type is closed to it. A job with all its time on the best type still open to it is stuck too,
  which takes no program: how levels rise from one such job to the next is arithmetic, until a type runs out.

So rounds in which jobs just reach the top of what is open to them are tried many at a time: levels only rise,
so the last of them that fits is searched for, with the prices of those that do not.

Refuses to know other objectives than fairness over time.

Source: Narayanan 5.4.3; levels as in Radunovic and Le Boudec, IEEE/ACM Transactions on Networking 15, 2007.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np

from bidbrain.policies.base import Answer, cannot_run, runnable
from bidbrain.policies.problem import Flags, Floats, ShareProblem, Shares
from bidbrain.policies.rising import Raised, highest
from bidbrain.solver import Unsolvable

_Parts: TypeAlias = Callable[[Flags], Floats]
"""From who can still rise to p, shape (n,)."""

_ROUNDING: Final = 1e-9
"""Of a round's length: nearer to its end than this it went all the way."""
_GIVEN_UP: Final = (1e-8, 1e-7, 1e-6)
"""What everybody's levels lose, one after the other, where rounding has made them impossible together."""
_AT_THE_TOP: Final = 1e-9
"""Of a job's cap: who is nearer than this has reached it."""
_PRICED: Final = 1e-7
"""Of all prices together: what a row, or a use, must be priced at to tell anything."""
_AHEAD: Final = 512
"""The most rounds that are tried at once: each is a level for every job, to be kept until one fits."""
_FIRST_AHEAD: Final = 16
"""How many are tried first; then four times as many."""


class Inside(StrEnum):
    """How an entity deals its weight out to its jobs that can still rise."""

    FAIRNESS = "fairness"
    """In proportion to their weights."""
    FIFO = "fifo"
    """All of it to the first."""


@dataclass(frozen=True, slots=True)
class WaterFilling:
    """Single-level fairness by jobs' weights; Pareto efficient. The value is the level of the worst off."""

    def share(self, problem: ShareProblem) -> Answer:
        return _Filling(problem, lambda rising: np.where(rising, problem.jobs.weight, 0.0)).answer()


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Weighted fairness among entities; inside each, fairness or FIFO (``inside``: one for every entity)."""

    inside: tuple[Inside, ...] | Inside = Inside.FAIRNESS

    def share(self, problem: ShareProblem) -> Answer:
        return _Filling(problem, lambda rising: self._parts(problem, rising)).answer()

    def _parts(self, problem: ShareProblem, rising: Flags) -> Floats:
        entity, weight = problem.jobs.entity, np.where(rising, problem.jobs.weight, 0.0)
        fifo = np.array([self._of(number) is Inside.FIFO for number in range(len(problem.entity_weight))])
        first = np.full(len(fifo), len(entity))
        waiting = np.flatnonzero(rising)[::-1]
        first[entity[waiting]] = waiting
        weight = np.where(fifo[entity], np.arange(len(entity)) == first[entity], weight)
        whole = np.bincount(entity, weights=weight, minlength=len(fifo))
        return np.asarray(problem.entity_weight[entity] * weight / np.maximum(whole[entity], 1e-300))

    def _of(self, entity: int) -> Inside:
        return self.inside if isinstance(self.inside, Inside) else self.inside[entity]


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """Between two rounds; both (n,)."""

    level: Floats
    rising: Flags


class _Filling:
    """One water filling: the state between its rounds, what is still open to whom, and the last program."""

    def __init__(self, problem: ShareProblem, parts_of: _Parts) -> None:
        self._problem, self._parts_of = problem, parts_of
        self._equal, self._scale = problem.equal(), problem.scale
        self._runs = runnable(problem)
        self._open = problem.allowed[problem.jobs.kind]
        self._cap = self._caps()
        self._state = _State(np.zeros(len(self._equal)), self._runs.copy())
        self._shares = Shares(np.zeros(self._open.shape))
        self._kept = 1.0

    def answer(self) -> Answer:
        while (state := self._settled(self._state)).rising.any():
            step = self._step(state)
            ahead = self._next(state)
            distance = _distance(state, ahead, step)
            raised = self._raise(state.level, step, distance)
            if raised.t < distance * (1 - _ROUNDING):
                self._state = self._held_back(state, step, raised)
                self._shares = raised.shares
            else:
                self._state, self._shares = self._as_far_as_fits(ahead, raised.shares)
        least = float(self._state.level[self._runs].min(initial=np.inf))
        return Answer(self._shares, least, cannot_run(self._problem))

    # ---- arithmetic ----------------------------------------------------------------------------

    def _caps(self) -> Floats:
        """The level of each job that has all its time on the best type open to it.

        With space sharing none is known: beside another job one may be as fast, on less.
        """
        if self._problem.kinds.together is not None:
            return np.full(len(self._equal), np.inf)
        best = np.where(self._open, self._problem.rates, 0.0).max(axis=1)
        cap: Floats = np.divide(best, self._equal, out=np.zeros(len(best)), where=self._equal > 0)
        return cap

    def _settled(self, state: _State) -> _State:
        """Without those who have reached their caps."""
        return _State(state.level, state.rising & (state.level < self._cap * (1 - _AT_THE_TOP)))

    def _step(self, state: _State) -> Floats:
        """How fast levels rise, the fastest at 1."""
        step = self._parts_of(state.rising) / self._scale
        return np.asarray(step / step.max(), np.float64)

    def _next(self, state: _State) -> _State:
        """When the next job reaches its cap, if nothing else holds anybody back."""
        step = self._step(state)
        moves = step > 0
        time = np.full(len(step), np.inf)
        time[moves] = (self._cap[moves] - state.level[moves]) / step[moves]
        soonest = time.min()
        if np.isinf(soonest):
            return _State(np.where(moves, np.inf, state.level), state.rising & ~moves)
        level = np.where(time <= soonest * (1 + _AT_THE_TOP), self._cap, state.level + soonest * step)
        return self._settled(_State(level, state.rising))

    # ---- programs ------------------------------------------------------------------------------

    def _raise(self, level: Floats, step: Floats, limit: float, enough: float = -np.inf) -> Raised:
        """The largest c <= ``limit`` for which everybody can have ``level`` + c ``step``.

        Levels are what a program before made of them, to its tolerance; one that takes them at their word may
        find them just impossible. Then all give up a little. Below ``enough`` one c is as good as another.
        """
        for given_up in _GIVEN_UP:
            try:
                return self._program(level, step, limit, enough)
            except Unsolvable:
                self._kept *= 1 - given_up
        return self._program(level, step, limit, enough)

    def _program(self, level: Floats, step: Floats, limit: float, enough: float) -> Raised:
        unit = self._equal * self._kept
        floor, slope = unit * level, unit * step
        start = limit if np.isfinite(limit) else 0.0
        return highest(
            self._problem,
            lambda c: (floor + c * slope, slope),
            (level, step),
            start,
            limit,
            open_to=self._open,
            enough=enough,
        )

    def _held_back(self, state: _State, step: Floats, raised: Raised) -> _State:
        """After a round that ended before anybody's cap: who is stuck, and which types are closed to whom."""
        program, best = raised.program, raised.best
        tight = np.zeros(len(program.classes.size), np.bool_)
        prices = np.abs(best.duals[raised.rows]) / raised.unit * program.mean(raised.slope)[raised.asks]
        tight[raised.asks] = prices > _PRICED * prices.sum()
        if self._problem.kinds.together is None:
            uses = program.uses
            kept_out = np.abs(best.reduced[: len(uses.mine)]) > _PRICED * prices.sum() / len(tight)
            closed = np.zeros((len(tight), self._open.shape[1]), np.bool_)
            closed[uses.mine[kept_out], uses.type[kept_out]] = True
            self._open &= ~closed[program.classes.of]
            self._cap = self._caps()
        level = state.level + max(raised.t, 0.0) * step
        stuck = tight[program.classes.of] & (step > 0)
        return _State(level, np.asarray(state.rising & ~stuck))

    def _as_far_as_fits(self, state: _State, shares: Shares) -> tuple[_State, Shares]:
        """The last of the states ahead, each by one cap, whose levels can be had together.

        One that does not fit tells by its prices which others cannot; the last that they allow is tried next.
        """
        states = [state]
        good, bad, tried = 0, _AHEAD, _FIRST_AHEAD
        while good + 1 < bad and (good + 1 < len(states) or states[-1].rising.any()):
            while len(states) <= tried and states[-1].rising.any():
                states.append(self._next(states[-1]))
            tried = min(tried, len(states) - 1)
            way = states[tried].level - states[good].level
            raised = self._raise(states[good].level, way, 1.0, enough=1 - _ROUNDING)
            if raised.t >= 1 - _ROUNDING:
                good, shares = tried, raised.shares
                tried = min(4 * tried, bad - 1)
            else:
                bad = self._too_far(states[good + 1 : tried], raised) + good + 1
                tried = bad - 1
        return states[good], shares

    def _too_far(self, states: list[_State], raised: Raised) -> int:
        """How many of the states, each above the one before, the prices of a program leave possible."""
        price, most = raised.limit()
        price, most = price * self._equal * self._kept, most * (1 + _ROUNDING)
        low, high = 0, len(states)
        while low < high:
            middle = (low + high) // 2
            if float(price @ states[middle].level) <= most:
                low = middle + 1
            else:
                high = middle
        return low


def _distance(state: _State, ahead: _State, step: Floats) -> float:
    """What of ``step`` lies between two states."""
    fastest = int(np.argmax(step))
    return float(ahead.level[fastest] - state.level[fastest])
