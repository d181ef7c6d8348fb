"""Makes the bundled market: auction-like prices that nobody ever paid, from published figures.

    python -m pricing_data.snapshots.generate

rewrites ``market.csv.gz``. It reads no recorded prices; ``PROVENANCE.md`` names every figure used. Only
uniform random numbers are drawn and everything is rounded to whole ticks of $0.0001, so that the file does
not depend on how a version of numpy draws its other distributions.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from pricing_data.model.units import HOUR_S, Instant, format_instant, parse_instant

FILE: Final = Path(__file__).with_name("market.csv.gz")
SEED: Final = 20160601
BEGIN: Final = parse_instant("2016-06-01")
DAYS: Final = 35
EVENTFUL_FROM_S: Final = 30 * 24 * HOUR_S
"""Seconds after BEGIN at which a demonstration starts, with 30 days of history behind it."""
EVENTFUL_S: Final = 8 * HOUR_S

_DAY_S: Final = 24 * HOUR_S
_MINUTE_S: Final = 60
_END_S: Final = DAYS * _DAY_S
_TICKS_PER_USD: Final = 10_000
_MEAN_GAP_S: Final = 260.0  # exponential gaps with this mean have a median of 180 s
_LARGEST_MOVE: Final = 10  # ticks
_SURGES_PER_DAY: Final = 4.0
_CAP: Final = 10.0  # times on-demand; EC2 accepted no higher bid
_ARRANGED_EVERY_S: Final = 80 * _MINUTE_S
_CALM_START_S: Final = 12 * _MINUTE_S

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Figures:
    """Holds what is published about a market (its on-demand price), and what we set for it."""

    instance_type: str
    zone: str
    on_demand: float
    """Dollars per hour."""
    share: float
    """Usual spot price as a share of the on-demand price."""


MARKETS: Final = (
    Figures("c4.xlarge", "us-east-1a", 0.209, 0.200),
    Figures("c4.xlarge", "us-east-1b", 0.209, 0.190),
    Figures("c4.xlarge", "us-east-1d", 0.209, 0.225),
    Figures("c4.2xlarge", "us-east-1a", 0.419, 0.205),
    Figures("c4.2xlarge", "us-east-1b", 0.419, 0.210),
    Figures("c4.2xlarge", "us-east-1d", 0.419, 0.195),
    Figures("m4.xlarge", "us-east-1a", 0.239, 0.170),
    Figures("m4.xlarge", "us-east-1b", 0.239, 0.185),
    Figures("m4.xlarge", "us-east-1d", 0.239, 0.165),
)


@dataclass(frozen=True, slots=True)
class Surge:
    """Describes a time of higher bids: the price stands ``lift`` ticks above its usual course."""

    begins_s: int
    ends_s: int
    lift: int


def market_csv() -> str:
    """Returns the whole file as text; the same at every call."""
    lines = ["timestamp_utc,region,zone,instance_type,product,price_usd_hour"]
    for number, figures in enumerate(MARKETS):
        # One generator per market: adding a market leaves the others' prices as they are.
        rng = np.random.Generator(np.random.PCG64([SEED, number]))
        times, course = _usual_course(figures, rng)
        surges = [*_random_surges(figures, rng), *_arranged_surges(figures, rng, number)]
        for after_s, ticks in _apply_surges(times, course, surges, figures):
            at = format_instant(Instant(BEGIN + after_s))
            price = f"{ticks / _TICKS_PER_USD:.4f}"
            lines.append(f"{at},us-east-1,{figures.zone},{figures.instance_type},Linux/UNIX,{price}")
    return "\n".join(lines) + "\n"


def _usual_course(figures: Figures, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Returns small moves every few minutes around a level that follows the time of day: (seconds, ticks)."""
    usual = figures.on_demand * figures.share * _TICKS_PER_USD
    phase, at, ticks = rng.random(), 0, round(usual)
    times, course = [at], [ticks]
    while True:
        # Exponential gaps made of a uniform number: numpy's own exponential may change between versions.
        at += 1 + int(-math.log1p(-rng.random()) * _MEAN_GAP_S)
        if at >= _END_S:
            return np.array(times, np.int64), np.array(course, np.int64)
        level = usual * (1 + 0.08 * math.sin(2 * math.pi * (at / _DAY_S + phase)))
        # The further from its level, the likelier a move goes back to it.
        pull = (ticks - level) / (0.1 * usual)
        move = 1 + int(_LARGEST_MOVE * rng.random() ** 3)
        ticks += move if rng.random() < 0.5 - 0.45 * max(-1.0, min(1.0, pull)) else -move
        times.append(at)
        course.append(ticks)


