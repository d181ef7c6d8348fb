"""Chooses where the reliable machines run: on demand, or on spot where a checkpoint backs them.

    r      list price of one, dollars per hour
    G, q   of a spot machine in its place: dollars per hour while it is up, losses per second
           (``steady_state_cost.py``)
    C, V   of the largest footprint that the job would buy now, with the reliable machines on spot: dollars
           per hour, core-seconds per second
    T      seconds of work at risk: twice the mean loss, as long as losses are rare
    R      dollars for the time until machines work again: none is paid for, but it counts as the job's time
    L      dollars that a loss costs: (C / q) ((e^(qT) - 1) / qT - 1) + R

With losses at rate q, T seconds of work take (e^(qT) - 1) / q seconds (Daly, FGCS 22, 2006, equation 13,
without its restart). A loss costs half of T where losses are rare, and much more where they are as frequent
as checkpoints.

A reliable machine costs G + 3600 q L dollars an hour on spot, and r on demand. Transient machines need no
such choice: E accounts for their losses, because the reliable machines keep the model. A job without
checkpoints keeps its reliable machines on demand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.decision_batch import Codes, MarketSetup
from bidbrain.bidding.steady_state_cost import FootprintCosts, MachineRates
from bidbrain.strategies.base import NO_REQUEST
from pricing_data.model.units import HOUR_S

WORTHWHILE_SHARE: Final = 0.9
"""Spot must be expected to cost at most this share of the list price, losses included."""
MAX_FAILED_RESTARTS: Final = 5
"""After this many losses in a row without a newer checkpoint, the next reliable machines are on demand."""
_RARE: Final = 1e-6
_SURE: Final = 30.0
"""Bounds of qT. At ``_RARE`` a loss costs half of T; at ``_SURE`` the job never reaches a checkpoint."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Says how a job restarts after it lost its last reliable machine."""

    clocks: int
    """Writes a checkpoint after this many clocks; 0: by time."""
    seconds: float
    """Writes a checkpoint after this many seconds; 0: by clocks."""
    core_seconds_per_clock: float
    boot_s: float
    """Seconds from a request to a running machine."""

    def work_redone(self, speed: Floats) -> Floats:
        """Returns the core-seconds that a loss is expected to undo, at ``speed`` core-seconds per second."""
        # Half an interval, half of the clock under way, and one finished clock that no checkpoint holds yet.
        clocks = self.clocks / 2 + 1.5 if self.clocks else 1.5
        work: Floats = clocks * self.core_seconds_per_clock + speed * self.seconds / 2
        return work


@dataclass(frozen=True, slots=True, eq=False)
class TierPlacement:
    """Says where the reliable machines of n jobs would run, and their expected cost; arrays (n,)."""

    market: Codes
    """``NO_REQUEST`` means on demand."""
    bid: Floats
    """Infinite on demand."""
    per_hour: Floats
    """Dollars per machine-hour, losses included."""
    loss: Floats
    """L: dollars that one loss costs."""
    losses_per_hour: Floats
    waits: Flags
    """Whether to wait: spot would be worth it, but no market has a machine now."""


def place_tier(
    setting: MarketSetup,
    fair: tuple[Flags, Flags],
    fresh: MachineRates,
    largest: FootprintCosts,
    restart: Restart,
) -> TierPlacement:
    """Chooses the placement of least expected cost as of now; ``fresh`` (n, m), ``largest`` (n,).

    ``fair``, (n, m) each: which markets at or below their list price are open, and which refused just now.
    """
    offered, closed = fair
    reliable, losses = setting.reliable, HOUR_S * fresh.losses
    loss = _cost_of_loss(setting, fresh, largest, restart)
    # They are one allocation and are lost together, so each bears its part of L.
    every = fresh.paid + losses * loss / reliable.count
    worth = WORTHWHILE_SHARE * reliable.price
    per_hour = np.where(offered, every, np.inf)
    best, rows = per_hour.argmin(axis=1), np.arange(len(per_hour))
    least = per_hour[rows, best]
    spot = least < worth
    # Waiting costs nothing while no machine runs, so a market that will open again is worth it.
    refusing = np.where(closed, every, np.inf).min(axis=1) < worth
    return TierPlacement(
        market=np.where(spot, best, NO_REQUEST),
        bid=np.where(spot, setting.on_demand[best], np.inf),
        per_hour=np.where(spot, least, reliable.price),
        loss=np.where(spot, loss[rows, best], 0.0),
        losses_per_hour=np.where(spot, losses[rows, best], 0.0),
        waits=~spot & refusing,
    )


def _cost_of_loss(
    setting: MarketSetup, fresh: MachineRates, largest: FootprintCosts, restart: Restart
) -> Floats:
    """Returns L in dollars, (n, m)."""
    reliable = setting.reliable
    listed = reliable.count * reliable.price
    others = (largest.per_hour - listed)[:, None]
    speed = np.maximum(largest.speed, reliable.cores)
    # Half an interval is lost on average, so the time at risk is twice the work redone.
    kept_h = (2.0 * restart.work_redone(speed) / speed)[:, None] / HOUR_S
    # The clip avoids 0 / 0 for rare losses and an overflow of expm1 for constant ones.
    chance = np.clip(HOUR_S * fresh.losses * kept_h, _RARE, _SURE)
    again_h = kept_h * (np.expm1(chance) / chance - 1.0) / chance
    loss: Floats = (others + reliable.count * fresh.paid) * again_h
    loss += listed * 2.0 * (restart.boot_s + setting.scaling.sigma_s) / HOUR_S
    return loss
