"""Defines what a job among others may hold: workers that a round granted it (Narayanan 5.5, 5.6).

A lease says how many spot machines of which markets a job may hold, and until when they are not taken back.
The job's own strategy still decides whether buying them now pays, and in which of the markets.
"""

from __future__ import annotations

from dataclasses import dataclass

from pricing_data.model.market import Market
from pricing_data.model.units import Instant


@dataclass(frozen=True, slots=True)
class Lease:
    """Grants ``count`` machines in all, of any of ``markets``. Before ``until`` it is not taken back."""

    markets: tuple[Market, ...]
    count: int
    until: Instant

    def __post_init__(self) -> None:
        if self.count < 1 or not self.markets:
            raise ValueError("a lease is of one machine or more, in a market or more; no lease is None")
