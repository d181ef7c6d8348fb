"""Price crossing on auction markets: beta of later windows and of zones as if never seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from pathlib import Path
from typing import Final

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.eviction.price.beta_table import beta_table
from bidbrain.eviction.price.confidence import predict_coming_week
from bidbrain.eviction.price.first_passage import PriceSteps
from bidbrain.model import BID_DELTAS
from pricing_data.formats.traces import read_trace
from pricing_data.model.market import Market, Series
from pricing_data.model.units import HOUR_S, Instant

DAY_S: Final = 86400


@dataclass(frozen=True, slots=True, eq=False)
class Auction:
    """One market of the auction era; all arrays are by delta."""

    market: Market
    given: Floats
    elsewhere: Floats
    """By the region's other zones; NaN where there is none."""
    happened: Floats
    average: Floats
    """What markets of the same file did in training, on average: the reference."""


def auctions(data: Path, horizon_s: int = HOUR_S) -> list[Auction]:
    """All auction markets with at least 500 prices."""
    found = []
    for file in ("aws-spot-2015/spot_prices", "aws-spot-2016q1/spot_prices", "aws-spot-2016mid/spot_prices"):
        recording = read_trace(data / f"{file}.csv.gz")
        history, last = recording.history, recording.last
        markets = [market for market in history.markets if len(history.series(market)) >= 500]
        trained, happened = {}, {}
        for market in markets:
            series = history.series(market)
            cut = Instant(int(series.times[0] + 0.6 * (last - series.times[0])))
            trained[market] = beta_table(series, cut, BID_DELTAS, horizon_s)
            happened[market] = _share_between(series, cut, last, horizon_s)
        average = np.mean(list(trained.values()), axis=0)
        for market in markets:
            same = [trained[m] for m in markets if m.instance_type == market.instance_type and m != market]
            elsewhere = np.mean(same, axis=0) if same else np.full(len(BID_DELTAS), np.nan)
            found.append(Auction(market, trained[market], elsewhere, happened[market], average))
    return found


def auction_skill(found: Sequence[Auction], name: str) -> float:
    """Brier skill over the average market, pooled over markets and deltas: exact, as shares are.

    With a share o lost, the Brier score of p is (p - o)^2 + o (1 - o).
    """
    happened = np.stack([one.happened for one in found])
    given = np.stack([getattr(one, name) for one in found])
    reference = np.stack([one.average for one in found])
    there = ~np.isnan(given)
    noise = happened * (1 - happened)
    ours, theirs = (given - happened) ** 2 + noise, (reference - happened) ** 2 + noise
    return 1.0 - float(ours[there].sum() / theirs[there].sum())


def weeks_within(data: Path, every: int = 1) -> tuple[int, int]:
    """(weeks, weeks within): each week's share, from the fourth on, against the interval given before it.

    Of every ``every``-th auction market, at five deltas.
    """
    inside = total = 0
    for path, market in _markets(data)[::every]:
        recording = read_trace(path, only=partial(eq, market))
        series = recording.history.series(market)
        for now in range(int(series.times[0]) + 21 * DAY_S, recording.last - 7 * DAY_S, 7 * DAY_S):
            known = PriceSteps.from_series(recording.history.as_of(Instant(now)).series(market), Instant(now))
            past, later = (
                beta_table(series, Instant(end), BID_DELTAS, HOUR_S) for end in (now, now + 7 * DAY_S)
            )
            before, after = (end - HOUR_S - int(series.times[0]) for end in (now, now + 7 * DAY_S))
            happened = (later * after - past * before) / (after - before)
            for delta, share in list(zip(BID_DELTAS, happened, strict=True))[::4]:
                given = predict_coming_week(known, delta, HOUR_S, HOUR_S)
                inside += given.low - 1e-9 <= share <= given.high + 1e-9
                total += 1
    return total, inside


def _share_between(series: Series, begin: Instant, end: Instant, horizon_s: int) -> Floats:
    """Returns the share of the starts whose outcome was settled between the two, by delta."""
    until, later = (beta_table(series, now, BID_DELTAS, horizon_s) for now in (begin, end))
    before, after = (int(now) - horizon_s - int(series.times[0]) for now in (begin, end))
    return (later * after - until * before) / (after - before)


def _markets(data: Path) -> list[tuple[Path, Market]]:
    """The markets with at least 500 prices, and the files they are in."""
    found = []
    for folder in ("aws-spot-2015", "aws-spot-2016q1", "aws-spot-2016mid"):
        path = data / folder / "spot_prices.csv.gz"
        history = read_trace(path).history
        found += [(path, market) for market in history.markets if len(history.series(market)) >= 500]
    return found


def report(data: Path) -> None:
    """Print what was given, what happened, and whether the intervals held it."""
    found = auctions(data)
    gaps = np.abs(np.stack([one.given - one.happened for one in found]))
    print(f"\nauction era: {len(found)} markets, {len(BID_DELTAS)} deltas, 1 h, exact shares of all starts")
    print(
        f"later windows: mean |given - happened| {gaps.mean():.3f}, skill {auction_skill(found, 'given'):.3f}"
    )
    print(f"unseen zones: skill {auction_skill(found, 'elsewhere'):.3f} over the average market")
    given, happened = (np.concatenate([getattr(one, n) for one in found]) for n in ("given", "happened"))
    print("      given   shares    given  happened")
    for low in np.arange(0, 1, 0.1):
        here = (given >= low) & (given < low + 0.1)
        if here.any():
            print(
                f"{low:5.1f}-{low + 0.1:3.1f} {here.sum():8d} {given[here].mean():8.3f} "
                f"{happened[here].mean():9.3f}"
            )
    weeks, within = weeks_within(data)
    print(
        f"intervals: {within} of {weeks} weeks' shares ({within / weeks:.1%}) within the 95 % interval given"
    )
