"""Locates the price store, translates its errors, and says how old a price may be before we warn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pricing_data.errors import ExportRefused, FeedError, StoreDamaged, StoreUnwritable, TraceError
from pricing_data.formats.layouts import Semantics
from spotctl.errors import SpotctlError, UsageError
from spotctl.records.run import default_root

_DAY_S: Final = 86400
STALE_AFTER_S: Final = {Semantics.EVENT_STREAM: _DAY_S, Semantics.POLLED: 8 * _DAY_S}
"""AWS repeats a price about daily; polled logs are mostly weekly, and late by a day now and then."""

STALE_CAPACITY_S: Final = 14 * _DAY_S
"""Seconds; observations of a market's capacity fade over two weeks: older ones say little about today."""


def prices_root() -> Path:
    """Returns the folder of the price store."""
    return default_root() / "prices"


@contextmanager
def report_errors() -> Iterator[None]:
    """Turns errors of a store, a file or a feed into our own: a line and an exit code."""
    try:
        yield
    except (TraceError, ExportRefused) as error:
        raise UsageError(str(error)) from error
    except (StoreDamaged, StoreUnwritable, FeedError) as error:
        raise SpotctlError(str(error)) from error


def is_stale(semantics: Semantics, age_s: float) -> bool:
    """Tells whether a price last seen ``age_s`` seconds ago is too old to rely on."""
    return age_s > STALE_AFTER_S[semantics]
