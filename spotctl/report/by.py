"""What money can be added up by. On its own, because naming the choices must not load the adding up."""

from __future__ import annotations

from enum import StrEnum


class By(StrEnum):
    JOB = "job"
    DAY = "day"
    CLOUD = "cloud"
    MARKET = "market"
