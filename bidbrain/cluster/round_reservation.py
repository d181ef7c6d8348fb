"""Sets whole rounds on whole workers aside for a job, as late as its deadline allows.

    t        a round, counted from time 0; R, s: seconds of one, and what a restart costs of it
    j[t]     type that the job has workers of in round t, -1: none
    r[j]     its steps per second there
    sure[t]  steps that the job does from round t on if it had nothing before:
             sum_{u >= t} r[j[u]] (R - s [j[u] != j[u - 1]]), less s r[j[t]] if j[t] = j[t - 1]

What a job does besides shortens its reservation from the front. As long as left <= sure[t + 1] it may go
without round t; where left is more, it has to run on j[t] now. It then has, before t + 1,

    left - r[j[t]] (R - s) <= sure[t] - r[j[t]] (R - s) = sum_{u > t} r[j[u]] (R - s [j[u] != j[u - 1]])

to do, and no restart to pay for if it stays. So a job that runs whenever it has to is in time, whatever else
happens. Jobs that have to run at once always fit, because their reservations do.

Knows no jobs, policies or shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Floats, Indices

_EXACT: Final = 1e-9
"""Part of a job's steps that rounding may add."""


@dataclass(frozen=True, slots=True)
class RoundClock:
    """Counts rounds of ``length_s`` seconds each, of which a restart costs ``switch_s``."""

    length_s: float
    switch_s: float

    def round_at(self, time_s: float) -> int:
        """Returns the round that begins at this time."""
        return round(time_s / self.length_s)

    def rounds_before(self, time_s: float) -> int:
        """Returns how many rounds have ended by then."""
        return int(time_s // self.length_s)


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """Holds ``scale`` workers of types ``place`` (t,) from round ``first`` on; ``sure`` (t + 1,) in steps."""

    first: int
    scale: int
    place: Indices
    sure: Floats

    def required_type(self, number: int, left: float) -> int:
        """Returns the type on which the job has to run in this round, given its steps left.

        -1 means that it may wait.
        """
        here = number - self.first
        if not 0 <= here < len(self.place) or left <= self.sure[here + 1]:
            return -1
        return int(self.place[here])

    def take_from(self, free: Indices, number: int, left: float) -> None:
        """Subtracts from ``free`` (t, k), workers from round ``number`` on, what is still needed."""
        # ``sure`` falls with the rounds; negated it increases, as searchsorted needs.
        needed = int(np.searchsorted(-self.sure, -left, side="right")) - 1
        begins = max(needed, number - self.first, 0)
        # Both arrays end at their own deadlines, so only the common rounds are taken.
        rounds = np.arange(self.first + begins, min(self.first + len(self.place), number + len(free)))
        place = self.place[rounds - self.first]
        free[rounds[place >= 0] - number, place[place >= 0]] -= self.scale


def reserve_rounds(
    free: Indices, number: int, steps: float, rates: Floats, scale: int, rounds: RoundClock
) -> Reservation | None:
    """Returns the latest rounds that do ``steps``, each on the fastest type with room.

    Returns None if there are too few. ``free`` (t, k): workers in each round from ``number`` until the
    deadline. ``rates`` (k,).
    """
    speed = np.where(free >= scale, rates, 0.0)
    rate = speed.max(axis=1)
    place = np.where(rate > 0, speed.argmax(axis=1), -1)
    # A round on the same type as the one before needs no restart.
    stays = np.append(False, place[1:] == place[:-1])[: len(place)]
    lost = min(rounds.switch_s, rounds.length_s) * rate
    done = rate * rounds.length_s - np.where(stays, 0.0, lost)
    sure = np.append(done[::-1].cumsum()[::-1] - np.where(stays, lost, 0.0), 0.0)
    enough = np.flatnonzero(sure >= steps * (1 + _EXACT))
    if not len(enough):
        return None
    # The latest start that still does all steps: earlier rounds stay free for others.
    begins = int(enough[-1])
    return Reservation(number + begins, scale, place[begins:], sure[begins:])
