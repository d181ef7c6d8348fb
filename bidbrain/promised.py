"""Deadlines promised to jobs that run in rounds: to whom, what is kept in reserve, and who may not wait.

    left[m]    seconds until the deadline
    least[m]   seconds that all steps left take on the fastest type that may be had
    spare[m]   left - least: how long the job may still stand idle

A newcomer's deadline is promised if it can be kept beside all that is promised; who comes when there is no
room has none.

Shares are speeds, and rounds only keep to them by and by: who gives way begins again with a restart, and a
round that was missed is made up for later. So speeds are asked for as if deadlines were earlier, by two
rounds and by what a restart in every round would lose. A newcomer has to be worth all of that. Later the
reserve is there to be used: nobody asks for more than its fastest type while that is in time, and where
promises cannot be kept together with all reserves, these shrink before any promise does. Who has less than
two rounds to spare comes before all others, on its fastest type.

Shares of jobs of one worker can always be cut into rounds (Lawler and Labetoulle, J. ACM 25, 1978). Those of
larger ones cannot: two jobs of two workers each cannot have three quarters of three. A larger one is promised
its deadline only if workers of its fastest type can be set aside from the last moment on at which it has to
run without a break. Whatever it does before that shortens this stay, so one that has been set aside stays
possible. What all of them hold at once at most is not there for the promises to the others: a type of which
nothing else is left may not be had.

Refuses to know policies and clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from bidbrain.policies.problem import Flags, Floats, Indices

_ROUNDS_KEPT: Final = 2
_PARTS: Final = (1.0, 0.5, 0.0)
"""Of their reserves, what is asked for one after the other until promises can be kept together."""
_EXACT: Final = 1e-9

Ask: TypeAlias = Callable[[Floats, Floats], frozenset[int]]
"""The policy, asked to keep deadlines in seconds from now, (jobs there,), without some workers of each type,
(k,): whose speed falls short.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """Of the jobs of a trace: ``due_s`` (n,), infinite without a deadline; ``scale`` (n,), in workers;
    ``rates`` (n, k), steps per second on each type, 0 where it cannot run.
    """

    due_s: Floats
    scale: Indices
    rates: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """Which ``jobs`` of the trace are there at ``now``, and the ``steps`` that they have left."""

    now: float
    jobs: Indices
    steps: Floats


