"""Defines units, and the only conversions between them.

Rule 1: an instant is whole seconds since 1970-01-01T00:00:00Z. Integers compare exactly, so a replay and a
paced run that share a trace agree on every tie. Rule 2: money that is decided with is a float of dollars
(``Usd``, ``UsdPerHour``); money that is *owed* is an integer of micro-dollars (``MicroUsd``), so that sums
are exact. Rule 3: text ("30s", RFC 3339) lives at the edges and is read and written here.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final, NewType

Instant = NewType("Instant", int)
"""Whole seconds since the Unix epoch, UTC."""
Seconds = NewType("Seconds", float)
"""A duration."""
Usd = NewType("Usd", float)
"""An expected amount of money, for deciding."""
UsdPerHour = NewType("UsdPerHour", float)
"""A price per instance-hour."""
MicroUsd = NewType("MicroUsd", int)
"""An amount owed or refunded: millionths of a dollar."""

HOUR_S: Final = 3600

_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")


def seconds_after(at: Instant, seconds: float) -> Instant:
    """Returns the instant ``seconds`` after ``at``, rounded up: an effect is never early.

    >>> seconds_after(Instant(100), 0.5)
    101
    """
    return Instant(at + -int(-seconds // 1))


def parse_duration(text: str) -> Seconds:
    """Reads "90s", "2m", "1.5h" or "1h30m". Raises ValueError with what was expected.

    >>> parse_duration("1h30m")
    5400.0
    """
    total, position = 0.0, 0
    while position < len(text):
        match = _DURATION.match(text, position)
        if match is None:
            break
        total += float(match[1]) * _UNIT_S[match[2]]
        position = match.end()
    if position == 0 or position < len(text):
        raise ValueError(f"{text!r} is not a duration; write it like 90s, 2m, 1.5h or 1h30m")
    return Seconds(total)


def parse_instant(text: str) -> Instant:
    """Reads an RFC 3339 time ("2016-06-05T08:18:57Z"); a date alone is its midnight, UTC.

    >>> parse_instant("1970-01-02")
    86400
    """
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write it like 2016-06-05T08:18:57Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return Instant(int(moment.timestamp()))


def format_instant(at: Instant) -> str:
    """Formats an instant as RFC 3339 in UTC.

    >>> format_instant(Instant(0))
    '1970-01-01T00:00:00Z'
    """
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micros(amount: MicroUsd) -> str:
    """Formats dollars with six decimals, as all our JSON prints money.

    >>> format_micros(MicroUsd(-1_500_000))
    '-1.500000'
    """
    sign = "-" if amount < 0 else ""
    return f"{sign}{abs(amount) // 1_000_000}.{abs(amount) % 1_000_000:06d}"


def to_micros(dollars: float) -> MicroUsd:
    """Returns the nearest micro-dollar, half up, of a non-negative amount.

    Shows estimates beside amounts owed.
    """
    return MicroUsd(int(dollars * 1_000_000 + 0.5))
