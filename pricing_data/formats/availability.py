"""Reads recorded availability and lifetimes into spells per market.

Probes and lifetimes are CSV, plain or gzipped, in UTF-8 (``capacity_rows.py`` has the columns). A third
layout:

grid        JSON as published with "Can't Be Late" (NSDI 2024), instances available at each tick:
            {"metadata": {"gap_seconds": s}, "data": [n, ...]}; it names neither its market nor its begin

A row that cannot be believed is quarantined and counted; a file that is none of these is a ``TraceError``.
Does not know what a loss costs, and fills no gaps: a spell ends, censored, where nobody looked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from pricing_data.errors import TraceError
from pricing_data.formats.capacity_rows import (
    LIFETIME_COLUMNS,
    PAUSE_LOOKS,
    PROBE_COLUMNS,
    build_observations,
    is_of_sightings,
    read_sightings,
)
from pricing_data.formats.csv_columns import CsvTable, read_text
from pricing_data.formats.quality import Flaw
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.units import Instant

_EXPECTED: Final = f"a CSV file with the columns {','.join(PROBE_COLUMNS)} or {','.join(LIFETIME_COLUMNS)}"
_GRID: Final = 'JSON like {"metadata": {"gap_seconds": 600}, "data": [0, 1, ...]}'


@dataclass(frozen=True, slots=True)
class RecordedCapacity:
    """Holds what a file says. ``rows_read = rows_used + rows_duplicate + the sum of quarantined``."""

    label: str
    observations: Observations
    rows_read: int
    rows_used: int
    rows_duplicate: int
    quarantined: Mapping[Flaw, int]


def read_availability(path: Path | str, *, nodes: int = 1) -> RecordedCapacity:
    """Reads probes or lifetimes; probes count as available where they found at least ``nodes`` instances.

    Raises TraceError where the file is neither, or holds no usable row.
    """
    name = str(path)
    table = CsvTable.parse(name, read_text(Path(path), name, _EXPECTED).splitlines())
    if not is_of_sightings(table.header):
        found = f"the columns {','.join(table.header)[:120]!r}"
        raise TraceError(name, 1, found, _EXPECTED, "Rename its columns.")
    seen = read_sightings(table)
    # Probes may repeat; equal lifetimes are different machines.
    used = len(set(seen.probes)) + len(seen.lifetimes)
    watched = RecordedCapacity(
        label=name,
        observations=build_observations(seen.probes, seen.lifetimes, nodes),
        rows_read=table.row_count,
        rows_used=used,
        rows_duplicate=len(seen.probes) + len(seen.lifetimes) - used,
        quarantined={flaw: len(lines) for flaw, lines in seen.flawed.items()},
    )
    if not watched.observations.markets:
        why = ", ".join(f"{flaw}: {count}" for flaw, count in watched.quarantined.items())
        said = f"no spell in {watched.rows_read} rows ({why or 'nothing was ever available'})"
        raise TraceError(name, None, said, "a market that was seen available", "Check how it was written.")
    return watched


def read_grid(path: Path | str, begin: Instant, *, nodes: int = 1) -> Spells:
    """Reads the published JSON of one market, whose first tick was at ``begin``.

    Ticks stand at whole seconds, rounded. Raises TraceError where it is no such file.
    """
    name = str(path)
    text = read_text(Path(path), name, _GRID)
    try:
        content = json.loads(text)
        gap_s, counts = float(content["metadata"]["gap_seconds"]), np.asarray(content["data"], np.float64)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        found = f"something else ({type(error).__name__}: {error})"[:200]
        raise TraceError(name, None, found, _GRID, "Fetch the file again.") from error
    if not gap_s >= 1 or counts.ndim != 1 or not len(counts) or not bool(np.all(counts >= 0)):
        found = f"a gap of {gap_s} s and counts of shape {counts.shape}"
        expected = "a gap of at least 1 s and a list of counts, none negative"
        raise TraceError(name, None, found, expected, "Fetch the file again.")
    times = begin + np.rint(np.arange(len(counts)) * gap_s).astype(np.int64)
    return Spells.from_probes(times, counts >= nodes, PAUSE_LOOKS * gap_s)
