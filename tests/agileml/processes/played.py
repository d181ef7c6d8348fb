"""Finds out the role of a machine's process from the name that it gives itself."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_CALLED = {"worker": "agileml-worker", "server": "agileml-server", "controller": "agileml-control"}
"""Of the last one Linux keeps no more."""


def plays(process: Path, role: str) -> bool:
    """``process``: its folder in /proc; ``role``: worker, server, controller, or agent, which has no name."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        called = (process / "comm").read_text().strip()
        return called not in _CALLED.values() if role == "agent" else called == _CALLED[role]
    return False
