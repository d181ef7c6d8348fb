"""Names the groupings of reports, in a module of their own so that ``--help`` imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum


class Grouping(StrEnum):
    JOB = "job"
    DAY = "day"
    MONTH = "month"
    CLOUD = "cloud"
    MARKET = "market"
