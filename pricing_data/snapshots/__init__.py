"""The market that ships with the program, so that everything can be tried without an account or a trace.

It is generated, not recorded: see ``PROVENANCE.md``, and ``generate.py`` for how. Whoever shows its
prices must show the recording's label with them.
"""

from __future__ import annotations

from pathlib import Path

from pricing_data.traces import Filter, Recording, read_trace


def bundled_market(*, only: Filter | None = None) -> Recording:
    """AWS us-east-1 as it might have been in June 2016: nine markets, 35 days from 2016-06-01."""
    path = Path(__file__).with_name("market.csv.gz")
    return read_trace(path, only=only, label="bundled market (generated)", generated=True)
