"""What was seen of capacity decides in markets whose prices do not evict; where it is old that is said."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bidbrain.eviction.selector import EstimatorSelector
from pricing_data.formats.availability import read_grid
from pricing_data.formats.batches import LifetimeBatch, MachineLifetime, Probe, ProbeBatch, Rate, RateBatch
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.rules import AWS
from pricing_data.model.units import HOUR_S, Instant, parse_instant
from pricing_data.store.store import PriceStore
from spotctl.prices import market_table_build
from spotctl.prices.advice import Wish, advise
from spotctl.prices.estimates import Estimate
from spotctl.prices.market_table import MarketTable
from tests.spotctl.prices.test_market_table import (
    CHEAP,
    DAY_S,
    DEAR,
    GPU_BOX,
    HOUR,
    MONTH_S,
    NOW,
    START,
    prices,
    rate,
    region,
    store,
)

__all__ = ["store"]


def probed(market: Market, *, every: int, days: int = 30, until: int = NOW) -> ProbeBatch:
    """Looks every ten minutes; one in ``every`` finds nothing."""
    times = np.arange(until - days * DAY_S, until + 1, 600)
    found = np.random.default_rng(every).random(len(times)) > 1 / every
    rows = zip(times.tolist(), found.tolist(), strict=True)
    return ProbeBatch("prober", tuple(Probe(market, Instant(at), int(there)) for at, there in rows))


def found_in(table: MarketTable) -> dict[Market, Estimate]:
    return {row.market: row.estimate for row in table}


def test_what_was_seen_of_capacity_is_believed_before_what_is_published(store: PriceStore) -> None:
    store.add_rates(RateBatch("advisor", (rate(region(CHEAP), 0.0, 0.05),)))
    store.add_probes(probed(CHEAP, every=12))
    rows = found_in(market_table_build.current_table(HOUR).table)
    seen, published = rows[CHEAP], rows[DEAR]
    later = Rate(region(CHEAP), NOW, Instant(NOW + 600 * DAY_S), 0.0, 0.05, MONTH_S, NOW)
    store.add_rates(RateBatch("advisor", (later,)))
    assert found_in(market_table_build.current_table(HOUR).table)[CHEAP].beta == seen.beta, (
        "as of when it was watched"
    )
    assert (seen.basis, published.basis) == ("observed capacity", "published rate")
    assert published.beta == pytest.approx(0.05 / 720, rel=0.05)
    assert 0.2 < seen.low < seen.beta < seen.high, "lost every two hours or so, whatever is published"
    assert "losses" in seen.source
    assert NOW - 2 * HOUR_S <= seen.until <= NOW
    assert rows[GPU_BOX].basis == "unknown"


def test_the_same_estimate_as_running_jobs_make(store: PriceStore) -> None:
    store.add_probes(probed(CHEAP, every=12))
    store.add_probes(probed(DEAR, every=50))
    seen = store.observations()
    now = Instant(max(int(seen.spells(market).ends.max()) for market in seen.markets))
    fitted = EstimatorSelector(AWS, seen).fit(PriceHistory.from_series({}), now)
    rows = found_in(market_table_build.current_table(HOUR).table)
    for market in (CHEAP, DEAR):
        beta = fitted.beta(market, 0.0, 0.0, HOUR)
        assert (rows[market].beta, rows[market].low, rows[market].high) == (beta.value, beta.low, beta.high)


def test_a_band_is_what_few_sightings_start_from(store: PriceStore) -> None:
    """A day without a loss tells nothing alone; with a band it halves its middle."""
    store.add_probes(probed(CHEAP, every=10_000, days=1))
    assert found_in(market_table_build.current_table(HOUR).table)[CHEAP].basis == "unknown"
    store.add_rates(RateBatch("advisor", (rate(region(CHEAP), 0.1, 0.2),)))
    row = found_in(market_table_build.current_table(HOUR).table)[CHEAP]
    assert (row.basis, row.source) == (
        "observed capacity",
        "advisor, and 0 losses seen here",
    )
    monthly = -(math.log1p(-0.1) + math.log1p(-0.2)) / 2
    assert row.beta == pytest.approx(-math.expm1(-monthly / 720 / 2), rel=1e-3)


def test_old_sightings_are_said_to_be_old(store: PriceStore) -> None:
    store.add_probes(probed(CHEAP, every=12))
    table = market_table_build.current_table(HOUR).table
    for days, stale in ((13, 0), (15, 1)):
        answer = advise(table, Wish(), Instant(NOW + days * DAY_S), 10)
        assert answer.evidence_stale == stale
        assert [found.row.market for found in answer.ranked if found.evidence_stale] == [CHEAP] * stale


def test_prices_that_clear_by_bid_evict_and_nothing_else_does(tmp_path: Path) -> None:
    store = PriceStore(tmp_path / "prices")
    start = parse_instant("2016-06-01")
    store.add_prices(prices({CHEAP: [(start + n * HOUR_S, 0.1 if n % 24 else 0.5) for n in range(240)]}))
    store.add_probes(probed(CHEAP, every=3, until=start + 9 * DAY_S))
    market_table_build.refresh_tables(store)
    table = MarketTable.load(tmp_path / "advice" / "3600.npz")
    assert table is not None
    assert found_in(table)[CHEAP].basis == "price crossings"


def test_estimates_are_taken_over_until_more_was_seen_or_the_price_changed(store: PriceStore) -> None:
    store.add_probes(probed(CHEAP, every=12))
    store.add_probes(probed(DEAR, every=12))
    market_table_build.refresh_tables(store)
    path = store.root.parent / "advice" / "3600.npz"

    def marked() -> None:
        """As if every estimate had been another."""
        table = MarketTable.load(path)
        assert table is not None
        columns = {**table.columns, "beta": np.full(len(table), 0.123)}
        MarketTable(table.fingerprint, HOUR, columns, table.watched).save(path)

    def betas() -> list[float]:
        market_table_build.refresh_tables(store)
        table = MarketTable.load(path)
        assert table is not None
        return [found_in(table)[market].beta for market in (CHEAP, DEAR)]

    marked()
    store.add_prices(prices({DEAR: [(NOW, 0.06)]}))
    same, changed = betas()
    assert same == 0.123
    assert changed != 0.123
    marked()
    store.add_probes(ProbeBatch("prober", (Probe(CHEAP, Instant(NOW + 600), 0),)))
    assert 0.123 not in betas()


def test_the_zones_that_lost_machines_are_told_from_those_that_kept_them(
    store: PriceStore, recorded_data: Path
) -> None:
    """V100s of February and March 2023: within an hour us-east-1c lost 37 in 100, us-west-2c 10."""
    folder = recorded_data / "skypilot-spot-traces" / "availability" / "1-node" / "aws-02-15-2023"
    began = parse_instant("2023-02-15")
    zones = {path.name.partition("_")[0]: path for path in sorted(folder.glob("*_v100_1.json.gz"))}
    markets = {zone: Market("aws", zone[:-1], zone, "p3.2xlarge") for zone in zones}
    for zone, path in zones.items():
        spells = read_grid(path, began)
        rows = zip(spells.begins.tolist(), spells.ends.tolist(), spells.lost.tolist(), strict=True)
        lives = (
            MachineLifetime(markets[zone], Instant(begin), Instant(end), lost) for begin, end, lost in rows
        )
        store.add_lifetimes(LifetimeBatch("probes, as spells", tuple(lives)))
    store.add_prices(prices({market: [(START, 1.0)] for market in markets.values()}))
    rows_of = found_in(market_table_build.current_table(HOUR).table)
    betas = {zone: rows_of[market].beta for zone, market in markets.items()}
    assert len(betas) == 6
    assert min(beta for zone, beta in betas.items() if zone.startswith("us-east-1")) > 0.3
    assert max(beta for zone, beta in betas.items() if not zone.startswith("us-east-1")) < 0.15
