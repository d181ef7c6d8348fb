"""What whoever runs a world holds of it, apart from the facts and commands that ``drive`` exchanges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spotctl.control.state import State
from spotctl.engines.scoring import Scoring
from spotctl.report.final import Unscored
from spotctl.worlds.world import TraceWorld


@dataclass(frozen=True, slots=True)
class BuiltWorld:
    """A world with its ends."""

    world: TraceWorld
    close: Callable[[], None]
    """The run is closed: let go of everything."""
    abandon: Callable[[], None]
    """Something is broken: take every machine away now."""
    machines_left: Callable[[], int]
    scoring: Callable[[State], Scoring | Unscored | None]
