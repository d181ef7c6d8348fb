"""Names the types of arrays. Docstrings give shapes: "(n, m)", where the module defines n and m."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Indices: TypeAlias = npt.NDArray[np.int64]
"""Positions in another array, or codes of something."""
