"""How old a price is: from when its source last spoke of it, with a new row or without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pricing_data.formats.batches import Batch
from pricing_data.formats.layouts import Semantics
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, parse_instant
from pricing_data.store.store import PriceStore
from spotctl.prices.quotes import list_quotes

DAY_S = 86400
BEGIN = parse_instant("2026-10-01")
AZURE = Market("azure", "eastus", "eastus", "Standard_D2s_v5")
AWS = Market("aws", "us-east-1", "us-east-1a", "m5.large")


def said(market: Market, semantics: Semantics, day: int, observed_day: int) -> Batch:
    """One price of ``market``, at ``day``, in an answer of ``observed_day``."""
    at, seen = (np.array([BEGIN + n * DAY_S], np.int64) for n in (day, observed_day))
    return Batch("feed", semantics, (market,), np.array([0]), at, np.array([0.03]), seen)


@pytest.mark.parametrize(
    ("market", "semantics", "known_until", "stale"),
    [
        (AZURE, Semantics.EVENT_STREAM, 30, False),
        (AZURE, Semantics.POLLED, 30, False),
        (AWS, Semantics.EVENT_STREAM, 2, True),
    ],
)
def test_a_price_that_did_not_change_was_still_seen(
    tmp_path: Path, market: Market, semantics: Semantics, known_until: int, stale: bool
) -> None:
    """Asked for again after thirty days; but AWS would have repeated it every day."""
    store = PriceStore(tmp_path)
    for observed_day in (0, 30):
        store.add_prices(said(market, semantics, 0, observed_day))
    (quote,) = list_quotes(store)
    assert quote.since == BEGIN
    assert quote.observed == BEGIN + known_until * DAY_S
    assert quote.is_stale(Instant(BEGIN + 30 * DAY_S + 3600)) == stale


def test_a_price_of_aws_that_is_due_to_be_repeated_is_as_old_as_the_last_fetch(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    store.add_prices(said(AWS, Semantics.EVENT_STREAM, 0, 0))
    store.add_prices(said(AWS, Semantics.EVENT_STREAM, 0, 1))
    (quote,) = list_quotes(store)
    assert quote.observed == BEGIN + DAY_S
