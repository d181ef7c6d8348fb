"""Describes how engines differ, for code that must not know any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """Describes an engine to the core, reports and views; ``spotctl.engines`` has the engines themselves.

    ``gang_size``: how many machines work on the job at once; None: as many as it may hold.
    """

    kind: str
    """Its name in job files and reports."""
    unit: str
    """Progress is counted in these: "clock", "step"."""
    artifact: str
    """A run leaves one of these behind: "model", "checkpoint"."""
    gang_size: int | None = None
    relies_on_checkpoints: bool = False
    """An evicted machine's work survives in checkpoints alone; otherwise reliable machines keep it."""
    has_trial: bool = False
    """A short trial can measure how much work a unit is."""


ELASTIC_TRAINING: Final = EngineTraits("agileml", "clock", "model", has_trial=True)
CHECKPOINTING_PROGRAM: Final = EngineTraits(
    "command", "step", "checkpoint", gang_size=1, relies_on_checkpoints=True
)
