"""Reads recorded files of other facts than prices: eviction bands, on-demand prices, instance types.

As in price files the columns tell what a file is. A fact without a date cannot be told from a newer one, so a
file without dates needs one from outside. Does not guess: it rejects a type whose name implies GPUs in a file
that does not say how many.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pricing_data.formats.batches import ListPrice, OnDemandBatch, Rate, RateBatch, TypeBatch, TypeRow
from pricing_data.formats.csv_columns import CsvTable
from pricing_data.formats.quality import Flaw, UnreadableRow
from pricing_data.model.market import InstanceType, Market
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour, parse_instant

Fact = Rate | ListPrice | TypeRow
_Row = Mapping[str, str]

_MONTH_S: Final = 30 * 24 * HOUR_S
_BANDS: Final = {"0": (0.0, 0.05), "1": (0.05, 0.1), "2": (0.1, 0.15), "3": (0.15, 0.2), "4": (0.2, 1.0)}
"""AWS's Spot Advisor numbers its bands so: shares of instances interrupted in the month behind."""
_WITH_GPUS: Final = {"aws": re.compile(r"(p|g|gr|cg|dl)\d"), "azure": re.compile(r"Standard_N")}
"""Matches the beginnings of names of types that have GPUs (or may have)."""
_NO_GPUS: Final = frozenset({"machine_type", "cpu", "ram", "local-ssd", "type"})
"""All other columns of GCP's table count GPUs, and are named after them."""


@dataclass(frozen=True, slots=True)
class FactLayout:
    """Describes one kind of file. ``read`` makes a fact of a row and the given date.

    None: a row about another product than Linux. It raises ValueError where the row cannot be understood.
    """

    columns: tuple[str, ...]
    dated: bool
    read: Callable[[_Row, Instant], Fact | None]


@dataclass(frozen=True, slots=True)
class Facts:
    """Holds what a file says; ``rows_read = facts + unreadable + rows_left_out``."""

    rates: tuple[Rate, ...]
    list_prices: tuple[ListPrice, ...]
    types: tuple[TypeRow, ...]
    unreadable: tuple[UnreadableRow, ...]
    rows_left_out: int

    def as_batches(self, source: str, observed: Instant) -> tuple[RateBatch | OnDemandBatch | TypeBatch, ...]:
        """Returns the batches that are not empty."""
        return (
            *((RateBatch(source, self.rates),) if self.rates else ()),
            *((OnDemandBatch(source, self.list_prices, observed),) if self.list_prices else ()),
            *((TypeBatch(source, self.types, observed),) if self.types else ()),
        )


def read_facts(table: CsvTable, layout: FactLayout, as_of: Instant) -> Facts:
    """Reads every row of ``table``. ``as_of``: the date of facts without one."""
    found: list[Fact] = []
    # Lines with a wrong number of fields are accounted for first.
    odd: list[UnreadableRow] = list(table.unreadable_rows({Flaw.FIELDS: table.misshapen}))
    left_out = 0
    for number, fields in zip(table.numbers.tolist(), zip(*table.columns.values(), strict=True), strict=True):
        try:
            fact = layout.read(dict(zip(table.columns, fields, strict=True)), as_of)
        except (ValueError, OverflowError) as error:
            odd.append(UnreadableRow(Flaw.NOT_UNDERSTOOD, f"{error}: {table.lines[number - 1]}", number))
            continue
        if fact is None:
            left_out += 1
        else:
            found.append(fact)
    return Facts(
        rates=tuple(fact for fact in found if isinstance(fact, Rate)),
        list_prices=tuple(fact for fact in found if isinstance(fact, ListPrice)),
        types=tuple(fact for fact in found if isinstance(fact, TypeRow)),
        unreadable=tuple(odd),
        rows_left_out=left_out,
    )


def _parse_advisor(row: _Row, _: Instant) -> Rate | None:
    if row["os"] != "Linux":
        return None
    end, band = parse_instant(row["snapshot_date"]), _BANDS.get(row["interruption_bucket"])
    if band is None:
        raise ValueError(f"there is no band {row['interruption_bucket']!r}")
    market = Market("aws", row["region"], row["region"], row["instance_type"])
    return Rate(market, Instant(end - _MONTH_S), end, *band, Seconds(float(_MONTH_S)), end)


def _parse_on_demand(row: _Row, as_of: Instant) -> ListPrice:
    price = UsdPerHour(float(row["ondemand_usd_hour"]))
    return ListPrice("aws", row["region"], row["instance_type"], price, as_of)


def _parse_aws_type(row: _Row, _: Instant) -> TypeRow:
    gpus = int(row["gpu_count"] or 0)
    found = InstanceType("aws", row["instance_type"], int(row["vcpus"]), float(row["memory_gib"]), gpus)
    return TypeRow(found, row["gpu_name"])


def _type_parser(cloud: str, name: str, vcpus: str, memory: str) -> Callable[[_Row, Instant], TypeRow]:
    """Returns a parser for a table with these columns, which says nothing of GPUs."""

    def parse_type(row: _Row, _: Instant) -> TypeRow:
        if _WITH_GPUS[cloud].match(row[name]):
            raise ValueError("the file does not say how many GPUs it has")
        return TypeRow(InstanceType(cloud, row[name], int(row[vcpus]), float(row[memory])))

    return parse_type


def _parse_gcp_type(row: _Row, _: Instant) -> TypeRow:
    models = {name: int(count) for name, count in row.items() if name not in _NO_GPUS and count}
    gpus = sum(models.values())
    found = InstanceType("gcp", row["machine_type"], int(row["cpu"]), float(row["ram"]), gpus)
    return TypeRow(found, " ".join(name.upper() for name, count in models.items() if count))


FACT_LAYOUTS: Final = (
    FactLayout(
        ("snapshot_date", "region", "os", "instance_type", "interruption_bucket"), True, _parse_advisor
    ),
    FactLayout(("region", "instance_type", "ondemand_usd_hour"), False, _parse_on_demand),
    FactLayout(("instance_type", "vcpus", "memory_gib", "gpu_name", "gpu_count"), False, _parse_aws_type),
    FactLayout(
        ("instance_type", "vcpus", "ram_gb"),
        False,
        _type_parser("aws", "instance_type", "vcpus", "ram_gb"),
    ),
    FactLayout(("Name", "vCPUs", "MemoryGB"), False, _type_parser("azure", "Name", "vCPUs", "MemoryGB")),
    FactLayout(("machine_type", "cpu", "ram"), False, _parse_gcp_type),
)


def recognise_facts(header: Sequence[str]) -> FactLayout | None:
    """Returns the layout whose columns are all in ``header``; None where there is none."""
    return next((layout for layout in FACT_LAYOUTS if set(layout.columns) <= set(header)), None)
