"""Published records of capacity as spells: whose they are, when they began, how they are watched."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pricing_data.formats.availability import read_grid
from pricing_data.model.capacity_spells import Spells
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, parse_instant

_TYPES = {
    "v100_1": "p3.2xlarge",
    "v100_8": "p3.16xlarge",
    "k80_1": "p2.xlarge",
    "k80_8": "p2.8xlarge",
    "intel_64": "r5.16xlarge",
    "c3-88": "c3-highcpu-88",
}
V100_PROBES_BEGAN = parse_instant("2023-02-15T21:57:27Z")
"""The one campaign whose begin is known to the second: its clock was matched with the prices' clock."""


@dataclass(frozen=True, slots=True, eq=False)
class Zone:
    """One market as one campaign watched it."""

    campaign: str
    market: Market
    spells: Spells
    begin: Instant
    end: Instant

    @property
    def name(self) -> str:
        return f"{self.campaign} {self.market}"

    @property
    def days(self) -> float:
        return (self.end - self.begin) / 86400


def grids(data: Path, nodes: int = 1) -> list[Zone]:
    """All published grids, by path. They say their day, not their hour: midnight is taken."""
    root = data / "skypilot-spot-traces"
    return [_grid(path, nodes) for path in sorted(root.glob("*/*/*/*.json.gz"))]


def whole_groups(data: Path) -> list[Zone]:
    """The grids of 4 and 16 nodes, counted as there when all nodes are."""
    paths = sorted((data / "skypilot-spot-traces").glob("*/*/*/*.json.gz"))
    sizes = [int(path.parts[-3].partition("-")[0]) for path in paths]
    return [_grid(path, size) for path, size in zip(paths, sizes, strict=True) if size > 1]


def _grid(path: Path, nodes: int) -> Zone:
    kind, size, day = path.parts[-4], path.parts[-3], path.parts[-2]
    cloud, _, date = day.partition("-")
    zone, _, machine = path.name.removesuffix(".json.gz").partition("_")
    began = Instant(int(dt.datetime.strptime(date, "%m-%d-%Y").replace(tzinfo=dt.UTC).timestamp()))
    if day == "aws-02-15-2023":
        began = V100_PROBES_BEGAN
    region = zone[:-1] if cloud == "aws" else zone.rpartition("-")[0]
    spells = read_grid(path, began, nodes=nodes)
    end = max(int(spells.ends.max()), int(began)) if len(spells) else int(began)
    label = f"{date[6:]}-{date[:5]} {kind[:5]} {nodes}/{size.partition('-')[0]}"
    return Zone(label, Market(cloud, region, zone, _TYPES[machine]), spells, began, Instant(end))


def machines(data: Path) -> list[Zone]:
    """Machines that ran until they were lost or given up: GCP 2019, the GPU probes of 2020, Bamboo's p3."""
    return [*_gcp_2019(data), *_probes_2020(data), _bamboo(data)]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _gcp_2019(data: Path) -> Iterator[Zone]:
    """Returns spells by zone; zones with fewer than 100 machines are left out."""
    lives: dict[str, list[tuple[int, int, bool]]] = defaultdict(list)
    for row in _rows(data / "gcp-preemptions-2019" / "vm_lifetimes.csv.gz"):
        begin = parse_instant(row["requested_utc"])
        lives[row["zone"]].append(
            (begin, begin + round(float(row["lifetime_s"])), row["end_kind"] == "preempted")
        )
    for zone, found in sorted(lives.items()):
        if len(found) >= 100:
            yield _zone("2019 machines", Market("gcp", zone.rpartition("-")[0], zone, "n1"), found)


def _probes_2020(data: Path) -> Iterator[Zone]:
    """Returns spells by cloud and zone, all GPUs together.

    A slot's machine runs from first to last sighting.
    """
    for file, cloud in (("aws_2020-03-15", "aws"), ("gcp_2020-03-01", "gcp")):
        up: dict[str, tuple[str, int, int]] = {}
        lives: dict[str, list[tuple[int, int, bool]]] = defaultdict(list)
        for row in _rows(data / "gpu-preemption-probes-2020" / f"{file}.csv.gz"):
            slot, at = row["instance"], parse_instant(row["timestamp_utc"])
            if row["event"] in ("created", "running"):
                zone, begin, _ = up.get(slot, (row["zone"], at, at))
                up[slot] = (zone, begin, at)
            elif slot in up:
                zone, begin, seen = up.pop(slot)
                lost = row["event"] == "not_running"
                lives[zone].append((begin, at if lost else seen, lost))
        for zone, begin, seen in up.values():
            lives[zone].append((begin, seen, False))
        for zone, found in sorted(lives.items()):
            region = zone[:-1] if cloud == "aws" else zone.rpartition("-")[0]
            yield _zone("2020 machines", Market(cloud, region, zone, "gpu"), found)


def _bamboo(data: Path) -> Zone:
    """Its times have no date; 2021-12-10 is that of the other traces of the same publication."""
    begun: dict[str, int] = {}
    lives: list[tuple[int, int, bool]] = []
    origin, last = parse_instant("2021-12-10"), 0
    for row in _rows(data / "bamboo-cluster-traces" / "p3-trace.csv.gz"):
        last = origin + int(row["time_ms"]) // 1000
        if row["event"] == "add":
            begun[row["node"]] = last
        else:
            lives.append((begun.pop(row["node"]), last, True))
    lives.extend((begin, last, False) for begin in begun.values())
    return _zone("bamboo", Market("aws", "us-east-1", "us-east-1", "p3.2xlarge"), lives)


def _zone(campaign: str, market: Market, lives: list[tuple[int, int, bool]]) -> Zone:
    begins, ends, lost = zip(*lives, strict=True)
    spells = Spells.from_columns(begins, ends, lost)
    return Zone(
        campaign, market, spells, Instant(int(np.min(spells.begins))), Instant(int(np.max(spells.ends)))
    )
