"""Where the price store is, what its errors mean here, and how old a price may be before we warn."""

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
"""What was seen of a market's capacity fades over two weeks: older, it says little about today."""


def prices_root() -> Path:
    """The folder of the price store."""
    return default_root() / "prices"


@contextmanager
def reported() -> Iterator[None]:
    """What may be wrong with a store, a file or a feed, as errors of ours: a line and an exit code."""
    try:
        yield
    except (TraceError, ExportRefused) as error:
        raise UsageError(str(error)) from error
    except (StoreDamaged, StoreUnwritable, FeedError) as error:
        raise SpotctlError(str(error)) from error


def is_stale(semantics: Semantics, age_s: float) -> bool:
    """Whether a price that was last seen ``age_s`` seconds ago should no longer be relied on."""
    return age_s > STALE_AFTER_S[semantics]