def _random_surges(figures: Figures, rng: np.random.Generator) -> Iterator[Surge]:
    """Yields surges at any time but the eventful hours; half of them spikes above on-demand."""
    at = 0
    while True:
        at += 1 + int(-math.log1p(-rng.random()) * _DAY_S / _SURGES_PER_DAY)
        surge = _make_spike(figures, rng, at) if rng.random() < 0.5 else _make_swell(figures, rng, at)
        if at >= _END_S:
            return
        if not EVENTFUL_FROM_S <= surge.ends_s < EVENTFUL_FROM_S + EVENTFUL_S + HOUR_S:
            yield surge


def _arranged_surges(figures: Figures, rng: np.random.Generator, number: int) -> Iterator[Surge]:
    """Yields a surge about every 80 minutes of the eventful hours, each market in its own turn."""
    turn_s = _CALM_START_S + number * _ARRANGED_EVERY_S // len(MARKETS)
    last_s = EVENTFUL_S - HOUR_S
    for index, slot_s in enumerate(range(turn_s, last_s, _ARRANGED_EVERY_S)):
        at = EVENTFUL_FROM_S + slot_s + int(rng.random() * 5 * _MINUTE_S)
        make = _make_spike if (index + number) % 2 else _make_swell
        yield make(figures, rng, at)


def _make_spike(figures: Figures, rng: np.random.Generator, at: int) -> Surge:
    """Raises the price to 1.1 to 6 times on-demand, low ones being common, for 5 to 40 minutes."""
    peak = figures.on_demand * (1.1 + 4.9 * rng.random() ** 3)
    lift = peak - figures.on_demand * figures.share
    return Surge(at, at + int((5 + 35 * rng.random()) * _MINUTE_S), round(lift * _TICKS_PER_USD))


def _make_swell(figures: Figures, rng: np.random.Generator, at: int) -> Surge:
    """Raises the price by a fifth to a half of on-demand, staying below it, for 10 to 60 minutes."""
    lift = figures.on_demand * (0.2 + 0.3 * rng.random())
    return Surge(at, at + int((10 + 50 * rng.random()) * _MINUTE_S), round(lift * _TICKS_PER_USD))


def _apply_surges(
    times: Ints, course: Ints, surges: Sequence[Surge], figures: Figures
) -> Iterator[tuple[int, int]]:
    """Yields the price steps (seconds, ticks) of the usual course under its surges; the highest counts."""
    edges = [edge for surge in surges for edge in (surge.begins_s, surge.ends_s) if edge < _END_S]
    moments = np.union1d(times, np.array(edges, np.int64))
    lift = np.zeros(len(moments), np.int64)
    for surge in surges:
        within = slice(*np.searchsorted(moments, (surge.begins_s, surge.ends_s)))
        # Surges do not add up: the highest bid sets the price.
        lift[within] = np.maximum(lift[within], surge.lift)
    ticks = course[np.searchsorted(times, moments, side="right") - 1] + lift
    ticks = np.minimum(ticks, round(_CAP * figures.on_demand * _TICKS_PER_USD))
    changed = np.concatenate(([True], np.diff(ticks) != 0))
    yield from zip(moments[changed].tolist(), ticks[changed].tolist(), strict=True)


def main() -> None:
    FILE.write_bytes(gzip.compress(market_csv().encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main()
