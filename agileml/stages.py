"""Which roles run where, and when that changes (Harlap 4.2.2).

The stage depends on how many transient machines there are for each reliable one, and on nothing
else: this module knows no machine by name, no partition and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agileml.events import Setup, Stage, Tier


@dataclass(frozen=True, slots=True)
class Placement:
    """What one stage runs on which tier."""

    served_on: Tier
    """Where workers read and write the model."""
    backed_up: bool
    """Whether reliable machines follow as BackupPSs."""
    computing: frozenset[Tier]
    """Where workers own input; elsewhere they idle with their input loaded."""


PLACEMENTS: Final = {
    Stage.ONE: Placement(Tier.RELIABLE, False, frozenset({Tier.RELIABLE, Tier.TRANSIENT})),
    Stage.TWO: Placement(Tier.TRANSIENT, True, frozenset({Tier.RELIABLE, Tier.TRANSIENT})),
    Stage.THREE: Placement(Tier.TRANSIENT, True, frozenset({Tier.TRANSIENT})),
}


def choose_stage(current: Stage, transient: int, reliable: int, setup: Setup) -> Stage:
    """The stage for a ratio of ``transient`` to ``reliable`` machines, coming from ``current``.

    A threshold is passed upwards as soon as the ratio exceeds it, and downwards only when the ratio is
    at most ``threshold * (1 - hysteresis)``: a footprint at the border does not flap.

    >>> setup = Setup(partitions=1, shards=1, clocks=1, hysteresis=0.5)
    >>> choose_stage(Stage.ONE, 2, 1, setup), choose_stage(Stage.TWO, 1, 1, setup)
    (<Stage.TWO: '2'>, <Stage.TWO: '2'>)
    """
    if transient == 0 or reliable == 0:
        return Stage.ONE
    ratio = transient / reliable
    if _exceeds(ratio, setup.stage3_above, setup.hysteresis, held=current is Stage.THREE):
        return Stage.THREE
    if _exceeds(ratio, setup.stage2_above, setup.hysteresis, held=current is not Stage.ONE):
        return Stage.TWO
    return Stage.ONE


def _exceeds(ratio: float, threshold: float, hysteresis: float, *, held: bool) -> bool:
    return ratio > (threshold * (1 - hysteresis) if held else threshold)