class Promises:
    """What was promised by now. ``workers`` (k,).

    ``round_s`` 0: time is cut as finely as shares are, no reserve is needed and nothing is set aside.
    """

    def __init__(self, pace: Pace, workers: Floats, round_s: float, switch_s: float) -> None:
        self._pace, self._workers, self._round_s, self._switch_s = pace, workers, round_s, switch_s
        self._limit_s = _ROUNDS_KEPT * round_s + switch_s
        self._large = (pace.scale > 1) & (round_s > 0)
        self._type = pace.rates.argmax(axis=1)
        self.given = np.zeros(len(pace.due_s), np.bool_)
        """Whose deadlines were promised."""

    def settle(self, moment: Moment, newcomers: Indices, ask: Ask) -> None:
        """Promise newcomers what there is room for; the last time that the policy is asked is for shares."""
        new = newcomers[np.isfinite(self._pace.due_s[newcomers])]
        self.given[new] = True
        if len(new) and self._missed(moment, new, ask):
            self.given[new] = False
            before = self._missed(moment, new, ask)
            for job in new:
                self.given[job] = True
                self.given[job] = self._missed(moment, new, ask) <= before
        nothing = np.zeros(len(self._workers))
        for part in _PARTS:
            asks = self._asks(moment)
            if not part:
                asks &= ~self._large[moment.jobs] | self.pressed(moment).any(axis=1)
            short = ask(self._early_s(moment, asks, part), nothing)
            if not self._promised(short):
                break

    def pressed(self, moment: Moment) -> Flags:
        """Who of those there may not wait another round and still can be in time, and on which types."""
        asks, rates = self._asks(moment), self._pace.rates[moment.jobs]
        where = np.zeros(rates.shape, np.bool_)
        if not asks.any() or not self._round_s:
            return where
        spare, speed = self._spare_s(moment)
        hurry = asks & (spare >= 0) & (spare < self._limit_s)
        where[hurry] = rates[hurry] >= speed[hurry, None]
        return where

    def _missed(self, moment: Moment, new: Indices, ask: Ask) -> frozenset[int]:
        """Whose promises could not be kept for sure, were all of ``given`` so."""
        asks, large = self._asks(moment), self._large[moment.jobs]
        aside = asks & large
        held = self._held(moment)
        crowded = (held > self._workers)[self._type[moment.jobs]]
        newcomer = np.isin(moment.jobs, new)
        hurried = newcomer & (self._spare_s(moment)[0] < self._whole_s(moment))
        missed = frozenset(moment.jobs[aside & (crowded | hurried)].tolist())
        early = self._early_s(moment, asks & ~large, 1.0, newcomer)
        return missed | self._promised(ask(early, np.minimum(held, self._workers)))

    def _promised(self, jobs: frozenset[int]) -> frozenset[int]:
        return frozenset(job for job in jobs if self.given[job])

    def _asks(self, moment: Moment) -> Flags:
        """Who of those there was promised a deadline that has not passed."""
        return np.asarray(self.given[moment.jobs] & (self._pace.due_s[moment.jobs] > moment.now))

    def _spare_s(self, moment: Moment) -> tuple[Floats, Floats]:
        """How long each of those there may still stand idle, and the speed that this counts on."""
        rates = self._pace.rates[moment.jobs]
        speed = rates.max(axis=1)
        held = self._held(moment)
        if held.any():
            rest = np.where(self._workers - held >= 1, rates, 0.0).max(axis=1)
            speed = np.where(self._large[moment.jobs], speed, rest)
        return self._idle_s(moment, speed), speed

    def _idle_s(self, moment: Moment, speed: Floats) -> Floats:
        least = np.divide(moment.steps, speed, out=np.full(len(speed), np.inf), where=speed > 0)
        left = self._pace.due_s[moment.jobs] - moment.now
        return np.asarray(np.where(speed > 0, left, -np.inf) - np.where(speed > 0, least, 0.0) * (1 + _EXACT))

    def _whole_s(self, moment: Moment) -> Floats:
        """What is kept in reserve, if there is as much."""
        if not self._round_s:
            return np.zeros(len(moment.jobs))
        left = self._pace.due_s[moment.jobs] - moment.now
        switches = np.where(np.isfinite(left), left, 0.0) / self._round_s
        return np.asarray(_ROUNDS_KEPT * self._round_s + switches * self._switch_s)

    def _early_s(self, moment: Moment, asks: Flags, part: float, newcomer: Flags | None = None) -> Floats:
        """By when to ask for their work to be done; infinite for who does not ask."""
        early = np.full(len(asks), np.inf)
        left = (self._pace.due_s[moment.jobs] - moment.now)[asks]
        whole = self._whole_s(moment)[asks]
        kept = part * np.clip(self._spare_s(moment)[0][asks], 0.0, whole)
        if newcomer is not None:
            kept = np.where(newcomer[asks], whole, kept)
        early[asks] = np.maximum(left - kept, 0.0)
        return early

    def _held(self, moment: Moment) -> Floats:
        """The most workers of each type, (k,), that the stays of large jobs need at once."""
        held, aside = np.zeros(len(self._workers)), self._asks(moment) & self._large[moment.jobs]
        if not aside.any():
            return held
        jobs = moment.jobs[aside]
        ends = self._pace.due_s[jobs] - moment.now
        idle = self._idle_s(Moment(moment.now, jobs, moment.steps[aside]), self._pace.rates[jobs].max(axis=1))
        begins = np.clip(idle - self._limit_s, 0.0, ends)
        scale, place = self._pace.scale[jobs], self._type[jobs]
        for type_ in np.unique(place):
            mine = place == type_
            # Where one stay ends as another begins, both hold their workers.
            order = np.lexsort((np.repeat([0, 1], mine.sum()), np.append(begins[mine], ends[mine])))
            held[type_] = np.cumsum(np.append(scale[mine], -scale[mine])[order]).max()
        return held
