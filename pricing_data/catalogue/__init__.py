"""Provides instance types and Linux on-demand list prices, as published, with their dates.

It does not guess: what is not in the files beside this one is None, and no price applies before it was
announced. ``SOURCES.md`` says where every figure is from and how it was checked.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Self

from pricing_data.model.market import InstanceType
from pricing_data.model.units import Instant, UsdPerHour, parse_instant

_ListPrices = tuple[tuple[Instant, UsdPerHour], ...]
"""Pairs of (valid from, price), ascending."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Holds types and list prices.

    ``Catalogue.bundled()`` is the one that ships; other sources make their own.
    """

    instance_types: Mapping[tuple[str, str], InstanceType]
    """Keys are (cloud, name)."""
    list_prices: Mapping[tuple[str, str, str], _ListPrices]
    """Keys are (cloud, region, instance type)."""

    @classmethod
    def bundled(cls) -> Self:
        types = {
            (row["cloud"], row["instance_type"]): InstanceType(
                cloud=row["cloud"],
                name=row["instance_type"],
                vcpus=int(row["vcpus"]),
                memory_gib=float(row["memory_gib"]),
                gpus=int(row["gpus"]),
            )
            for row in _read_rows("instance_types.csv")
        }
        prices: dict[tuple[str, str, str], _ListPrices] = {}
        for row in _read_rows("on_demand.csv"):
            key = (row["cloud"], row["region"], row["instance_type"])
            valid = (parse_instant(row["valid_from"]), UsdPerHour(float(row["usd_hour"])))
            # Sorted by date, whatever the order of the file's rows.
            prices[key] = tuple(sorted((*prices.get(key, ()), valid)))
        return cls(types, prices)

    def instance_type(self, cloud: str, name: str) -> InstanceType | None:
        return self.instance_types.get((cloud, name))

    def on_demand(self, cloud: str, region: str, name: str, at: Instant) -> UsdPerHour | None:
        """Returns the list price in force at ``at``.

        None where it is unknown, or earlier than what is known.
        """
        prices = self.list_prices.get((cloud, region, name), ())
        # bisect_right: a price is in force from its very first instant on.
        index = bisect_right(prices, at, key=lambda valid: valid[0])
        return prices[index - 1][1] if index else None

    def list_price_caps(self, cloud: str, region: str, name: str) -> tuple[tuple[Instant, UsdPerHour], ...]:
        """Returns every list price and since when it was in force, ascending.

        Spot prices are checked against them.
        """
        return self.list_prices.get((cloud, region, name), ())

    def instance_types_of(self, cloud: str) -> tuple[InstanceType, ...]:
        """Returns all known types of ``cloud``, by name."""
        mine = (found for (owner, _), found in self.instance_types.items() if owner == cloud)
        return tuple(sorted(mine, key=lambda found: found.name))


def bundled_egress() -> dict[tuple[str, str], float]:
    """Returns dollars per gigabyte that leaves, by cloud and by the border that it crosses.

    Borders are "zone", "region" and "cloud".
    """
    return {(row["cloud"], row["to"]): float(row["usd_gb"]) for row in _read_rows("egress.csv")}


def bundled_gpu_names() -> dict[tuple[str, str], str]:
    """Returns the names of bundled types' GPUs, by (cloud, name); types without GPUs are left out."""
    rows = _read_rows("instance_types.csv")
    return {(row["cloud"], row["instance_type"]): row["gpu_name"] for row in rows if row["gpu_name"]}


def _read_rows(file: str) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(files(__name__).joinpath(file).read_text(encoding="utf-8").splitlines())
