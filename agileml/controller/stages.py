"""Defines which roles run where in each stage, and when the stage changes (Harlap 4.2.2).

The stage depends on the number of transient machines for each reliable one. With automatic stages (the
paper's future work, 6.2.2) it depends on the measured cost of a clock. This module knows no machine by name,
no partition and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from agileml.node.tier import Tier
from agileml.protocol.events import Setup, Stage


class StageLayout(Struct, frozen=True):
    """Places the parts of one stage on tiers."""

    served_on: Tier
    """Where workers read and write the model."""
    backed_up: bool
    """Whether reliable machines follow as BackupPSs."""
    computing: frozenset[Tier]
    """Where workers own input. Elsewhere they idle with their input loaded."""


PLACEMENTS: Final = {
    Stage.ONE: StageLayout(Tier.RELIABLE, False, frozenset({Tier.RELIABLE, Tier.TRANSIENT})),
    Stage.TWO: StageLayout(Tier.TRANSIENT, True, frozenset({Tier.RELIABLE, Tier.TRANSIENT})),
    Stage.THREE: StageLayout(Tier.TRANSIENT, True, frozenset({Tier.TRANSIENT})),
}


def choose_stage(current: Stage, transient: int, reliable: int, setup: Setup) -> Stage:
    """Returns the stage for a ratio of ``transient`` to ``reliable`` machines, coming from ``current``.

    The stage goes up as soon as the ratio exceeds a threshold. It goes down only when the ratio is at most
    ``threshold * (1 - hysteresis)``, so that a footprint at the border does not flap.

    >>> setup = Setup(partitions=1, shards=1, clocks=1, hysteresis=0.5)
    >>> choose_stage(Stage.ONE, 2, 1, setup), choose_stage(Stage.TWO, 1, 1, setup)
    (<Stage.TWO: '2'>, <Stage.TWO: '2'>)
    """
    if transient == 0 or reliable == 0:
        return Stage.ONE
    ratio = transient / reliable
    if _exceeds_threshold(ratio, setup.stage3_above, setup.hysteresis, held=current is Stage.THREE):
        return Stage.THREE
    if _exceeds_threshold(ratio, setup.stage2_above, setup.hysteresis, held=current is not Stage.ONE):
        return Stage.TWO
    return Stage.ONE


def _exceeds_threshold(ratio: float, threshold: float, hysteresis: float, *, held: bool) -> bool:
    return ratio > (threshold * (1 - hysteresis) if held else threshold)


# ---- by measured cost --------------------------------------------------------------------------

WORTH_A_CHANGE: Final = 0.95
"""A stage must promise clocks this much shorter than the present one's, so that noise causes no changes."""


class ClockCost(Struct, frozen=True):
    """The cost of a clock, whichever machines compute it. Link seconds are bytes over a link's capacity."""

    computing_s: float
    """Core-seconds of all workers together."""
    exchanged_s: float
    """Seconds of one link for all that workers read and write."""
    pushed_s: float
    """Seconds of one link for all that backups receive; 0 before anything was pushed."""
    straggling: float
    """How far a worker beside a backup falls behind, as a share of the time that pushes take."""


class Footprint(Struct, frozen=True):
    """Machines that take part, and their cores. ``actives``: machines that run an ActivePS."""

    reliable: int
    transient: int
    actives: int
    reliable_cores: int
    transient_cores: int

    @property
    def is_complete(self) -> bool:
        """Whether every stage could run on it."""
        return min(self.reliable, self.actives, self.reliable_cores, self.transient_cores) > 0


def clock_seconds(stage: Stage, load: ClockCost, on: Footprint) -> float:
    """Returns the length of a clock in seconds: computing, plus the traffic of the busiest links."""
    computing_s = load.computing_s / (on.reliable_cores + on.transient_cores)
    # The floor in stages 2 and 3: workers wait once the backups lag by a few clocks.
    pushing_s = load.pushed_s / on.reliable
    match stage:
        case Stage.ONE:
            return computing_s + load.exchanged_s / on.reliable
        case Stage.TWO:
            # A worker beside a backup falls behind while its machine receives pushes, and all wait for it.
            straggling_s = load.straggling * pushing_s
            return max(computing_s + load.exchanged_s / on.actives + straggling_s, pushing_s)
        case Stage.THREE:
            computing_s = load.computing_s / on.transient_cores
            return max(computing_s + load.exchanged_s / on.actives, pushing_s)


def cheapest_stage(current: Stage, load: ClockCost, on: Footprint, strayed: Mapping[Stage, float]) -> Stage:
    """Returns the stage with the shortest clocks, if they are short enough to be ``WORTH_A_CHANGE``.

    ``strayed``: for each stage, how many times longer its clocks were than predicted when it was last in
    place.

    >>> load = ClockCost(computing_s=64.0, exchanged_s=32.0, pushed_s=0.0, straggling=0.0)
    >>> cheapest_stage(Stage.ONE, load, Footprint(4, 60, 30, 4, 60), {})
    <Stage.TWO: '2'>
    >>> cheapest_stage(Stage.ONE, load, Footprint(32, 32, 16, 32, 32), {})
    <Stage.ONE: '1'>
    """
    promised = {stage: strayed.get(stage, 1.0) * clock_seconds(stage, load, on) for stage in Stage}
    best = min(Stage, key=promised.__getitem__)
    return best if promised[best] < WORTH_A_CHANGE * promised[current] else current
