"""How fast advice is over a large store, each figure beside a reference that was measured in the same run.

20 000 markets: 2000 of the auctions' time with 500 steps each, the others of today with one; fifty of these
were probed every ten minutes for a month. Aim: the whole command within 1 s once the tables are made.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from pricing_data.formats.batches import Batch, Probe, ProbeBatch
from pricing_data.formats.layouts import Semantics
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Instant, parse_instant
from pricing_data.store.store import PriceStore
from spotctl.prices import market_table_build
from spotctl.prices.advice import Wish, advise

ROOT = Path(__file__).resolve().parents[2]
AUCTIONS, TODAY, STEPS, PROBED = 2000, 18_000, 500, 50
THEN, NOW = parse_instant("2016-05-01"), parse_instant("2026-11-01")
KINDS = ("c4.xlarge", "m4.xlarge", "c4.2xlarge", "c5.xlarge")


def main() -> None:
    """Print each figure and its reference."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPOTCTL_HOME"] = folder
        store = PriceStore(Path(folder) / "prices")
        store.add_prices(_batch(AUCTIONS, STEPS, THEN, "auctions"))
        today = _batch(TODAY, 1, NOW, "today")
        store.add_prices(today)
        read = _seconds(store.history)
        _say(
            "tables from nothing", _seconds(lambda: market_table_build.refresh_tables(store)), "history", read
        )
        probes = ProbeBatch("bench", tuple(_looks(today.markets[:PROBED])))
        _say("probes added", _seconds(lambda: store.add_probes(probes)), "history", read)
        _say(
            "tables with capacity seen",
            _seconds(lambda: market_table_build.refresh_tables(store)),
            "history",
            read,
        )
        store.add_prices(_batch(10, 1, NOW, "auctions"))
        _say(
            "tables after ten more rows",
            _seconds(lambda: market_table_build.refresh_tables(store)),
            "history",
            read,
        )
        table = market_table_build.current_table(market_table_build.DEFAULT_HORIZON_S).table
        assert len(table) == AUCTIONS + TODAY
        answer = advise(table, Wish(), NOW, 20)
        assert len(answer.ranked) == 20
        looked_up = min(_seconds(_answered) for _ in range(5))
        _say("advice, table loaded", looked_up, "history", read)
        started = min(_seconds(lambda: _command("--version")) for _ in range(3))
        asked = min(_seconds(lambda: _command("advise", "--json")) for _ in range(3))
        _say("spotctl advise", asked, "spotctl --version", started)


def _answered() -> None:
    advise(market_table_build.current_table(market_table_build.DEFAULT_HORIZON_S).table, Wish(), NOW, 20)


def _batch(markets: int, steps: int, begin: int, region: str) -> Batch:
    names = tuple(
        Market("aws", region, f"{region}-{n // len(KINDS)}", KINDS[n % len(KINDS)]) for n in range(markets)
    )
    rng = np.random.default_rng(steps)
    times = begin + np.tile(np.arange(steps), markets) * HOUR_S
    prices = rng.lognormal(-3.2, 0.15, len(times)).clip(0.01, 0.15).round(4)
    codes = np.repeat(np.arange(markets), steps)
    return Batch("bench", Semantics.EVENT_STREAM, names, codes, times, prices, times)


def _looks(markets: Sequence[Market]) -> Iterator[Probe]:
    rng = np.random.default_rng(len(markets))
    for market in markets:
        for at in range(NOW - 30 * 86400, NOW, 600):
            yield Probe(market, Instant(at), int(rng.random() > 0.05))


def _command(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "spotctl", *arguments], cwd=ROOT, check=True, capture_output=True, timeout=60
    )


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _say(what: str, took: float, reference: str, beside: float) -> None:
    print(f"{what:<30} {took:8.3f} s   {reference} {beside:.3f} s, {took / beside:.2f} times that")


if __name__ == "__main__":
    main()
