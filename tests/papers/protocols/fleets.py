"""Where the machines of many jobs are, one fleet each, and until when their hour is paid.

place   a class (0 small, 1 large), on demand (2), or nowhere (-1)
level   of the bid, in the class's list of bids
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tests.papers.protocols.market_classes import Flags, Floats

Ints: TypeAlias = npt.NDArray[np.int64]

ON_DEMAND: Final = 2
NOWHERE: Final = -1
HOUR: Final = 60
"""Minutes, like all times here."""
NEVER: Final = np.int64(2**62)


@dataclass(slots=True)
class Fleets:
    """One fleet per job, or none."""

    place: Ints
    level: Ints
    hour_ends: Ints
    price: Floats
    """Dollars for the hour."""

    @classmethod
    def without_machines(cls, size: int) -> Fleets:
        return cls(no_markets(size), np.zeros(size, np.int64), never_times(size), np.zeros(size))

    @property
    def is_spot(self) -> Flags:
        spot: Flags = (self.place == 0) | (self.place == 1)
        return spot

    def cost_of_hour(self, at: Floats, which: Flags) -> Floats:
        """Dollars for the part of the hour before ``at``; nothing where there are no machines."""
        there = self.place[which] != NOWHERE
        opened = np.where(there, self.hour_ends[which] - HOUR, 0)
        return np.where(there, self.price[which] * (at - opened) / HOUR, 0.0)

    def move_in(self, which: Flags, place: Ints, level: Ints) -> None:
        self.place, self.level = np.where(which, place, self.place), np.where(which, level, self.level)

    def open_hour(self, which: Flags, at: Ints, price: Floats) -> None:
        self.hour_ends = np.where(which, at + HOUR, self.hour_ends)
        self.price = np.where(which, price, self.price)

    def take(self, which: Flags, others: Fleets) -> None:
        self.move_in(which, others.place, others.level)
        self.hour_ends = np.where(which, others.hour_ends, self.hour_ends)
        self.price = np.where(which, others.price, self.price)

    def clear_rows(self, which: Flags) -> None:
        self.place = np.where(which, NOWHERE, self.place)
        self.hour_ends = np.where(which, NEVER, self.hour_ends)

    def select(self, stay: Flags) -> Fleets:
        return Fleets(self.place[stay], self.level[stay], self.hour_ends[stay], self.price[stay])


def never_times(size: int) -> Ints:
    return np.full(size, NEVER)


def no_markets(size: int) -> Ints:
    return np.full(size, NOWHERE)
