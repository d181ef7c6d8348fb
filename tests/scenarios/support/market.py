"""A scripted market as a price file, and what a run over it owes by the rule's own words.

The bill here shares no code with the product: it reads the file again and counts in decimals.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from pricing_data.model.units import HOUR_S, Instant, format_instant, parse_instant
from spotctl.control import entries as e

START: Final = parse_instant("2016-06-06T00:00:00Z")
ZONES: Final = ("us-east-1a", "us-east-1b")
SPIKE: Final = 0.9
"""Dollars per hour: above every bid that is made at the quiet price."""
QUIET: Final = 0.04
_ON_DEMAND: Final = Decimal("0.120")
"""An m4.large in us-east-1 in June 2016."""
_PAST_DAYS: Final = 2
_STEP_S: Final = 300
_LASTS_S: Final = 30 * 24 * HOUR_S

Step = tuple[str, int, float]
"""(zone, seconds after START, price)."""


def write_prices(path: Path, steps: Sequence[Step] = (), types: Sequence[str] = ("c4.xlarge",)) -> None:
    """Two days of a varied past in every zone, then from START on the quiet price and ``steps``; all of
    ``types`` cost the same.
    """
    rng = np.random.default_rng(0)
    rows = []
    for zone in ZONES:
        past = range(START - _PAST_DAYS * 24 * HOUR_S, START, _STEP_S)
        above = rng.choice([0.0, 0.0005, 0.002, 0.02], size=len(past), p=[0.6, 0.3, 0.09, 0.01])
        rows += [(at, zone, QUIET + extra) for at, extra in zip(past, above.tolist(), strict=True)]
        after_start = [(0, QUIET), *((after, price) for where, after, price in steps if where == zone)]
        rows += [(START + after, zone, price) for after, price in after_start]
        rows.append((START + _LASTS_S, zone, after_start[-1][1]))
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("timestamp_utc", "region", "zone", "instance_type", "product", "price_usd_hour"))
        for at, zone, price in sorted(rows):
            stamp = format_instant(Instant(at))
            for kind in types:
                out.writerow((stamp, "us-east-1", zone, kind, "Linux/UNIX", f"{price:.4f}"))


class Owed(NamedTuple):
    """Dollars with six decimals, as the final object writes them."""

    total: str
    refunded: str


def owed(entries: Iterable[e.Entry], prices: Path) -> Owed:
    """What the machines of a ledger cost under the rules of 2016.

    Spot: "each hour at the price of its start", counted from the start of the instance, and "nothing for
    the hour in which EC2 evicts". On-demand: started hours.
    """
    zones, ran, ended = _lives(entries)
    steps = _steps(prices)
    total = refunded = Decimal(0)
    for name, began in ran.items():
        end = ended[name]
        for hour in range(began, end.at, HOUR_S):
            zone = zones[name]
            price = _ON_DEMAND if zone is None else [price for at, price in steps[zone] if at <= hour][-1]
            charge = price.quantize(Decimal("0.000001"), ROUND_HALF_UP)
            if end.end == "evicted" and end.at < hour + HOUR_S:
                refunded += charge
            else:
                total += charge
    return Owed(f"{total:.6f}", f"{refunded:.6f}")


def _lives(
    entries: Iterable[e.Entry],
) -> tuple[Mapping[str, str | None], Mapping[str, int], Mapping[str, e.InstancesEnded]]:
    """Of each instance: its zone (None: on-demand), when it began to run, and how it ended."""
    requests: dict[str, str | None] = {}
    zones: dict[str, str | None] = {}
    ran: dict[str, int] = {}
    ended: dict[str, e.InstancesEnded] = {}
    for entry in entries:
        match entry:
            case e.Acquire():
                requests[entry.allocation] = None if entry.bid is None else entry.market.zone
            case e.Granted():
                zones |= dict.fromkeys(entry.instances, requests[entry.allocation])
            case e.InstancesRunning():
                ran |= dict.fromkeys(entry.instances, entry.at)
            case e.InstancesEnded():
                ended |= dict.fromkeys(entry.instances, entry)
            case _:
                pass
    return zones, ran, ended


def _steps(prices: Path) -> Mapping[str, list[tuple[int, Decimal]]]:
    steps: dict[str, list[tuple[int, Decimal]]] = {zone: [] for zone in ZONES}
    with prices.open(newline="") as file:
        for row in csv.DictReader(file):
            at = parse_instant(row["timestamp_utc"])
            steps[row["zone"]].append((at, Decimal(row["price_usd_hour"])))
    return steps
