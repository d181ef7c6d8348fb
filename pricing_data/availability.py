"""Recorded availability and lifetimes -> spells per market.

Three layouts, plain or gzipped, in UTF-8; times are RFC 3339, without a zone UTC:

probes      CSV with the columns timestamp_utc, cloud, region, zone, instance_type, available: how many
            instances could be had at that moment (0 or 1 where one was asked for)
lifetimes   CSV with the columns cloud, region, zone, instance_type, begin_utc, end_utc, lost: 1 where the
            provider ended the machine, 0 where it was given up or still runs
grid        JSON as published with "Can't Be Late" (NSDI 2024), instances available at each tick:
            {"metadata": {"gap_seconds": s}, "data": [n, ...]}; it names neither its market nor its begin

A row that cannot be believed is quarantined and counted; a file that is none of these is a ``TraceError``.
Refuses to know what a loss costs, and refuses to fill gaps: a spell ends, censored, where nobody looked.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from pricing_data.csvfile import text_of
from pricing_data.errors import TraceError
from pricing_data.market import Market
from pricing_data.spells import Observations, Spells
from pricing_data.units import Instant, parse_instant

_IDENTITY: Final = ("cloud", "region", "zone", "instance_type")
_PROBES: Final = ("timestamp_utc", *_IDENTITY, "available")
_LIFETIMES: Final = (*_IDENTITY, "begin_utc", "end_utc", "lost")
_PAUSE_LOOKS: Final = 3.0
"""A market was not watched where its next look takes this many times as long as its looks usually do."""
_EXPECTED: Final = f"a CSV file with the columns {','.join(_PROBES)} or {','.join(_LIFETIMES)}"
_GRID: Final = 'JSON like {"metadata": {"gap_seconds": 600}, "data": [0, 1, ...]}'


class Reason(StrEnum):
    """Why a row is quarantined."""

    FIELDS = "wrong number of fields"
    NAME = "a market without a name"
    TIME = "unreadable time"
    COUNT = "not a whole number of instances, 0 or more"
    LOST = "lost is neither 0 nor 1"
    BACKWARDS = "ends before it begins"
    CONFLICT = "says otherwise than another row of that moment"


@dataclass(frozen=True, slots=True)
class Watched:
    """What a file says. ``rows_read = rows_used + rows_duplicate + the sum of quarantined``."""

    label: str
    observations: Observations
    rows_read: int
    rows_used: int
    rows_duplicate: int
    quarantined: Mapping[Reason, int]


class _BadRow(Exception):
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


def read_availability(path: Path | str, *, nodes: int = 1) -> Watched:
    """Read probes or lifetimes; probes count as available where they found at least ``nodes`` instances.

    Raises TraceError where the file is neither, or holds no usable row.
    """
    name = str(path)
    lines = text_of(Path(path), name, _EXPECTED).splitlines()
    try:
        rows = list(csv.reader(lines, skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise TraceError(name, None, str(error), _EXPECTED, "Check how it was written.") from error
    header = tuple(column.strip() for column in rows[0]) if rows else ()
    body = [row for row in rows[1:] if row]
    if set(_PROBES) <= set(header):
        watched = _probes(name, header, body, nodes)
    elif set(_LIFETIMES) <= set(header):
        watched = _lifetimes(name, header, body)
    else:
        found = f"the columns {','.join(header)[:120]!r}" if header else "an empty file"
        raise TraceError(name, 1, found, _EXPECTED, "Rename its columns.")
    if not watched.observations.markets:
        why = ", ".join(f"{reason}: {count}" for reason, count in watched.quarantined.items())
        found = f"no spell in {watched.rows_read} rows ({why or 'nothing was ever available'})"
        raise TraceError(name, None, found, "a market that was seen available", "Check how it was written.")
    return watched


def read_grid(path: Path | str, begin: Instant, *, nodes: int = 1) -> Spells:
    """Read the published JSON of one market, whose first tick was at ``begin``.

    Ticks stand at whole seconds, rounded. Raises TraceError where it is no such file.
    """
    name = str(path)
    text = text_of(Path(path), name, _GRID)
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
    return Spells.probed(times, counts >= nodes, _PAUSE_LOOKS * gap_s)


def _probes(name: str, header: tuple[str, ...], rows: list[list[str]], nodes: int) -> Watched:
    """Of rows about the same market and moment the first one stands."""
    looks: dict[Market, dict[int, int]] = {}
    bad: Counter[Reason] = Counter()
    used = duplicates = 0
    for market, moment, count in _good(header, rows, _probe, bad):
        seen = looks.setdefault(market, {})
        if moment not in seen:
            seen[moment] = count
            used += 1
        elif seen[moment] == count:
            duplicates += 1
        else:
            bad[Reason.CONFLICT] += 1
    spells = {market: _probed(seen, nodes) for market, seen in looks.items()}
    return Watched(name, Observations.of(spells), len(rows), used, duplicates, bad)


def _probed(seen: Mapping[int, int], nodes: int) -> Spells:
    times = np.array(sorted(seen), np.int64)
    counts = np.array([seen[moment] for moment in times.tolist()])
    usual_s = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return Spells.probed(times, counts >= nodes, _PAUSE_LOOKS * usual_s)


def _lifetimes(name: str, header: tuple[str, ...], rows: list[list[str]]) -> Watched:
    """Machines have no names here: rows that are alike are as many machines."""
    lives: dict[Market, list[tuple[int, int, bool]]] = {}
    bad: Counter[Reason] = Counter()
    used = 0
    for market, begin, end, lost in _good(header, rows, _lifetime, bad):
        lives.setdefault(market, []).append((begin, end, lost))
        used += 1
    spells = {market: Spells.of(*zip(*found, strict=True)) for market, found in lives.items()}
    return Watched(name, Observations.of(spells), len(rows), used, 0, bad)


_Row = TypeVar("_Row")


def _good(
    header: tuple[str, ...],
    rows: list[list[str]],
    read: Callable[[Mapping[str, str]], _Row],
    bad: Counter[Reason],
) -> Iterator[_Row]:
    """What ``read`` makes of each row; those it cannot read are counted in ``bad``."""
    for fields in rows:
        try:
            if len(fields) != len(header):
                raise _BadRow(Reason.FIELDS)
            yield read(dict(zip(header, fields, strict=True)))
        except _BadRow as flaw:
            bad[flaw.reason] += 1


def _probe(row: Mapping[str, str]) -> tuple[Market, int, int]:
    text = row["available"].strip()
    if not text.isdecimal():
        raise _BadRow(Reason.COUNT)
    return _market(row), _instant(row["timestamp_utc"]), int(text)


def _lifetime(row: Mapping[str, str]) -> tuple[Market, int, int, bool]:
    if row["lost"].strip() not in ("0", "1"):
        raise _BadRow(Reason.LOST)
    begin, end = _instant(row["begin_utc"]), _instant(row["end_utc"])
    if end < begin:
        raise _BadRow(Reason.BACKWARDS)
    return _market(row), begin, end, row["lost"].strip() == "1"


def _market(row: Mapping[str, str]) -> Market:
    names = [row[column].strip() for column in _IDENTITY]
    if not all(names):
        raise _BadRow(Reason.NAME)
    return Market(*names)


def _instant(text: str) -> int:
    try:
        return parse_instant(text)
    except (ValueError, OverflowError) as error:
        raise _BadRow(Reason.TIME) from error
