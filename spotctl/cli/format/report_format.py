"""Names the forms in which a report or a price history can be written."""

from __future__ import annotations

from enum import StrEnum


class ReportFormat(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
