"""How fast beta is tabulated for all bid deltas, beside the time to read the arrays it is made from.

Recorded prices (``SPOTCTL_DATA``, or ../shared/data) are tiled to five million points; seconds are processor
time of one core. Aim: five million points a second, every delta, exactly.
"""

from __future__ import annotations

import os
import statistics
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Final

import numpy as np

from bidbrain.eviction.price.beta_table import beta_table
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.model import BID_DELTAS
from pricing_data.formats.traces import read_trace
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.units import HOUR_S, Instant

POINTS: Final = 5_000_000
HORIZONS_S: Final = (600, HOUR_S, 2 * HOUR_S, 20 * HOUR_S)
_RECORDED: Final = (
    ("aws-spot-2015", "c3.xlarge"),
    ("aws-spot-2016q1", "g2.8xlarge"),
    ("aws-spot-2016mid", "m4.xlarge"),
)


def main() -> None:
    """Print points per second, the ratio to reading the arrays, and the memory it took beside them."""
    root = Path(__file__).resolve().parents[2]
    data = Path(os.environ.get("SPOTCTL_DATA") or root.parent / "shared" / "data")
    print(f"{POINTS / 1e6:.0f} M points, {len(BID_DELTAS)} deltas, seconds of one core")
    for folder, kind in _RECORDED:
        market = Market("aws", "us-east-1", "us-east-1a", kind)
        recording = read_trace(data / folder / "spot_prices.csv.gz", only=partial(eq, market))
        series = recording.history.series(market)
        _check(recording.history, market, recording.last)
        _measure(f"{folder} {kind}", _tiled(series, recording.last))


def _measure(name: str, series: Series) -> None:
    now = Instant(int(series.times[-1]) + max(HORIZONS_S) + HOUR_S)
    read_s = _median(lambda: (series.prices.sum(), series.times.sum()))
    for horizon_s in HORIZONS_S:
        taken_s = _median(partial(beta_table, series, now, BID_DELTAS, horizon_s))
        print(
            f"{name:28} {horizon_s / HOUR_S:5.2f} h {POINTS / taken_s / 1e6:6.1f} M points/s {taken_s:.3f} s "
            f"= {taken_s / read_s:4.0f} x reading the arrays ({read_s * 1000:.1f} ms)"
        )
    tracemalloc.start()
    beta_table(series, now, BID_DELTAS, HOUR_S)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    held = series.times.nbytes + series.prices.nbytes
    print(f"{name:28} {peak / 2**20:.1f} MiB beside the {held / 2**20:.0f} MiB of the arrays")


def _check(history: PriceHistory, market: Market, now: Instant) -> None:
    """The untiled market, one delta at a time."""
    fitted = PriceCrossing().fit(history, now)
    table = beta_table(history.series(market), now, BID_DELTAS, HOUR_S)
    betas = [fitted.eviction_probability(market, delta, 0, HOUR_S) for delta in BID_DELTAS]
    assert np.allclose(table, betas, rtol=0, atol=1e-12)


def _tiled(series: Series, last: Instant) -> Series:
    copies = POINTS // len(series) + 1
    span = int(last - series.times[0]) + 300
    shifts = np.repeat(np.arange(copies) * span, len(series))
    times = np.tile(series.times, copies) + shifts
    return Series(times[:POINTS], np.tile(series.prices, copies)[:POINTS])


def _median(run: Callable[[], object], times: int = 3) -> float:
    """Of the processor time; what other processes take does not count."""

    def once() -> float:
        began = time.process_time()
        run()
        return time.process_time() - began

    return statistics.median(once() for _ in range(times))
