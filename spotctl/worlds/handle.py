"""Defines what the owner of a world holds besides the facts and commands that ``drive`` exchanges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spotctl.control.state import State
from spotctl.engines.scoring import Scoring
from spotctl.report.final import Unscored
from spotctl.worlds.world import TraceWorld


@dataclass(frozen=True, slots=True)
class WorldHandle:
    """Holds a world and the ways to end it."""

    world: TraceWorld
    close: Callable[[], None]
    """Lets go of everything, once the run is closed."""
    abandon: Callable[[], None]
    """Takes every machine away now, because something is broken."""
    machines_left: Callable[[], int]
    scoring: Callable[[State], Scoring | Unscored | None]
