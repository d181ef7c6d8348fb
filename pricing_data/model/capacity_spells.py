"""Records what was seen of machines and of capacity: spells that ended in a loss, or are censored.

    spell      time during which a machine ran, or during which probes of a market could have one
    lost       the provider ended it; otherwise it is censored: it was released, or the record ends there
    age        time since the spell was first seen; what was up when watching began may be older

A machine's lifetime and a market's time of availability are the same kind of row: both say for how long
capacity was kept, and whether it was taken away. Probes look from time to time: a spell that they saw end
counts as ended at the first look that no longer found it. Knows no prices and no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from pricing_data.model.market import Market, Times
from pricing_data.model.units import Instant, Seconds

Flags = npt.NDArray[np.bool_]

_OPEN_S: Final = 1800


@dataclass(frozen=True, slots=True, eq=False)
class Spells:
    """Holds spells of one market, by begin; they may overlap (several machines).

    All arrays have shape (n,).
    """

    begins: Times
    ends: Times
    lost: Flags

    @classmethod
    def from_columns(cls, begins: npt.ArrayLike, ends: npt.ArrayLike, lost: npt.ArrayLike) -> Self:
        """Takes spells in any order.

        Raises ValueError where shapes differ or a spell ends before it begins.
        """
        first, last = np.asarray(begins, np.int64), np.asarray(ends, np.int64)
        taken = np.asarray(lost, np.bool_)
        if not first.shape == last.shape == taken.shape or first.ndim != 1:
            raise ValueError(
                f"begins, ends and lost have shapes {first.shape}, {last.shape} and {taken.shape}; "
                "expected one (n,) for all"
            )
        if bool(np.any(last < first)):
            row = int(np.argmax(last < first))
            raise ValueError(f"spell {row} ends at {last[row]}, before it begins at {first[row]}")
        # Stable, so that equal begins keep their order and equal inputs give equal values.
        order = np.argsort(first, kind="stable")
        return cls(first[order], last[order], taken[order])

    def __len__(self) -> int:
        return len(self.begins)

    def as_of(self, now: Instant) -> Spells:
        """Returns what was known at ``now``: later spells are gone, running ones are cut and not lost yet."""
        # side="left": a spell that begins at ``now`` was not seen before it.
        size = int(np.searchsorted(self.begins, now, side="left"))
        begins, ends, lost = self.begins[:size], self.ends[:size], self.lost[:size]
        # A loss that is still to come must not be known: the spell is censored at ``now``.
        return Spells(begins, np.minimum(ends, now), lost & (ends <= now))

    @classmethod
    def from_probes(cls, times: npt.ArrayLike, available: npt.ArrayLike, pause_s: float) -> Self:
        """Makes spells of looks at increasing ``times`` (n,), and whether each found capacity ``available``.

        Where nobody looked for more than ``pause_s`` the spell is censored at the last look that found it.
        """
        moments, up = np.asarray(times, np.int64), np.asarray(available, np.bool_)
        if moments.shape != up.shape or moments.ndim != 1:
            raise ValueError(f"looks have shapes {moments.shape} and {up.shape}; expected one (n,) for both")
        if len(moments) > 1 and not bool(np.all(np.diff(moments) > 0)):
            raise ValueError("the times of looks must strictly increase")
        # Nobody knows what happened in a long gap, so a spell must not run across it.
        paused = np.diff(moments) > pause_s
        goes_on = up[1:] & up[:-1] & ~paused
        first = np.flatnonzero(up & ~np.append(False, goes_on)[: len(up)])
        final = np.flatnonzero(up & ~np.append(goes_on, False)[: len(up)])
        after = np.minimum(final + 1, max(len(up) - 1, 0))
        # Lost only if the next look came in time and found nothing; the last look of all ends in no loss.
        lost = ~up[after] & ~np.append(paused, True)[final]
        return cls.from_columns(moments[first], np.where(lost, moments[after], moments[final]), lost)

    def kept_s(self, now: Instant) -> Seconds:
        """Returns for how long the market's capacity has been there by ``now``.

        That is the length of a spell that is not over. A spell counts as running if a look less than half an
        hour ago found it. 0 where every spell is over, and where spells overlap: these are machines, each of
        an age of its own, and none is the market's.
        """
        # Spells that overlap belong to several machines.
        if bool(np.any(self.begins[1:] < np.maximum.accumulate(self.ends)[:-1])):
            return Seconds(0.0)
        # The record of a live market ends at its last look, a little before ``now``.
        running = ~self.lost & (self.ends >= now - _OPEN_S)
        return Seconds(float(now - self.begins[running].min()) if bool(running.any()) else 0.0)

    def with_spell(self, begin: int, end: int, lost: bool) -> Spells:
        """Adds one spell."""
        return Spells.from_columns(
            np.append(self.begins, begin), np.append(self.ends, end), np.append(self.lost, lost)
        )


_NONE = Spells(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


@dataclass(frozen=True, slots=True)
class Observations:
    """Holds the spells of many markets; an immutable value, which grows by making another one."""

    _spells: Mapping[Market, Spells] = field(default_factory=dict)

    @classmethod
    def from_spells(cls, spells: Mapping[Market, Spells]) -> Self:
        """Leaves out markets without spells."""
        return cls({market: found for market, found in spells.items() if len(found)})

    @property
    def markets(self) -> tuple[Market, ...]:
        return tuple(sorted(self._spells))

    def spells(self, market: Market) -> Spells:
        """Returns the spells of ``market``; none where nothing was seen."""
        return self._spells.get(market, _NONE)

    def as_of(self, now: Instant) -> Observations:
        """Returns what was known at ``now``."""
        return Observations.from_spells({market: found.as_of(now) for market, found in self._spells.items()})

    def with_spell(self, market: Market, begin: int, end: int, lost: bool) -> Observations:
        """Adds one spell of ``market``; raises ValueError where it ends before it begins."""
        return Observations({**self._spells, market: self.spells(market).with_spell(begin, end, lost)})

    def merge_with(self, other: Observations) -> Observations:
        """Returns what both saw. Neither knows of the other, so nothing counts as a repetition."""
        merged = dict(self._spells)
        for market, found in other._spells.items():
            mine = self.spells(market)
            merged[market] = Spells.from_columns(
                np.concatenate([mine.begins, found.begins]),
                np.concatenate([mine.ends, found.ends]),
                np.concatenate([mine.lost, found.lost]),
            )
        return Observations(merged)
