"""Compares a market's recent losses with what was expected of it, with a fading memory.

    O(t)    losses of the market before t, each weighing exp(-(t - then) / tau)
    E(t)    losses that a hazard by age expects of the same machines, weighing alike
    tau     the memory
    f(t)    (a + O) / (a + E): the posterior mean of the market's factor on that hazard, of prior mean 1 and
            shape a (gamma-Poisson); 1 where nothing is known, and more certain the larger E

Only what ended before t, or was running then, counts at t. Knows no other markets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.eviction.capacity.exposure import ExposureRows


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    """Holds sums over the rows that some instant lies in: of rates, and of rates times begins."""

    moments: Floats
    rates: Floats
    offsets: Floats

    @classmethod
    def from_rows(cls, moments: Floats, rates: Floats, begins: Floats) -> Self:
        order = np.argsort(moments, kind="stable")
        zero = np.zeros(1)
        return cls(
            moments[order],
            np.concatenate([zero, np.cumsum(rates[order])]),
            np.concatenate([zero, np.cumsum((rates * begins)[order])]),
        )

    def sums_before(self, moments: Floats) -> tuple[Floats, Floats]:
        place = np.searchsorted(self.moments, moments, side="right")
        return self.rates[place], self.offsets[place]


@dataclass(frozen=True, slots=True, eq=False)
class LossRecord:
    """Answers with O and E of one market's rows, at any instants."""

    memory_s: float
    origin: float
    ends: Floats
    losses: Floats
    expected: Floats
    """Running sums over the rows by end, with a leading 0, faded to the last end."""
    begun: _Running
    ended: _Running

    @classmethod
    def from_rows(cls, rows: ExposureRows, rates: Floats, memory_s: float) -> Self:
        """Sums up rows. ``rates``: the hazard expected in each row, per second."""
        # Times relative to the last end: exp(instant / memory) would overflow.
        origin = float(rows.ends.max()) if len(rows.ends) else 0.0
        ends, begins = rows.ends - origin, rows.begins - origin
        order = np.argsort(ends, kind="stable")
        faded = np.exp(ends[order] / memory_s)
        zero = np.zeros(1)
        return cls(
            memory_s,
            origin,
            ends[order],
            np.concatenate([zero, np.cumsum(faded * rows.lost[order])]),
            np.concatenate([zero, np.cumsum(faded * (rates * rows.at_risk_s)[order])]),
            _Running.from_rows(begins, rates, begins),
            _Running.from_rows(ends, rates, begins),
        )

    def factor_at(self, moments: Floats, prior: float) -> Floats:
        """Returns f at ``moments``, shape (m,); ``prior`` is a."""
        lost, expected = self._losses_at(moments - self.origin)
        return np.asarray((prior + lost) / (prior + expected))

    def _losses_at(self, at: Floats) -> tuple[Floats, Floats]:
        """Returns O and E. A row that is not over yet has been at risk since its begin, without fading."""
        place = np.searchsorted(self.ends, at, side="right")
        fading = np.exp(-at / self.memory_s)
        begun, begun_offsets = self.begun.sums_before(at)
        ended, ended_offsets = self.ended.sums_before(at)
        # Sum of rate (t - begin) over the rows that contain t, as the difference of two running sums.
        running = at * (begun - ended) - (begun_offsets - ended_offsets)
        return fading * self.losses[place], fading * self.expected[place] + np.maximum(running, 0.0)
