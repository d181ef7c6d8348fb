"""What a job among others may hold: workers that a round gave it (Narayanan 5.5, 5.6).

A lease says how many spot machines of which markets a job may hold, and until when nobody asks for them back.
Whether buying them now pays, and in which of the markets, is still decided as ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from pricing_data.model.market import Market
from pricing_data.model.units import Instant


@dataclass(frozen=True, slots=True)
class Lease:
    """``count`` machines in all, of any of ``markets``. Before ``until`` it is not taken back."""

    markets: tuple[Market, ...]
    count: int
    until: Instant

    def __post_init__(self) -> None:
        if self.count < 1 or not self.markets:
            raise ValueError("a lease is of one machine or more, in a market or more; no lease is None")
