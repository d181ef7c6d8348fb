"""Formats money and counts, for modules that show many runs at once. Imports nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from pricing_data.model.units import MicroUsd, format_micros
from spotctl.report.summary import AS_FAST, CHEAPEST

NOMINAL: Final = "nominal: what these machines would have cost at the trace's prices; nobody was charged"
"""Shown wherever money of local runs is summed up."""

BASELINES: Final = (
    "as fast: the same work as fast, on demand; cheapest: the cheapest way on demand, within the deadline "
    "where any keeps it; both by the same rules, of any type and count that the job allows. saved: beside "
    "the cheaper of the two"
)
"""Explains the baselines where a run's own machines are not named."""

BESIDE: Final[Mapping[str, str]] = {AS_FAST: "as fast, on demand", CHEAPEST: "cheapest on demand"}
"""Titles of the two baselines."""


def count_noun(count: int, noun: str) -> str:
    """Formats a count with its noun: "1 eviction", "3 evictions"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_money(amount: MicroUsd) -> str:
    """Formats dollars to a hundredth of a cent: for people; JSON has all six decimals."""
    return f"${amount / 1_000_000:,.4f}"


def format_exact(amount: MicroUsd) -> str:
    """Formats dollars to the last digit that is owed: shown amounts add up to shown sums."""
    return f"${format_micros(amount)}"


def format_savings(share: float) -> str:
    """Formats the share of an on-demand baseline that was not spent; a negative one cost more."""
    return f"{share:.1%} saved" if share >= 0 else f"cost {-share:.1%} more"


def format_span(seconds: float) -> str:
    """Formats seconds as "1:02:03", with hours so that it is no time of day; a countdown stops at zero."""
    whole = max(0, math.ceil(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def format_size(size_bytes: float) -> str:
    """Formats bytes in units of a thousand: "2.5 GB"."""
    for unit_ in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.3g} {unit_}"
        size_bytes /= 1000
    return f"{size_bytes:.3g} TB"
