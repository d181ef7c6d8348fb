"""Turns the SDK's messages into plain values, one row at a time.

A row that is not what the API promises is kept as the JSON it came in, after what is wrong with it, and keeps
no other row back. Does not know how messages are requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pricing_data.feeds.gcp.skus import MachineShape, Sku, Usage
from pricing_data.model.units import Instant, UsdPerHour, parse_instant

Found = TypeVar("Found")

_USAGES: Final = {str(usage): usage for usage in Usage}


@dataclass(frozen=True, slots=True)
class History:
    """Holds the prices and preemption rates of one zone and type. Intervals are [begin, end)."""

    prices: tuple[tuple[Instant, Instant, UsdPerHour], ...]
    rates: tuple[tuple[Instant, Instant, float], ...]
    unread: tuple[str, ...] = ()
    """The rows that were not understood, each after what is wrong with it."""


def read_rows(
    rows: Iterable[Any], reader: Callable[[Any], Found]
) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """Returns what ``reader`` makes of each row, and the text of those it rejects with a ValueError."""
    found: list[Found] = []
    unread: list[str] = []
    for row in rows:
        try:
            found.append(reader(row))
        except (ValueError, OverflowError) as error:
            unread.append(f"{error}: {_raw_json(row)}")
    return tuple(found), tuple(unread)


def parse_history(answer: Any) -> History:
    """Parses an answer of capacityHistory."""
    prices, odd_prices = read_rows(answer.price_history, _read_price)
    rates, odd_rates = read_rows(answer.preemption_history, _read_rate)
    return History(prices, rates, odd_prices + odd_rates)


def parse_shape(found: Any) -> MachineShape:
    """Parses a machine type."""
    gpus = tuple((gpu.guest_accelerator_type, gpu.guest_accelerator_count) for gpu in found.accelerators)
    return MachineShape(found.name, found.guest_cpus, found.memory_mb, gpus)


def parse_sku(found: Any) -> Sku | None:
    """Parses a SKU; None for what no VM is charged by: disks, licences, commitments, network."""
    usage = _USAGES.get(found.category.usage_type)
    if usage is None or found.category.resource_family != "Compute" or not found.pricing_info:
        return None
    timeline = [(_read_stamp(info.effective_time), _first_rate(info)) for info in found.pricing_info]
    unit = found.pricing_info[0].pricing_expression.usage_unit
    priced = tuple(sorted((at, nanos) for at, nanos in timeline if nanos is not None))
    return Sku(found.sku_id, found.description, usage, unit, tuple(found.service_regions), priced)


def _raw_json(row: Any) -> str:
    from google.protobuf import json_format

    return str(json_format.MessageToJson(row, indent=None, sort_keys=True))


def _read_stamp(stamp: Any) -> Instant:
    return Instant(int(stamp.seconds) + (1 if stamp.nanos else 0))


def _first_rate(info: Any) -> int | None:
    rates = info.pricing_expression.tiered_rates
    return _read_nanos(rates[0].unit_price) if rates and rates[0].start_usage_amount == 0 else None


def _read_nanos(money: Any) -> int:
    if money.currency_code != "USD":
        raise ValueError(f"a price in {money.currency_code or 'no currency'!r}, where dollars were asked for")
    return int(money.units) * 1_000_000_000 + int(money.nanos)


def _read_price(row: Any) -> tuple[Instant, Instant, UsdPerHour]:
    return *_read_interval(row), UsdPerHour(_read_nanos(row.list_price) / 1e9)


def _read_rate(row: Any) -> tuple[Instant, Instant, float]:
    rate = float(row.preemption_rate)
    if not row.HasField("preemption_rate") or not 0.0 <= rate <= 1.0:
        raise ValueError(f"a preemption rate of {rate!r}, where a share between 0 and 1 was promised")
    return *_read_interval(row), rate


def _read_interval(row: Any) -> tuple[Instant, Instant]:
    begin, end = parse_instant(row.interval.start_time), parse_instant(row.interval.end_time)
    if end < begin:
        raise ValueError(f"an interval that ends at {row.interval.end_time}, before it begins")
    return begin, end
