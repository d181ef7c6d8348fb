"""Where the reliable machines run: on demand, or on spot where a checkpoint stands behind them.

    r      list price of one, dollars per hour
    G, q   of a spot machine in its place: dollars per hour while it is up, losses per second
           (``steady_state_cost.py``)
    C, V   of the largest footprint that the job would have now, the reliable machines on spot: dollars per
           hour, core-seconds per second
    T      seconds of work that can be lost: twice what a loss costs on the mean, as long as losses are rare
    R      dollars that a loss costs beside work: the time until machines work again, in which there are none
           to pay for but which counts as the job's time
    L      dollars that a loss costs: (C / q) ((e^(qT) - 1) / qT - 1) + R

Work that is lost with probability q a second takes (e^(qT) - 1) / q until T seconds of it are kept (Daly,
FGCS 22, 2006, equation 13, without its restart): half of T is lost with each loss where losses are rare,
and much more where they are as frequent as checkpoints.

On spot they cost G + 3600 q L an hour, on demand r. The transient machines need no such choice: what they
lose is in E, as the reliable ones keep the model. Refuses to choose for a job that keeps no checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.decision_batch import Codes, Setting
from bidbrain.bidding.steady_state_cost import Costs, Rates
from bidbrain.strategies.base import NOTHING
from pricing_data.model.units import HOUR_S

WORTH: Final = 0.9
"""Spot must be expected to cost this share of the list price at most, losses included."""
MOST_TAKEN: Final = 5
"""After so many losses in a row that reached no newer checkpoint the next reliable machines are on demand."""
_RARE: Final = 1e-6
_SURE: Final = 30.0
"""Bounds of qT: what is below loses half of T, and what is above never comes as far as a checkpoint."""


@dataclass(frozen=True, slots=True)
class Restart:
    """How a job begins again that lost its last reliable machine."""

    clocks: int
    """A checkpoint is written after so many; 0: by time."""
    seconds: float
    """A checkpoint is written after so long; 0: by clocks."""
    core_seconds_per_clock: float
    boot_s: float
    """From a request to a running machine."""

    def redone(self, speed: Floats) -> Floats:
        """Core-seconds expected to be done twice at ``speed``: half an interval, and a clock at risk."""
        clocks = self.clocks / 2 + 1.5 if self.clocks else 1.5
        work: Floats = clocks * self.core_seconds_per_clock + speed * self.seconds / 2
        return work


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where the reliable machines of n jobs would run, and what that is expected to cost; arrays (n,)."""

    market: Codes
    """``NOTHING``: on demand."""
    bid: Floats
    """Infinite on demand."""
    per_hour: Floats
    """Dollars per machine-hour, losses included."""
    loss: Floats
    """L: dollars that one loss costs."""
    losses_per_hour: Floats
    waits: Flags
    """Where spot would be worth it and no market has a machine now: waiting costs nothing."""


def place_tier(
    setting: Setting, fair: tuple[Flags, Flags], fresh: Rates, largest: Costs, restart: Restart
) -> Placement:
    """The least expected cost as of now; ``fresh`` (n, m), ``largest`` (n,).

    ``fair``: markets no dearer than on demand, (n, m), that are open, and that refused a moment ago.
    """
    offered, closed = fair
    reliable, losses = setting.reliable, HOUR_S * fresh.losses
    loss = _loss(setting, fresh, largest, restart)
    every = fresh.paid + losses * loss / reliable.count
    worth = WORTH * reliable.price
    per_hour = np.where(offered, every, np.inf)
    best, rows = per_hour.argmin(axis=1), np.arange(len(per_hour))
    least = per_hour[rows, best]
    spot = least < worth
    refusing = np.where(closed, every, np.inf).min(axis=1) < worth
    return Placement(
        market=np.where(spot, best, NOTHING),
        bid=np.where(spot, setting.on_demand[best], np.inf),
        per_hour=np.where(spot, least, reliable.price),
        loss=np.where(spot, loss[rows, best], 0.0),
        losses_per_hour=np.where(spot, losses[rows, best], 0.0),
        waits=~spot & refusing,
    )


def _loss(setting: Setting, fresh: Rates, largest: Costs, restart: Restart) -> Floats:
    """L: (n, m)."""
    reliable = setting.reliable
    listed = reliable.count * reliable.price
    others = (largest.per_hour - listed)[:, None]
    speed = np.maximum(largest.speed, reliable.cores)
    kept_h = (2.0 * restart.redone(speed) / speed)[:, None] / HOUR_S
    chance = np.clip(HOUR_S * fresh.losses * kept_h, _RARE, _SURE)
    again_h = kept_h * (np.expm1(chance) / chance - 1.0) / chance
    loss: Floats = (others + reliable.count * fresh.paid) * again_h
    loss += listed * 2.0 * (restart.boot_s + setting.scaling.sigma_s) / HOUR_S
    return loss
