"""Names the two kinds of arrays that travel between processes."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Rows: TypeAlias = npt.NDArray[np.int64]
Matrix: TypeAlias = npt.NDArray[np.float32]
