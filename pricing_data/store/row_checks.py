"""Checks rates, types, list prices, probes and lifetimes. ``validation.py`` judges prices.

Each check returns the flaw of a row of its table, or None.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Final

from pricing_data.formats.quality import Flaw
from pricing_data.store.reference_tables import Row
from pricing_data.store.validation import EARLIEST, LATEST, is_usable_name

Check = Callable[[Row], Flaw | None]

_LONGEST_TEXT: Final = 2000
_MOST_CORES: Final = 1_000_000


def check_rate(row: Row) -> Flaw | None:
    """Checks a row of ``reference_tables.RATES``."""
    begin, end, low, high, per_s = row[5:10]
    if not all(map(is_usable_name, row[:4])):
        return Flaw.NAME
    if not (EARLIEST <= begin < end < LATEST):
        return Flaw.TIME
    return None if 0 <= low <= high <= 1 and 0 < per_s < math.inf else Flaw.RATE


def check_instance_type(row: Row) -> Flaw | None:
    """Checks a row of ``reference_tables.TYPES``."""
    vcpus, memory_gib, gpus = row[2:5]
    if not all(map(is_usable_name, row[:2])):
        return Flaw.NAME
    counts = 0 < vcpus <= _MOST_CORES and 0 <= gpus <= _MOST_CORES
    return None if counts and 0 < memory_gib < math.inf else Flaw.SIZE


def check_list_price(row: Row) -> Flaw | None:
    """Checks a row of ``reference_tables.ON_DEMAND``."""
    valid_from, price = row[3:5]
    if not all(map(is_usable_name, row[:3])):
        return Flaw.NAME
    if not EARLIEST <= valid_from < LATEST:
        return Flaw.TIME
    if not math.isfinite(price):
        return Flaw.NOT_FINITE
    return None if price > 0 else (Flaw.NEGATIVE if price < 0 else Flaw.ZERO)


def check_probe(row: Row) -> Flaw | None:
    """Checks a row of ``reference_tables.PROBES``."""
    at, available = row[5:7]
    if not all(map(is_usable_name, row[:4])):
        return Flaw.NAME
    if not EARLIEST <= at < LATEST:
        return Flaw.TIME
    return None if available >= 0 else Flaw.COUNT


def check_lifetime(row: Row) -> Flaw | None:
    """Checks a row of ``reference_tables.LIFETIMES``."""
    begin, end = row[5], row[7]
    if not all(map(is_usable_name, row[:4])):
        return Flaw.NAME
    if not EARLIEST <= begin < LATEST or not EARLIEST <= end < LATEST:
        return Flaw.TIME
    return None if begin <= end else Flaw.BACKWARDS


def storable_text(text: str) -> str:
    """Returns ``text`` as valid UTF-8 without NUL; a long one is cut, with its length and hash at the end."""
    whole = text.encode("utf-8", "backslashreplace")
    # The hash keeps long texts with the same beginning apart: the table of unreadable rows has them as keys.
    if len(text) > _LONGEST_TEXT:
        mark = f"... ({len(text)} characters, SHA-256 {hashlib.sha256(whole).hexdigest()[:16]})"
        whole = text[:_LONGEST_TEXT].encode("utf-8", "backslashreplace") + mark.encode()
    return whole.decode().replace("\0", "\\0")
