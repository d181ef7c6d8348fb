"""Limits how large a model may be: a machine must send it within a notice, and this computer hold it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from spotctl.errors import JobError

BYTES_PER_VALUE: Final = 4
_COPIES: Final = 2
"""Copies of the model in memory at once, at the least: its servers' and the one that is being saved."""
_LIMIT_OF_GROUP: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def refuse_immovable(model_bytes: int, link_mbit_s: float, notice_s: float) -> None:
    """Raises JobError where one machine could not send the whole model within the notice of an eviction.

    It has to when it is the only one that serves; undo and new messages come on top of that.
    """
    move_s = model_bytes * 8e-6 / link_mbit_s
    if move_s > notice_s:
        raise JobError(
            "training.link_mbit_s",
            f"the model has {model_bytes / 1e6:,.0f} MB, which take {move_s:,.0f} s over a link of "
            f"{link_mbit_s:g} Mbit/s: more than the {notice_s:g} s between a warning and the end of a spot "
            "machine, so evictions would lose work. Make the model smaller, use machines with faster links "
            "(and say so: training.link_mbit_s), or run on demand (objective.strategy: on-demand)",
        )


def refuse_too_large(model_bytes: int, memory_bytes: int | None = None) -> None:
    """Raises JobError where this computer, which runs all machines, cannot hold the model.

    ``memory_bytes``: what it has; None: what the system reports.
    """
    has = memory_of_computer() if memory_bytes is None else memory_bytes
    needs = _COPIES * model_bytes
    if needs > has:
        raise JobError(
            "args",
            f"the model has {model_bytes / 1e6:,.0f} MB; training it here takes {_COPIES} copies of it in "
            f"memory at the least, {needs / 1e6:,.0f} MB, and this computer has {has / 1e6:,.0f} MB. Make "
            "the model smaller, or see what it would cost without running it: --world replay",
        )


def memory_of_computer() -> int:
    """Returns bytes of memory, as the system or a container's limit reports them."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _LIMIT_OF_GROUP:
        limit = file.read_text().strip() if file.is_file() else ""
        found += [int(limit)] if limit.isdigit() else []
    return min(found)
