"""Collects what was understood of a part, and the raw text of what was not, for the quarantine.

Rule 1: a row that cannot be read keeps no other back. Rule 2: it is never dropped in silence: it is handed
out with the next page, and the part says how many there were. Only where nothing at all was understood has
the part failed: then the answers changed, not a single row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from pricing_data.errors import FeedBroken
from pricing_data.feeds.base import FeedPart
from pricing_data.formats.batches import UnreadableBatch
from pricing_data.formats.quality import Flaw, UnreadableRow
from pricing_data.model.units import Instant

Row = TypeVar("Row")
Found = TypeVar("Found")
_STUMBLES: Final = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


class NotUnderstood(Exception):
    """Reports that a row lacks what its table promises. The message says what."""


@contextmanager
def reading_a_row() -> Iterator[None]:
    """Turns any error of a row's reader into NotUnderstood, chained."""
    try:
        yield
    except _STUMBLES as error:
        raise NotUnderstood(describe_flaw(error)) from error


def describe_flaw(error: Exception) -> str:
    """Describes what was wrong with the row."""
    return f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)


def raw_text(row: object) -> str:
    """Returns the row as text: one row, one text."""
    # Sorted keys: the same row must give the same text, or it would be stored twice.
    return json.dumps(row, sort_keys=True, default=str)


def short_text(row: object) -> str:
    """Returns the raw row, shortened for people."""
    return raw_text(row)[:300]


class PartReading:
    """Collects the rows of one part while it is read."""

    def __init__(self, part: FeedPart) -> None:
        self._part = part
        self.understood = 0
        """Rows, or what they add up to."""
        self._unread: dict[str, None] = {}
        self._handed_out = 0

    def read_row(self, row: Row, reader: Callable[[Row], Found]) -> Found | None:
        """Returns what ``reader`` makes of ``row``; None where it is not understood."""
        try:
            return reader(row)
        except NotUnderstood as error:
            self.add_unread(f"{error}: {raw_text(row)}")
            return None

    def add_unread(self, *texts: str) -> None:
        """Adds rows that were not understood, each after what is wrong with it. Repetitions count once."""
        # A dict keeps the order and drops repetitions of a retried page.
        self._unread.update(dict.fromkeys(texts))

    def take_batches(self, observed: Instant) -> tuple[UnreadableBatch, ...]:
        """Returns what was not understood since the last call."""
        fresh = list(self._unread)[self._handed_out :]
        self._handed_out = len(self._unread)
        rows = tuple(UnreadableRow(Flaw.NOT_UNDERSTOOD, text) for text in fresh)
        return (UnreadableBatch(self._part.source, rows, observed),) if rows else ()

    @property
    def left_out(self) -> str:
        """Says how many rows were not understood, for people; "" if none."""
        if not self._unread:
            return ""
        first = next(iter(self._unread))[:200]
        return f"{len(self._unread)} rows were not understood and are in quarantine, such as {first}"

    def check_understood(self) -> None:
        """Raises FeedBroken where there were rows and none of them was understood."""
        # No rows at all is no error: a region may have nothing to offer.
        if self._unread and not self.understood:
            advice = "Update spotctl; report the row if that is no help"
            raise FeedBroken(str(self._part), self.left_out, advice)
