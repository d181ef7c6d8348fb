"""Where the price store is, and how old a price may be before people are warned."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pricing_data.layouts import Semantics
from spotctl.runs import default_root

_DAY_S: Final = 86400
STALE_AFTER_S: Final = {Semantics.EVENT_STREAM: _DAY_S, Semantics.POLLED: 8 * _DAY_S}
"""AWS repeats a price about daily; polled logs are mostly weekly, and late by a day now and then."""


def prices_root() -> Path:
    """The folder of the price store."""
    return default_root() / "prices"


def is_stale(semantics: Semantics, age_s: float) -> bool:
    """Whether a price that was last seen ``age_s`` seconds ago should no longer be relied on."""
    return age_s > STALE_AFTER_S[semantics]
