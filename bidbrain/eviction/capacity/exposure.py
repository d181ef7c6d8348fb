"""Cuts spells into cells of age: how long capacity was at risk, at which age, and whether it was lost.

    row        one spell's stay in one cell of age
    at risk    seconds of that stay
    lost       whether it ended in the row by a loss

The rows are what a hazard regression counts: losses against seconds at risk. Knows no prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.units import HOUR_S

AGE_EDGES_S: Final[Floats] = np.concatenate(
    [[0, 60, 120, 300, 600, 900, 1200], np.arange(0.5, 12, 0.5) * HOUR_S, np.arange(12, 337, 3) * HOUR_S]
).astype(np.float64)
"""Cells are fine where hazards change fast.

Minutes at first, half hours to half a day, three hours to two weeks.
"""


@dataclass(frozen=True, slots=True, eq=False)
class ExposureRows:
    """Holds one row for each spell and cell of age; arrays have shape (n,)."""

    market: Indices
    """Position of the row's market in ``observations.markets``."""
    cell: Indices
    begins: Floats
    """Instants."""
    ends: Floats
    lost: Flags

    @property
    def at_risk_s(self) -> Floats:
        return self.ends - self.begins

    def select(self, which: Flags) -> ExposureRows:
        """Returns the rows that ``which`` (n,) marks."""
        return ExposureRows(
            self.market[which], self.cell[which], self.begins[which], self.ends[which], self.lost[which]
        )


def exposure_rows(observations: Observations, edges_s: Floats = AGE_EDGES_S) -> ExposureRows:
    """Returns the rows of all markets, in the order of ``observations.markets``."""
    parts = [
        _cut_spells(code, observations.spells(m), edges_s) for code, m in enumerate(observations.markets)
    ]
    if not parts:
        none = np.empty(0)
        return ExposureRows(none.astype(np.int64), none.astype(np.int64), none, none, none.astype(np.bool_))
    return ExposureRows(
        np.concatenate([part.market for part in parts]),
        np.concatenate([part.cell for part in parts]),
        np.concatenate([part.begins for part in parts]),
        np.concatenate([part.ends for part in parts]),
        np.concatenate([part.lost for part in parts]),
    )


def _cut_spells(code: int, spells: Spells, edges_s: Floats) -> ExposureRows:
    """Cuts the spells of one market.

    A spell of length zero stays in one row of no time; it may still be lost there.
    """
    lengths = (spells.ends - spells.begins).astype(np.float64)
    # side="left": a spell that ends exactly at an edge does not reach the cell behind it.
    last = np.maximum(np.searchsorted(edges_s, lengths, side="left") - 1, 0)
    spell = np.repeat(np.arange(len(spells)), last + 1)
    cell = np.arange(len(spell)) - np.repeat(np.cumsum(last + 1) - (last + 1), last + 1)
    origin = spells.begins[spell].astype(np.float64)
    is_last = cell == last[spell]
    # Only the last row of a spell ends with the spell; all others end at their cell's border.
    ends = np.where(is_last, lengths[spell], np.append(edges_s, np.inf)[cell + 1])
    return ExposureRows(
        np.full(len(spell), code, np.int64),
        cell.astype(np.int64),
        origin + edges_s[cell],
        origin + ends,
        is_last & spells.lost[spell],
    )
