"""What arrays hold. Their shapes stand beside each of them: "(n, m)", n and m as its module says."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Indices: TypeAlias = npt.NDArray[np.int64]
"""Places in something, or codes of something."""
