"""The environment of a machine's processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import agileml

_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def machine_environment() -> dict[str, str]:
    """Ours, with one thread per process and this very package in reach."""
    root = str(Path(agileml.__file__).parents[1])
    inherited = os.environ.get("PYTHONPATH")
    path = root if not inherited else f"{root}{os.pathsep}{inherited}"
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": path}
