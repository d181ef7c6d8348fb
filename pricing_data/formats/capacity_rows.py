"""Parses rows of recorded capacity, and makes spells of them.

    probes      timestamp_utc, cloud, region, zone, instance_type, available: how many instances could be had
                at that moment (0 or 1 where one was requested)
    lifetimes   cloud, region, zone, instance_type, begin_utc, end_utc, lost: 1 where the provider ended the
                machine, 0 where it was released or still runs

Times are RFC 3339, without a zone UTC; further columns are ignored. Repairs no row: what cannot be believed
is reported by its line, with the reason, and keeps no other back. Does not know where rows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from pricing_data.formats.batches import MachineLifetime, Probe
from pricing_data.formats.csv_columns import CsvTable
from pricing_data.formats.quality import Flaw, Ints
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, parse_instant

_IDENTITY: Final = ("cloud", "region", "zone", "instance_type")
PROBE_COLUMNS: Final = ("timestamp_utc", *_IDENTITY, "available")
LIFETIME_COLUMNS: Final = (*_IDENTITY, "begin_utc", "end_utc", "lost")
PAUSE_LOOKS: Final = 3.0
"""A market was not watched where its next look takes this many times as long as its looks usually do."""
_MOST_INSTANCES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Sightings:
    """Holds the rows of one file; ``rows_read = probes + lifetimes + the sum of flawed``.

    Probes may be repeated. Machines have no names, so equal lifetimes are as many machines.
    """

    probes: tuple[Probe, ...]
    lifetimes: tuple[MachineLifetime, ...]
    flawed: Mapping[Flaw, Ints]
    """The lines that have each flaw."""


def is_of_sightings(header: Sequence[str]) -> bool:
    """Returns whether a file with these columns is one of probes or of lifetimes."""
    return set(PROBE_COLUMNS) <= set(header) or set(LIFETIME_COLUMNS) <= set(header)


def read_sightings(table: CsvTable, now: Instant | None = None) -> Sightings:
    """Parses every row of ``table``, of which ``is_of_sightings`` holds.

    Rows later than ``now`` are flawed.
    """
    flawed: dict[Flaw, list[int]] = {}
    probes: tuple[Probe, ...] = ()
    lifetimes: tuple[MachineLifetime, ...] = ()
    if set(PROBE_COLUMNS) <= set(table.header):
        told = _first_of_each_moment(_readable_rows(table, PROBE_COLUMNS, _parse_probe, flawed), flawed)
        probes = tuple(_rows_until(told, lambda row: row.at, now, flawed))
    else:
        lives = _readable_rows(table, LIFETIME_COLUMNS, _parse_lifetime, flawed)
        lifetimes = tuple(_rows_until(lives, lambda row: row.end, now, flawed))
    lines = {flaw: np.array(numbers, np.int64) for flaw, numbers in flawed.items()}
    if len(table.misshapen):
        lines[Flaw.FIELDS] = table.misshapen
    return Sightings(probes, lifetimes, lines)


def build_observations(
    probes: Iterable[Probe], lifetimes: Iterable[MachineLifetime], nodes: int = 1
) -> Observations:
    """Makes the spells of every market, from its probes and from its machines.

    A probe counts as available with ``nodes`` instances. Of several probes of one moment the one that found
    least counts.
    """
    looks: dict[Market, dict[int, int]] = {}
    for probe in probes:
        seen = looks.setdefault(probe.market, {})
        # The cautious reading: capacity that one of two looks did not find was not sure.
        seen[probe.at] = min(probe.available, seen.get(probe.at, probe.available))
    lives: dict[Market, list[tuple[int, int, bool]]] = {}
    for life in lifetimes:
        lives.setdefault(life.market, []).append((life.begin, life.end, life.lost))
    probed = Observations.from_spells({market: _probed_spells(seen, nodes) for market, seen in looks.items()})
    lived = {market: Spells.from_columns(*zip(*found, strict=True)) for market, found in lives.items()}
    return probed.merge_with(Observations.from_spells(lived))


def _probed_spells(seen: Mapping[int, int], nodes: int) -> Spells:
    times = np.array(sorted(seen), np.int64)
    counts = np.array([seen[moment] for moment in times.tolist()])
    # Each market has its own rhythm of looks; the median ignores pauses.
    usual_s = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return Spells.from_probes(times, counts >= nodes, PAUSE_LOOKS * usual_s)


_Row = TypeVar("_Row")
_Numbered = Iterator[tuple[int, _Row]]
"""Rows with the lines they are in."""


class _BadRow(Exception):
    def __init__(self, flaw: Flaw) -> None:
        super().__init__(flaw)
        self.flaw = flaw


def _readable_rows(
    table: CsvTable,
    columns: Sequence[str],
    read: Callable[..., _Row],
    flawed: dict[Flaw, list[int]],
) -> _Numbered[_Row]:
    """Yields what ``read`` makes of the ``columns`` of each row; lines it cannot read go to ``flawed``."""
    fields = zip(*(table.columns[name] for name in columns), strict=True)
    for line, texts in zip(table.numbers.tolist(), fields, strict=True):
        try:
            yield line, read(*map(str.strip, texts))
        except _BadRow as bad:
            flawed.setdefault(bad.flaw, []).append(line)


def _rows_until(
    rows: _Numbered[_Row],
    seen_at: Callable[[_Row], Instant],
    now: Instant | None,
    flawed: dict[Flaw, list[int]],
) -> Iterator[_Row]:
    """Yields rows seen by ``now``; later ones go to ``flawed``."""
    for line, row in rows:
        if now is not None and seen_at(row) > now:
            flawed.setdefault(Flaw.FUTURE, []).append(line)
        else:
            yield row


def _first_of_each_moment(rows: _Numbered[Probe], flawed: dict[Flaw, list[int]]) -> _Numbered[Probe]:
    """Keeps the first of rows about one market and moment that differ; repetitions are kept."""
    first: dict[tuple[Market, Instant], int] = {}
    for line, probe in rows:
        if first.setdefault((probe.market, probe.at), probe.available) == probe.available:
            yield line, probe
        else:
            flawed.setdefault(Flaw.OTHER_COUNT, []).append(line)


def _parse_probe(at: str, cloud: str, region: str, zone: str, instance_type: str, available: str) -> Probe:
    if not available.isdecimal() or len(available) > len(str(_MOST_INSTANCES)):
        raise _BadRow(Flaw.COUNT)
    return Probe(_parse_market(cloud, region, zone, instance_type), _parse_instant(at), int(available))


def _parse_lifetime(
    cloud: str, region: str, zone: str, instance_type: str, begin: str, end: str, lost: str
) -> MachineLifetime:
    if lost not in ("0", "1"):
        raise _BadRow(Flaw.LOST)
    since, until = _parse_instant(begin), _parse_instant(end)
    if until < since:
        raise _BadRow(Flaw.BACKWARDS)
    return MachineLifetime(_parse_market(cloud, region, zone, instance_type), since, until, lost == "1")


def _parse_market(*names: str) -> Market:
    if not all(names):
        raise _BadRow(Flaw.NAME)
    return Market(*names)


def _parse_instant(text: str) -> Instant:
    try:
        return parse_instant(text)
    except (ValueError, OverflowError) as error:
        raise _BadRow(Flaw.TIME) from error
