"""Provides the market that ships with the program: everything works without an account or a trace.

It is generated, not recorded: see ``PROVENANCE.md``, and ``generate.py`` for how. Whatever shows its prices
must show the recording's label with them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pricing_data.formats.traces import Filter, Recording, read_trace

BUNDLED: Final = Path(__file__).with_name("market.csv.gz")
BUNDLED_LABEL: Final = "bundled market (generated)"


def bundled_market(*, only: Filter | None = None) -> Recording:
    """Returns AWS us-east-1 as it might have been in June 2016: nine markets, 35 days from 2016-06-01."""
    return read_trace(BUNDLED, only=only, label=BUNDLED_LABEL, generated=True)
