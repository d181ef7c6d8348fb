"""Tells which entries of a program's checkpoint folder are complete: those that are called ``step-N``.

A program writes a checkpoint under any other name in the same folder and then renames it. Renaming is atomic,
so an entry with such a name was finished. N is the number of steps that are in it. Everything else in the
folder is the program's own business: it is never stored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_WHOLE: Final = re.compile(r"step-(\d{1,15})")
"""A folder or a file. No suffix is allowed: half the world writes into ``step-120.tmp`` first."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint on this machine's disk."""

    step: int
    path: Path


def parse_step(name: str) -> int | None:
    """Returns the step of a complete checkpoint of that name; None where the name is none.

    >>> parse_step("step-000120"), parse_step("step-120.tmp"), parse_step("latest")
    (120, None, None)
    """
    found = _WHOLE.fullmatch(name)
    return None if found is None else int(found[1])


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Returns the complete checkpoint with the most steps; None where there is none."""
    found = [
        Checkpoint(step, entry)
        for entry in sorted(folder.iterdir())
        if (step := parse_step(entry.name)) is not None
    ]
    return max(found, key=lambda checkpoint: checkpoint.step, default=None)
