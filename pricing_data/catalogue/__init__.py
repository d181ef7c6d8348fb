"""Provides instance types and Linux on-demand list prices, as published, with their dates.

Guesses nothing: what is not in the files beside this one is None, and no price applies before its date.
``SOURCES.md`` has the origin of every figure, and how it was checked.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Self

from pricing_data.model.market import InstanceType
from pricing_data.model.units import Instant, UsdPerHour, parse_instant

_ListPrices = tuple[tuple[Instant, UsdPerHour], ...]
"""Pairs of (valid from, price), ascending."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Holds types and list prices; ``Catalogue.bundled()`` returns those that ship with the program."""

    instance_types: Mapping[tuple[str, str], InstanceType]
    """Keys are (cloud, name)."""
    list_prices: Mapping[tuple[str, str, str], _ListPrices]
    """Keys are (cloud, region, instance type)."""
    gpu_names: Mapping[tuple[str, str], str]
    """Keys are (cloud, name); types without GPUs are left out."""

    @classmethod
    def bundled(cls) -> Self:
        rows = _read_rows("instance_types.csv")
        types = {
            (row["cloud"], row["instance_type"]): InstanceType(
                cloud=row["cloud"],
                name=row["instance_type"],
                vcpus=int(row["vcpus"]),
                memory_gib=float(row["memory_gib"]),
                gpus=int(row["gpus"]),
            )
            for row in rows
        }
        gpu_names = {(row["cloud"], row["instance_type"]): row["gpu_name"] for row in rows if row["gpu_name"]}
        prices: dict[tuple[str, str, str], _ListPrices] = {}
        for row in _read_rows("on_demand.csv"):
            key = (row["cloud"], row["region"], row["instance_type"])
            valid = (parse_instant(row["valid_from"]), UsdPerHour(float(row["usd_hour"])))
            # Sorted by date, whatever the order of the file's rows.
            prices[key] = tuple(sorted((*prices.get(key, ()), valid)))
        return cls(types, prices, gpu_names)

    def instance_type(self, cloud: str, name: str) -> InstanceType | None:
        return self.instance_types.get((cloud, name))

    def on_demand(self, cloud: str, region: str, name: str, at: Instant) -> UsdPerHour | None:
        """Returns the list price in force at ``at``; None where none is known for that time."""
        prices = self.list_prices.get((cloud, region, name), ())
        # bisect_right: a price is in force from its very first instant on.
        index = bisect_right(prices, at, key=lambda valid: valid[0])
        return prices[index - 1][1] if index else None

    def list_price_caps(self, cloud: str, region: str, name: str) -> tuple[tuple[Instant, UsdPerHour], ...]:
        """Returns every list price after the time from which it was in force, ascending.

        They cap the spot prices that the store believes.
        """
        return self.list_prices.get((cloud, region, name), ())

    def instance_types_of(self, cloud: str) -> tuple[InstanceType, ...]:
        """Returns all known types of ``cloud``, by name."""
        mine = (found for (owner, _), found in self.instance_types.items() if owner == cloud)
        return tuple(sorted(mine, key=lambda found: found.name))


def bundled_egress() -> dict[tuple[str, str], float]:
    """Returns dollars per gigabyte sent, by cloud and by the border crossed: "zone", "region" or "cloud"."""
    return {(row["cloud"], row["to"]): float(row["usd_gb"]) for row in _read_rows("egress.csv")}


def _read_rows(file: str) -> list[dict[str, str]]:
    text = files(__name__).joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
