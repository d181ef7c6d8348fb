"""The bundled market is what its generator makes, says that it is generated, and is worth a demonstration."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from pricing_data.catalogue import Catalogue
from pricing_data.formats.traces import Recording
from pricing_data.model.market import Series
from pricing_data.model.rules import AWS_2016, default_rules
from pricing_data.model.units import HOUR_S, Instant
from pricing_data.snapshots import bundled_market, generate

START = Instant(generate.BEGIN + generate.EVENTFUL_FROM_S)


@pytest.fixture(scope="module")
def market() -> Recording:
    return bundled_market()


def on_demand(instance_type: str) -> float:
    price = Catalogue.bundled().on_demand("aws", "us-east-1", instance_type, generate.BEGIN)
    assert price is not None
    return price


def sample_prices(series: Series, begin: int, end: int, every_s: int = 60) -> np.ndarray:
    moments = np.arange(begin, end, every_s)
    return series.prices[np.searchsorted(series.times, moments, side="right") - 1]


def test_the_shipped_file_is_what_the_generator_makes() -> None:
    assert gzip.decompress(generate.FILE.read_bytes()).decode() == generate.market_csv()


def test_it_says_that_it_is_generated(market: Recording) -> None:
    assert market.generated
    assert "generated" in market.label
    assert "generated, not recorded" in generate.FILE.with_name("PROVENANCE.md").read_text(encoding="utf-8")


def test_it_is_clean_and_complete(market: Recording) -> None:
    assert (market.findings, market.rows_used) == ((), market.rows_read)
    assert len(market.series) == len(generate.MARKETS) == 9
    assert market.first == generate.BEGIN
    assert market.last - market.first > generate.DAYS * 24 * HOUR_S - HOUR_S
    assert default_rules("aws", market.first) == AWS_2016


def test_its_figures_are_those_its_provenance_states(market: Recording) -> None:
    for key, series in market.series.items():
        price = on_demand(key.instance_type)
        assert 120 <= np.median(np.diff(series.times)) <= 240
        assert 0.0001 <= np.median(np.abs(np.diff(series.prices))) <= 0.001
        assert 0.15 <= np.median(sample_prices(series, market.first, START)) / price <= 0.25
        assert 0 < series.prices.min() < series.prices.max() <= 10 * price
        spikes = np.count_nonzero((series.prices[1:] > price) & (series.prices[:-1] <= price))
        assert 1 <= spikes / generate.DAYS <= 4


def test_published_on_demand_prices_are_the_catalogue_s() -> None:
    for figures in generate.MARKETS:
        assert figures.on_demand == on_demand(figures.instance_type)


def test_four_hours_from_the_default_start_see_evictions_at_any_modest_bid(market: Recording) -> None:
    first_crossings = []
    for series in market.series.values():
        prices = sample_prices(series, START, START + 4 * HOUR_S)
        above = prices > prices[0] + 0.03
        assert np.count_nonzero(np.diff(above.astype(int)) == 1) >= 2
        first_crossings.append(int(np.argmax(above)))
    assert min(first_crossings) >= 10, "minutes of calm at the start"
    assert len(set(first_crossings)) == len(first_crossings), "markets take turns"
