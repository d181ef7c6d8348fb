"""Tests the findings about a store's rows: gaps classified, nothing counted twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.formats.batches import Batch, UnreadableBatch
from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import Flaw, UnreadableRow
from pricing_data.model.market import Market
from pricing_data.store.store import PriceStore
from tests.pricing_data.store.test_store import EAST, MAY, NAN, NOWHERE, WEST, batch

DAY_S = 86400
NEXT_DOOR = Market("aws", "us-east-1", "us-east-1b", "c5.large")
GAP = ((MAY, 0.03), (MAY + 3 * DAY_S, 0.04))


def daily(market: Market, *days: int) -> Batch:
    return batch(*((MAY + day * DAY_S, 0.05) for day in days), market=market)


@pytest.mark.parametrize(
    ("others", "flaw"),
    [
        ([], Flaw.UNRECORDED),
        ([daily(WEST, 0, 1, 2, 3)], Flaw.UNRECORDED),
        ([daily(NEXT_DOOR, 0, 1, 2, 3)], Flaw.SILENCE),
        ([replace(daily(NEXT_DOOR, 0, 3), source="else")], Flaw.UNRECORDED),
        ([daily(NEXT_DOOR, 1)], Flaw.UNRECORDED),
        ([batch((MAY + DAY_S, NAN), source="a poll", semantics=Semantics.POLLED)], Flaw.RELISTED),
    ],
    ids=["alone", "another region", "others heard", "others not heard", "others half heard", "delisted"],
)
def test_of_a_gap_it_is_said_what_is_known_of_that_time(
    tmp_path: Path, others: list[Batch], flaw: Flaw
) -> None:
    store = PriceStore(tmp_path)
    for other in (batch(*GAP), *others):
        store.add_prices(other)
    (found,) = (found for found in store.quality.findings() if found.examples[0].startswith(str(EAST)))
    assert (found.source, found.kind, found.count) == ("feed", flaw, 1)
    assert found.examples[0].endswith("0.04 $/h, 3.0 days after the row before")
    assert not found.kind.is_quarantining


def test_a_market_that_fell_silent_before_the_recorder_did_was_silent(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    store.add_prices(batch((MAY, 0.03), (MAY + 9 * DAY_S, 0.04)))
    store.add_prices(daily(NEXT_DOOR, 0, 1, 2, 3, 9))
    kinds = {found.examples[0].split("@")[0]: found.kind for found in store.quality.findings()}
    assert kinds == {"m4.large": Flaw.SILENCE, "c5.large": Flaw.UNRECORDED}


def test_polls_and_price_lists_that_change_by_the_month_are_not_silent(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    store.add_prices(batch(*GAP, semantics=Semantics.POLLED))
    store.add_prices(batch(*GAP, market=NOWHERE))
    assert store.quality.findings() == ()


def test_lines_and_rows_with_one_flaw_are_one_finding(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    store.add_prices(batch((MAY, 0.03), market=Market("", "", "", "")))
    lines = (UnreadableRow(Flaw.NAME, "a,b", 7), UnreadableRow(Flaw.NAME, "{}"))
    store.add_unreadable(UnreadableBatch("feed", lines, MAY))
    (found,) = store.quality.findings()
    assert (found.kind, found.count) == (Flaw.NAME, 3)
    assert found.examples[:2] == ("{}", "line 7: a,b")
