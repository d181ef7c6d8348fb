"""Names the two kinds of machines: those that stay, and those that may be taken away."""

from __future__ import annotations

from enum import StrEnum


class Tier(StrEnum):
    RELIABLE = "reliable"
    TRANSIENT = "transient"
