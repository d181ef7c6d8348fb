"""Finds the complete checkpoints in a program's checkpoint folder: the entries called ``step-N``.

A program writes a checkpoint under any other name in the same folder and then renames it. Renaming is atomic,
so an entry with such a name is finished. N is the number of steps in it. Other entries are the program's own,
and are never stored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STEP_DIGITS: Final = 15
"""The most digits of a step. Names in the store are padded to this length, so that they sort by step."""
# No suffix is allowed: many programs write into ``step-120.tmp`` first.
_COMPLETE: Final = re.compile(rf"step-(\d{{1,{STEP_DIGITS}}})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint on this machine's disk: a folder or a file."""

    step: int
    path: Path


def parse_step(name: str) -> int | None:
    """Returns the step in the name of a complete checkpoint; None for any other name.

    >>> parse_step("step-000120"), parse_step("step-120.tmp"), parse_step("latest")
    (120, None, None)
    """
    found = _COMPLETE.fullmatch(name)
    return None if found is None else int(found[1])


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Returns the complete checkpoint with the most steps; None if there is none."""
    found = [
        Checkpoint(step, entry)
        for entry in sorted(folder.iterdir())
        if (step := parse_step(entry.name)) is not None
    ]
    return max(found, key=lambda checkpoint: checkpoint.step, default=None)
