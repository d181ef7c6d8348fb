"""Describes how engines differ, for code that must not know any of them.

Apart from ``run_spec.py``, because reading a job file needs the traits and none of the decision code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """Describes an engine to the core, reports and views; ``spotctl.engines`` has the engines themselves."""

    kind: str
    """Its name in job files and reports."""
    unit: str
    """The unit of its progress: "clock", "step"."""
    artifact: str
    """What a run leaves behind: "model", "checkpoint"."""
    gang_size: int | None = None
    """How many machines work on the job at once; None: as many as it may hold."""
    relies_on_checkpoints: bool = False
    """Whether work survives an eviction in checkpoints alone; otherwise reliable machines keep it."""
    has_trial: bool = False
    """Whether a short trial can measure how much work a unit is."""


ELASTIC_TRAINING: Final = EngineTraits("agileml", "clock", "model", has_trial=True)
CHECKPOINTING_PROGRAM: Final = EngineTraits(
    "command", "step", "checkpoint", gang_size=1, relies_on_checkpoints=True
)
