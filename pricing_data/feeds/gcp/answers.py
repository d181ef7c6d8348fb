"""The SDK's messages as plain values, one row at a time.

A row that does not say what the API promises is left as the JSON it came in, after what is wrong with it,
and keeps no other row back. Refuses to know how messages are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pricing_data.feeds.gcp.skus import Shape, Sku, Usage
from pricing_data.model.units import Instant, UsdPerHour, parse_instant

Found = TypeVar("Found")

_USAGES: Final = {str(usage): usage for usage in Usage}


@dataclass(frozen=True, slots=True)
class History:
    """What one zone and type went through. Intervals are [begin, end)."""

    prices: tuple[tuple[Instant, Instant, UsdPerHour], ...]
    rates: tuple[tuple[Instant, Instant, float], ...]
    unread: tuple[str, ...] = ()
    """The rows that were not understood, each after what is wrong with it."""


def read(rows: Iterable[Any], reader: Callable[[Any], Found]) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """What ``reader`` makes of each of ``rows``, and the text of those it refuses with a ValueError."""
    found: list[Found] = []
    unread: list[str] = []
    for row in rows:
        try:
            found.append(reader(row))
        except (ValueError, OverflowError) as error:
            unread.append(f"{error}: {_raw(row)}")
    return tuple(found), tuple(unread)


def history(answer: Any) -> History:
    """An answer of capacityHistory."""
    prices, odd_prices = read(answer.price_history, _price)
    rates, odd_rates = read(answer.preemption_history, _rate)
    return History(prices, rates, odd_prices + odd_rates)


def shape(found: Any) -> Shape:
    """A machine type."""
    gpus = tuple((gpu.guest_accelerator_type, gpu.guest_accelerator_count) for gpu in found.accelerators)
    return Shape(found.name, found.guest_cpus, found.memory_mb, gpus)


def sku(found: Any) -> Sku | None:
    """None for what no VM is charged by: disks, licences, commitments, network."""
    usage = _USAGES.get(found.category.usage_type)
    if usage is None or found.category.resource_family != "Compute" or not found.pricing_info:
        return None
    timeline = [(_seconds(info.effective_time), _first_rate(info)) for info in found.pricing_info]
    unit = found.pricing_info[0].pricing_expression.usage_unit
    priced = tuple(sorted((at, nanos) for at, nanos in timeline if nanos is not None))
    return Sku(found.sku_id, found.description, usage, unit, tuple(found.service_regions), priced)


def _raw(row: Any) -> str:
    from google.protobuf import json_format

    return str(json_format.MessageToJson(row, indent=None, sort_keys=True))


def _seconds(stamp: Any) -> Instant:
    return Instant(int(stamp.seconds) + (1 if stamp.nanos else 0))


def _first_rate(info: Any) -> int | None:
    rates = info.pricing_expression.tiered_rates
    return _nanos(rates[0].unit_price) if rates and rates[0].start_usage_amount == 0 else None


def _nanos(money: Any) -> int:
    if money.currency_code != "USD":
        raise ValueError(f"a price in {money.currency_code or 'no currency'!r}, where dollars were asked for")
    return int(money.units) * 1_000_000_000 + int(money.nanos)


def _price(row: Any) -> tuple[Instant, Instant, UsdPerHour]:
    return *_interval(row), UsdPerHour(_nanos(row.list_price) / 1e9)


def _rate(row: Any) -> tuple[Instant, Instant, float]:
    rate = float(row.preemption_rate)
    if not row.HasField("preemption_rate") or not 0.0 <= rate <= 1.0:
        raise ValueError(f"a preemption rate of {rate!r}, where a share between 0 and 1 was promised")
    return *_interval(row), rate


def _interval(row: Any) -> tuple[Instant, Instant]:
    begin, end = parse_instant(row.interval.start_time), parse_instant(row.interval.end_time)
    if end < begin:
        raise ValueError(f"an interval that ends at {row.interval.end_time}, before it begins")
    return begin, end
