"""Tables of expected costs: made from the store, kept beside it, never older than it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from pricing_data.formats.batches import Batch, ListPrice, OnDemandBatch, Rate, RateBatch, TypeBatch, TypeRow
from pricing_data.formats.layouts import Semantics
from pricing_data.model.market import InstanceType, Market, Series
from pricing_data.model.rules import AWS, AWS_2016
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour, parse_instant
from pricing_data.store.evictions import EvictionCounts
from pricing_data.store.store import PriceStore
from spotctl.job.spec import Amount
from spotctl.prices import market_table_build
from spotctl.prices.advice import NO_CORES, NO_GPU_NAME, Gpu, Wish, advise
from spotctl.prices.estimates import Basis, PublishedRate, from_crossings, from_rate
from spotctl.prices.market_table import MarketTable
from spotctl.prices.published_rates import AVERAGED_S, PublishedRates
from spotctl.prices.quotes import GONE, list_quotes

START = parse_instant("2026-11-01")
NOW = parse_instant("2026-11-02")
DAY_S = 24 * HOUR_S
HOUR = Seconds(float(HOUR_S))
MONTH_S = Seconds(30.0 * DAY_S)
CHEAP = Market("aws", "us-east-1", "us-east-1a", "c5.xlarge")
DEAR = Market("aws", "us-east-1", "us-east-1b", "c5.xlarge")
RISKY = Market("aws", "us-east-1", "us-east-1a", "c5.2xlarge")
GPU_BOX = Market("gcp", "us-central1", "us-central1", "a2-highgpu-1g")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PriceStore:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path))
    store = PriceStore(tmp_path / "prices")
    store.add_prices(prices({CHEAP: [(START, 0.04)], DEAR: [(START, 0.05)], RISKY: [(START, 0.05)]}))
    store.add_prices(prices({GPU_BOX: [(START, 1.2)]}, "poll", Semantics.POLLED))
    store.add_types(
        TypeBatch(
            "test",
            (
                TypeRow(InstanceType("aws", "c5.xlarge", 4, 8.0)),
                TypeRow(InstanceType("aws", "c5.2xlarge", 8, 16.0)),
                TypeRow(InstanceType("gcp", "a2-highgpu-1g", 12, 85.0, 1), "NVIDIA A100"),
            ),
            START,
        )
    )
    return store


def prices(
    rows: dict[Market, list[tuple[int, float]]],
    source: str = "test",
    semantics: Semantics = Semantics.EVENT_STREAM,
) -> Batch:
    markets = tuple(rows)
    flat = [(code, at, price) for code, market in enumerate(markets) for at, price in rows[market]]
    codes, times, values = (np.array(column) for column in zip(*flat, strict=True))
    return Batch(source, semantics, markets, codes, times, values.astype(float), times)


def rate(market: Market, low: float, high: float, *, days: int = 1, per_s: Seconds = MONTH_S) -> Rate:
    return Rate(market, Instant(START - DAY_S), Instant(START + days * DAY_S), low, high, per_s, START)


def region(market: Market) -> Market:
    return Market(market.cloud, market.region, market.region, market.instance_type)


# ---- evidence -----------------------------------------------------------------------------------


def test_a_rate_is_a_constant_hazard_of_its_band() -> None:
    """Half of the machines within two hours: 1 - sqrt(1/2) within one."""
    found = from_rate(AWS, UsdPerHour(1.0), PublishedRate(0.0, 0.5, 2 * HOUR, "x"), HOUR)
    assert found.basis is Basis.RATE
    assert found.beta == found.high == pytest.approx(1 - math.sqrt(0.5))
    assert found.low == 0.0
    hazard = math.log(2) / 2  # per hour
    uptime_h = (1 - math.exp(-hazard)) / hazard
    free_h = uptime_h - math.exp(-hazard)  # AWS charges nothing for a first hour that it ends itself
    useful_h = uptime_h - found.beta * 120 / HOUR_S
    assert found.usd_per_useful_hour == pytest.approx((uptime_h - free_h) / useful_h)


def test_a_band_without_an_upper_end_promises_nothing() -> None:
    found = from_rate(AWS, UsdPerHour(1.0), PublishedRate(0.2, 1.0, MONTH_S, "x"), HOUR)
    assert (found.basis, found.high) == (Basis.OPEN_RATE, 1.0)
    assert found.beta == found.low > 0


def test_crossings_look_back_no_more_than_ninety_days() -> None:
    """Daily spikes until a hundred days ago, none since."""
    start = parse_instant("2015-03-01")
    rows: list[tuple[int, float]] = []
    for day in range(100):
        rows += [
            (start + day * DAY_S, 0.1),
            (start + day * DAY_S + HOUR_S, 0.5),
            (start + day * DAY_S + 7200, 0.1),
        ]
    times, values = zip(*rows, strict=True)

    series = Series(np.array(times, np.int64), np.array(values))
    quiet = from_crossings(AWS_2016, UsdPerHour(0.1), series, Instant(start + 200 * DAY_S), HOUR, "x")
    assert (quiet.beta, quiet.usd_per_useful_hour) == pytest.approx((0.0, 0.1))
    then = from_crossings(AWS_2016, UsdPerHour(0.1), series, Instant(start + 100 * DAY_S), HOUR, "x")
    assert then.beta == pytest.approx(1 / 24, rel=0.05)


def test_of_several_rates_the_nearest_and_newest_counts(store: PriceStore) -> None:
    zone, wide = rate(CHEAP, 0.1, 0.2), rate(region(CHEAP), 0.0, 0.05)
    older = rate(region(CHEAP), 0.3, 0.4, days=0)
    store.add_rates(RateBatch("b", (wide, older)))
    store.add_rates(RateBatch("a", (zone,)))
    store.add_rates(RateBatch("a, before", (rate(CHEAP, 0.5, 0.6, days=0),)))
    rates = PublishedRates.from_pairs(store.evictions.newest_rates(AVERAGED_S))
    until = Instant(START + DAY_S)
    assert rates.of_market(CHEAP) == PublishedRate(0.1, 0.2, MONTH_S, "a", until)
    assert rates.of_market(DEAR) == PublishedRate(0.0, 0.05, MONTH_S, "b", until)
    assert rates.of_market(RISKY) is None
    assert store.evictions.counts() == {"aws": EvictionCounts(rates=4, probes=0, lifetimes=0)}


def test_daily_figures_are_averaged_by_time(store: PriceStore) -> None:
    days = ((-60, 1, 0.9), (0, 1, 0.1), (1, 1, 0.3), (2, 2, 0.5))
    figures = tuple(
        Rate(
            CHEAP,
            Instant(START + day * DAY_S),
            Instant(START + (day + length) * DAY_S),
            share,
            share,
            Seconds(DAY_S),
            NOW,
        )
        for day, length, share in days
    )
    store.add_rates(RateBatch("gcp", figures))
    ((source, said),) = store.evictions.newest_rates(AVERAGED_S)
    assert (source, said.begin, said.end) == ("gcp", START, START + 4 * DAY_S)
    found = PublishedRates.from_pairs([(source, said)]).of_market(CHEAP)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.35, 0.35))


# ---- tables -------------------------------------------------------------------------------------


def test_known_risks_first_then_open_bands_then_unknown_ones(store: PriceStore) -> None:
    store.add_rates(RateBatch("advisor", (rate(region(DEAR), 0.0, 0.05), rate(region(RISKY), 0.2, 1.0))))
    store.add_prices(prices({Market("aws", "us-east-1", "us-east-1a", "x9.huge"): [(START, 0.001)]}))
    answer = advise(market_table_build.current_table(HOUR).table, Wish(), NOW, 10)
    assert [(found.row.market, found.row.estimate.basis) for found in answer.ranked] == [
        (CHEAP, "published rate"),
        (DEAR, "published rate"),
        (RISKY, "published rate, no upper end"),
        (GPU_BOX, "unknown"),
    ]
    assert answer.unranked == ((NO_CORES, 1),)
    assert answer.known == 5
    assert answer.ranked[0].row.estimate.source == "advisor"


@pytest.mark.usefixtures("store")
def test_wishes_are_kept() -> None:
    table = market_table_build.current_table(HOUR).table

    def fitting(**wish: object) -> set[str]:
        ranked = advise(table, Wish(**wish), NOW, 10).ranked  # type: ignore[arg-type]
        return {found.row.market.instance_type for found in ranked}

    assert fitting(cpus=Amount(8, True)) == {"c5.2xlarge", "a2-highgpu-1g"}
    assert fitting(cpus=Amount(4, False)) == {"c5.xlarge"}
    assert fitting(memory_gib=Amount(16, True)) == {"c5.2xlarge", "a2-highgpu-1g"}
    assert fitting(gpu=Gpu("a100", Amount(1, True))) == {"a2-highgpu-1g"}
    assert fitting(gpu=Gpu("V100", Amount(1, True))) == set()
    assert fitting(clouds=("gcp",)) == {"a2-highgpu-1g"}
    assert fitting(regions=("us-east-1",)) == {"c5.xlarge", "c5.2xlarge"}


def test_what_might_fit_is_not_left_out_silently(store: PriceStore) -> None:
    nameless = InstanceType("aws", "p9.large", 4, 60.0, 1)
    store.add_types(TypeBatch("test", (TypeRow(nameless),), START))
    markets = [Market("aws", "us-east-1", "us-east-1a", name) for name in ("p9.large", "x9.huge")]
    store.add_prices(prices({market: [(START, 1.0)] for market in markets}))
    table = market_table_build.current_table(HOUR).table
    answer = advise(table, Wish(gpu=Gpu("V100", Amount(1, True))), NOW, 10)
    assert answer.ranked == ()
    assert set(answer.unranked) == {(NO_CORES, 1), (NO_GPU_NAME, 1)}
    (any_gpu, other) = advise(table, Wish(gpu=Gpu("", Amount(1, True))), NOW, 10).ranked
    assert {any_gpu.row.market.instance_type, other.row.market.instance_type} == {"p9.large", "a2-highgpu-1g"}


@pytest.mark.usefixtures("store")
def test_gpus_are_what_is_paid_for_when_they_are_wished_for() -> None:
    (found,) = advise(
        market_table_build.current_table(HOUR).table, Wish(gpu=Gpu("", Amount(1, True))), NOW, 10
    ).ranked
    assert found.usd_per_unit_hour == pytest.approx(1.2)


@pytest.mark.usefixtures("store")
def test_prices_grow_stale_by_what_kind_of_record_they_are_from() -> None:
    table = market_table_build.current_table(HOUR).table
    for days, stale in ((0.9, 0), (1.1, 3), (7.9, 3), (8.1, 4)):
        assert advise(table, Wish(), Instant(int(START + days * DAY_S)), 10).stale == stale


def test_stale_prices_rank_after_all_others(store: PriceStore) -> None:
    """However low they are, as those of recordings that are years old."""
    before = advise(market_table_build.current_table(HOUR).table, Wish(), NOW, 10)
    cheapest = before.ranked[0].row.market
    later = Instant(NOW + 5 * DAY_S)
    others = {found.row.market: found.row.last.price for found in before.ranked[1:]}
    store.add_prices(prices({market: [(later, price)] for market, price in others.items()}))
    answer = advise(market_table_build.current_table(HOUR).table, Wish(), later, 10)
    assert answer.ranked[-1].row.market == cheapest
    assert [found.stale for found in answer.ranked] == [False] * len(others) + [True]


def test_a_table_never_outlives_a_change_of_the_store(store: PriceStore) -> None:
    before = market_table_build.current_table(HOUR).table
    assert market_table_build.current_table(HOUR).table.fingerprint == before.fingerprint
    store.add_prices(prices({CHEAP: [(NOW, 0.09)]}))
    after = market_table_build.current_table(HOUR).table
    assert {row.market: row.last.price for row in after}[CHEAP] == 0.09
    assert {row.market: row.last.price for row in before}[CHEAP] == 0.04


def test_a_file_that_a_fetch_removes_meanwhile_stops_no_advice(store: PriceStore) -> None:
    """A link to nothing is a file that is listed, and gone when it is looked at."""
    before = market_table_build.store_fingerprint(store.root)
    (store.root / "incoming" / "merged.parquet").symlink_to(store.root / "gone")
    assert market_table_build.store_fingerprint(store.root) == before


def test_every_horizon_that_was_asked_for_is_kept_up(store: PriceStore) -> None:
    market_table_build.current_table(Seconds(7200.0))
    store.add_prices(prices({CHEAP: [(NOW, 0.09)]}))
    market_table_build.refresh_tables(store)
    mark = market_table_build.store_fingerprint(store.root)
    for horizon in (3600, 7200):
        kept = MarketTable.load(store.root.parent / "advice" / f"{horizon}.npz")
        assert kept is not None
        assert (kept.fingerprint, kept.horizon_s) == (mark, horizon)


def test_a_damaged_table_is_made_again(store: PriceStore) -> None:
    market_table_build.refresh_tables(store)
    path = store.root.parent / "advice" / "3600.npz"
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"x" * 100, whole[:100] + b"\0" * 200 + whole[300:]):
        path.write_bytes(damaged)
        assert len(market_table_build.current_table(HOUR).table) == 4


def test_crossings_of_unchanged_markets_are_taken_over(tmp_path: Path) -> None:
    store = PriceStore(tmp_path / "prices")
    start = parse_instant("2016-06-01")
    hourly = [(start + n * HOUR_S, 0.1 if n % 24 else 0.5) for n in range(240)]
    elsewhere = Market("aws", "us-west-2", "us-west-2a", DEAR.instance_type)
    store.add_prices(prices({CHEAP: hourly, elsewhere: hourly}))
    path = tmp_path / "advice" / "3600.npz"
    market_table_build.refresh_tables(store)
    first = MarketTable.load(path)
    assert first is not None
    marked = {**first.columns, "beta": np.full(2, 0.123)}
    MarketTable(first.fingerprint, HOUR, marked).save(path)
    store.add_prices(prices({elsewhere: [(start + 300 * HOUR_S, 0.2)]}))
    market_table_build.refresh_tables(store)
    second = MarketTable.load(path)
    assert second is not None
    betas = {row.market: row.estimate.beta for row in second}
    assert betas[CHEAP] == 0.123
    assert betas[elsewhere] != 0.123


# ---- quotes -------------------------------------------------------------------------------------


def test_what_was_delisted_or_failed_a_check_is_in_doubt(store: PriceStore) -> None:
    store.add_on_demand(
        OnDemandBatch("test", (ListPrice("aws", "us-east-1", "c5.xlarge", UsdPerHour(0.17), START),), START)
    )
    store.add_prices(prices({DEAR: [(NOW, 0.5)], GPU_BOX: [(NOW, math.nan)]}))
    doubts = {quote.market: quote.doubt for quote in list_quotes(store)}
    assert doubts == {
        CHEAP: "",
        RISKY: "",
        DEAR: "its newest row failed a check: above what the market allowed",
        GPU_BOX: GONE,
    }
    answer = advise(market_table_build.current_table(HOUR).table, Wish(), NOW, 10)
    assert {found.row.market for found in answer.ranked} == {CHEAP, RISKY}


def test_a_poll_has_seen_what_did_not_change(store: PriceStore) -> None:
    other = Market("gcp", "us-central1", "us-central1", "n2-standard-8")
    elsewhere = Market("gcp", "us-west1", "us-west1", "n2-standard-8")
    store.add_prices(prices({other: [(NOW, 0.1)], elsewhere: [(START, 0.1)]}, "poll", Semantics.POLLED))
    seen = {quote.market: quote.observed for quote in list_quotes(store)}
    assert (seen[GPU_BOX], seen[other], seen[elsewhere]) == (NOW, NOW, START)


def test_a_market_of_an_event_stream_is_not_seen_by_a_recording_that_goes_on_without_it(
    store: PriceStore,
) -> None:
    batch = prices({Market("aws", "eu-west-1", "eu-west-1a", "c5.xlarge"): [(START, 0.1)]})
    late = Batch(
        batch.source,
        batch.semantics,
        batch.markets,
        batch.codes,
        batch.times,
        batch.prices,
        batch.times + 20 * DAY_S,
    )
    store.add_prices(late)
    (quote,) = (quote for quote in list_quotes(store) if quote.market.region == "eu-west-1")
    assert quote.observed == START + 2 * DAY_S
