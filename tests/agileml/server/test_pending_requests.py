from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agileml.protocol.commands import SaveModel
from agileml.protocol.messages import EndOfLife, Inquiry, Read, ReadPart, Unknown, Update, UpdatePart
from agileml.server.pending_requests import Item, PeerMessage, PendingRequests, RequestPart

ROWS = np.arange(3)


def read(request: int, *partitions: int) -> Read:
    return Read(request, 0, 1, tuple(ReadPart(partition, 1, ROWS) for partition in partitions))


def never(_: RequestPart) -> bool:
    return False


def update(request: int, *partitions: int) -> Update:
    return Update(request, 0, 1, False, tuple(UpdatePart(partition, 1, ()) for partition in partitions))


def test_only_what_waits_for_the_partitions_named_is_tried_in_the_order_in_which_it_came() -> None:
    waiting, tried = PendingRequests(), []

    def noted(item: Item | SaveModel) -> bool:
        assert isinstance(item, RequestPart)
        tried.append((item.part.partition, item.sender))
        return False

    for worker in ("b", "a"):
        waiting.try_request(worker, read(7, *range(100)), never)
    waiting.retry_partitions((3, 50), noted)
    assert tried == [(3, "b"), (50, "b"), (3, "a"), (50, "a")], "b has all its answers first, and can begin"


def test_what_is_asked_is_tried_at_once_and_alone() -> None:
    waiting, tried = PendingRequests(), []

    def of_partition_one(item: Item | SaveModel) -> bool:
        assert isinstance(item, RequestPart)
        tried.append((item.part.partition, item.sender))
        return item.part.partition == 1

    waiting.try_request("b", read(7, 0, 1), never)
    waiting.try_request("a", read(7, 0, 1), of_partition_one)
    assert tried == [(0, "a"), (1, "a")]
    assert waiting.find_unknown("a", Inquiry(7, (0, 1))) == [Unknown(7, 1)], "that one was done with"
    assert waiting.find_unknown("b", Inquiry(7, (0, 1))) == []


def test_what_one_item_releases_is_tried_again_and_saves_come_last() -> None:
    waiting, done = PendingRequests(), []
    save = SaveModel("m", 0, 1, (0,))

    def after_the_second(item: Item | SaveModel) -> bool:
        who = item.sender if isinstance(item, RequestPart) else "save"
        if who == "second" or "second" in done:
            done.append(who)
            return True
        return False

    waiting.add_item(save)
    waiting.try_request("first", read(1, 0), never)
    waiting.try_request("second", read(1, 0), never)
    waiting.retry_partitions((0,), after_the_second)
    assert done == ["second", "first", "save"]
    waiting.retry_partitions((0,), after_the_second)
    assert done == ["second", "first", "save"]


def test_what_waits_is_tried_once_for_something_new_and_after_it() -> None:
    waiting, tried = PendingRequests(), []

    def only_news(item: Item | SaveModel) -> bool:
        assert isinstance(item, RequestPart | PeerMessage)
        tried.append(item.sender)
        return item.sender == "news"

    for worker in ("b", "a"):
        waiting.try_request(worker, read(1, 0), never)
    waiting.retry_partitions((0,), only_news)
    waiting.add_item(PeerMessage("news", EndOfLife(0, 1, 0, 0, 1, (), (), ())))
    waiting.retry_partitions((0,), only_news)
    assert tried == ["b", "a", "news", "b", "a"]


def test_a_newer_request_takes_the_place_of_an_older_one_and_the_older_is_unknown_then() -> None:
    waiting = PendingRequests()
    waiting.try_request("a", read(1, 0, 1), never)
    waiting.try_request("a", read(2, 1), never)
    assert waiting.find_unknown("a", Inquiry(1, (0, 1, 2))) == [Unknown(1, 1), Unknown(1, 2)]
    assert waiting.find_unknown("b", Inquiry(1, (0,))) == [Unknown(1, 0)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.booleans(), st.lists(st.integers(0, 2), max_size=4), st.integers(0, 3)
        ),
        max_size=30,
    )
)
def test_of_a_place_only_the_newest_request_waits(
    asks: list[tuple[str, bool, list[int], int]],
) -> None:
    """Compares with a search through all that waits, at each request."""
    waiting, expected = PendingRequests(), dict[tuple[str, int, bool], int]()
    for number, (sender, updates, partitions, settles) in enumerate(asks):
        request = update(number, *partitions) if updates else read(number, *partitions)
        waiting.try_request(sender, request, never)
        expected |= {(sender, partition, updates): number for partition in partitions}
        if settles < 3:  # what waits for that partition is done with
            waiting.retry_partitions((settles,), lambda _: True)
            expected = {place: number for place, number in expected.items() if place[1] != settles}
        for asker in "abc":
            for asked in range(number + 1):
                inquiry = Inquiry(asked, (0, 1, 2))
                unknown = {answer.partition for answer in waiting.find_unknown(asker, inquiry)}
                known = {p for (who, p, _), request in expected.items() if (who, request) == (asker, asked)}
                assert unknown == {0, 1, 2} - known
