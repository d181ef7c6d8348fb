"""The fetch engine on scripted feeds: who is asked again, who is given up, what is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from pricing_data.errors import (
    FeedBroken,
    FeedCredentialsExpired,
    FeedError,
    FeedThrottled,
    FeedUnavailable,
    FeedUnreachable,
    RegionRefused,
)
from pricing_data.feeds.base import FeedPart, Page, PartKind
from pricing_data.feeds.fetch import FetchPatience, fetch_all
from pricing_data.formats.batches import Batch
from pricing_data.formats.layouts import Semantics
from pricing_data.model.market import Market
from pricing_data.model.units import Instant
from tests.pricing_data.feeds.memory import MemoryStore

_HASTE = FetchPatience(attempts=3, first_wait_s=0.001)
_BUSY = FeedThrottled("here", "too fast", "wait")
_GONE = FeedUnreachable("here", "cut off", "try again")


def _page(region: str, at: int) -> Page:
    column = np.array([at], np.int64)
    market = Market("acme", region, region, "small")
    batch = Batch(region, Semantics.EVENT_STREAM, (market,), column * 0, column, np.array([at / 2]), column)
    return Page(rows=1, batches=(batch,), cursor=f"at {at}")


@dataclass
class ScriptedFeed:
    """Each part's days, in order; what goes wrong before a day is raised once for each time it is listed."""

    wrong: dict[tuple[str, int], list[Exception]] = field(default_factory=dict)
    regions: Sequence[str] = ("a", "b")
    days: int = 3
    scouting: list[FeedError] = field(default_factory=list)
    """Raised one after the other before the parts are told."""
    name: str = "acme"
    cloud: str = "acme"
    asked: list[tuple[str, int | None]] = field(default_factory=list)

    def list_parts(self) -> tuple[FeedPart, ...]:
        if self.scouting:
            raise self.scouting.pop(0)
        return tuple(FeedPart("acme", PartKind.PRICES, region, region, region) for region in self.regions)

    def fetch(self, part: FeedPart, since: Instant | None) -> Iterator[Page]:
        self.asked.append((part.name, since))
        for day in range(since or 1, self.days + 1):
            waiting = self.wrong.get((part.name, day))
            if waiting:
                raise waiting.pop(0)
            yield _page(part.name, day)


def _days(store: MemoryStore) -> Mapping[str, list[int]]:
    days: dict[str, list[int]] = {}
    for _, market, at in sorted(store.prices):
        days.setdefault(market.region, []).append(at)
    return days


def test_a_fetch_goes_on_from_what_is_stored() -> None:
    store, feed = MemoryStore(), ScriptedFeed(days=2)
    assert fetch_all([feed], store).is_complete
    feed.days = 4
    report = fetch_all([feed], store)
    assert sorted(feed.asked[2:]) == [("a", 2), ("b", 2)]
    assert [(part.new, part.known, part.cursor) for part in report.parts] == [(2, 1, "at 4")] * 2
    assert _days(store) == {"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]}


@pytest.mark.parametrize("error", [_BUSY, _GONE])
def test_what_may_pass_is_asked_again_from_what_is_stored(error: FeedError) -> None:
    store, feed = MemoryStore(), ScriptedFeed({("a", 2): [error] * 2, ("a", 3): [error] * 2})
    report = fetch_all([feed], store, patience=_HASTE)
    assert report.is_complete
    assert report.parts[0].retries == 4, "what is stored in between starts the count anew"
    assert [since for name, since in feed.asked if name == "a"] == [None, 1, 1, 2, 2]
    assert _days(store) == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_what_does_not_pass_is_given_up_and_said() -> None:
    store, feed = MemoryStore(), ScriptedFeed({("a", 2): [_GONE] * 9})
    report = fetch_all([feed], store, patience=_HASTE)
    assert not report.is_complete
    assert [(part.failure, part.done) for part in report.parts] == [(_GONE, False), (None, True)]
    assert report.parts[0].retries == 2
    assert _days(store) == {"a": [1], "b": [1, 2, 3]}


@pytest.mark.parametrize("error", [RegionRefused("a", "not yours", "ask"), FeedBroken("a", "odd", "report")])
def test_what_asking_again_cannot_help_is_asked_once(error: FeedError) -> None:
    feed = ScriptedFeed({("a", 1): [error]})
    report = fetch_all([feed], MemoryStore(), patience=_HASTE)
    assert [part.failure for part in report.parts] == [error, None]
    assert sorted(feed.asked) == [("a", None), ("b", None)]


def test_a_feed_whose_credentials_are_rejected_is_given_up() -> None:
    error = FeedCredentialsExpired("acme", "too old", "log in")
    feed = ScriptedFeed({("a", 2): [error]}, regions=("a", "b", "c"))
    other = ScriptedFeed(name="other", regions=("z",))
    store = MemoryStore()
    report = fetch_all([feed, other], store, patience=_HASTE, width=1)
    failures = {part.part.name: part.failure for part in report.parts}
    assert failures == {"a": error, "b": error, "c": error, "z": None}
    assert _days(store) == {"a": [1], "z": [1, 2, 3]}
    assert feed.asked == [("a", None)]


def test_a_feed_that_cannot_be_had_stops_no_other() -> None:
    error = FeedUnavailable("none", "no SDK", "install it")
    report = fetch_all([ScriptedFeed(scouting=[error], name="none"), ScriptedFeed()], MemoryStore())
    assert report.unavailable == (("none", error),)
    assert all(part.done for part in report.parts)
    assert not report.is_complete


def test_the_parts_are_asked_for_again_too() -> None:
    feed = ScriptedFeed(scouting=[_GONE, _BUSY])
    assert fetch_all([feed], MemoryStore(), patience=_HASTE).is_complete
    feed.scouting = [_GONE] * 3
    assert fetch_all([feed], MemoryStore(), patience=_HASTE).unavailable == (("acme", _GONE),)


def test_kinds_that_nobody_asked_for_are_left_out() -> None:
    assert fetch_all([ScriptedFeed()], MemoryStore(), kinds=[PartKind.RATES]).parts == ()


def test_the_cloud_says_how_long_to_wait() -> None:
    patience = FetchPatience(attempts=4, first_wait_s=2, longest_wait_s=5)
    assert [patience.wait_s(n, _GONE) for n in (1, 2, 3, 4)] == [2, 4, 5, None]
    said = FeedThrottled("here", "too fast", "wait", retry_after_s=3)
    assert patience.wait_s(1, said) == 3
    assert patience.wait_s(1, RegionRefused("here", "no", "no")) is None


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ZeroDivisionError()])
def test_an_error_of_the_store_or_a_bug_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        fetch_all([ScriptedFeed()], MemoryStore(fails=error))


def _interrupting(after: int) -> Callable[[object], None]:
    heard: list[object] = []

    def hear(report: object) -> None:
        heard.append(report)
        if len(heard) == after:
            raise KeyboardInterrupt

    return hear


def test_an_interrupt_does_not_wait_for_patience_to_end() -> None:
    began = time.monotonic()
    patient = FetchPatience(first_wait_s=60)
    feed = ScriptedFeed({("a", 2): [_BUSY]}, regions=("a",))
    store = MemoryStore()
    report = fetch_all([feed], store, patience=patient, progress=_interrupting(after=2))
    assert report.interrupted
    assert not report.is_complete
    assert time.monotonic() - began < 30
    assert _days(store) == {"a": [1]}
    assert fetch_all([feed], store).is_complete
    assert _days(store) == {"a": [1, 2, 3]}
