"""Makes the environment of a machine's processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""These say how many threads numerical libraries run; without, as many as the computer has cores."""

_ROOT: Final = str(Path(__file__).resolve().parents[3])
"""The folder that this package is in."""


def machine_environment(threads: int = 1) -> dict[str, str]:
    """Returns our environment, with ``threads`` in each process and this very package in reach."""
    inherited = os.environ.get("PYTHONPATH")
    path = _ROOT if not inherited else f"{_ROOT}{os.pathsep}{inherited}"
    return {**os.environ, **dict.fromkeys(_THREADS, str(threads)), "PYTHONPATH": path}
