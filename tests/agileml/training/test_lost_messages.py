"""Tests that what a broken connection takes with it, between two that live on, is asked
after and sent again.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from agileml.protocol.commands import Create, Handover, SaveModel
from agileml.protocol.events import BackedUp, Setup
from agileml.protocol.messages import (
    Arrived,
    EndOfLife,
    Inquiry,
    Install,
    Message,
    Push,
    PushDone,
    Read,
    ReadDone,
    Reply,
    Send,
    Unknown,
    Update,
    UpdateDone,
)
from agileml.worker.worker import Worker
from tests.agileml.simulated.fabric import Fabric, assignment, peer, serial, toy_delta

ONE = Setup(partitions=1, shards=1, clocks=9)
SETUP = Setup(partitions=2, shards=2, clocks=6)


def one_worker(setup: Setup) -> tuple[Fabric, Worker, Message]:
    """With the first shard of one partition on "r", and what it asks for first."""
    fabric = Fabric(setup, ("r",))
    worker = fabric.add_worker("w")
    fabric.command(Create("r", 0, 1, 0))
    (read,) = worker.take_assignment(assignment(fabric, "w", (0,), ("r",), epochs=(1,)))
    return fabric, worker, sent(read)


def sent(item: object) -> Message:
    assert isinstance(item, Send)
    return item.message


def answers(fabric: Fabric, message: Message) -> list[Message]:
    """Returns what the server says to the worker."""
    assert isinstance(message, Read | Update | Inquiry)
    said = fabric.servers["r"].handle_message("w", message)
    return [item.message for item in said if isinstance(item, Reply)]


def hear(worker: Worker, message: Message) -> list[Message]:
    """Returns what the worker sends on hearing it."""
    assert isinstance(message, ReadDone | UpdateDone | Unknown)
    return [sent(item) for item in worker.handle_answer(message)]


def compute(worker: Worker) -> list[Message]:
    (work,) = worker.take_work()
    return [sent(item) for item in worker.take_result(work, toy_delta(0, work.clock, work.values))]


def test_what_is_read_ahead_and_overtakes_an_acknowledgement_is_read_again() -> None:
    """It may lack what was pushed, where staleness lets reads be answered before a clock is complete."""
    fabric, worker, read = one_worker(replace(ONE, staleness=1))
    hear(worker, *answers(fabric, read))
    update, ahead = compute(worker)
    (early,) = answers(fabric, ahead)
    assert hear(worker, early) == []  # the update has not come yet
    assert (worker.current_clock, worker.uncomputed_count) == (1, 0)
    (again,) = hear(worker, *answers(fabric, update))
    (values,) = answers(fabric, again)
    hear(worker, values)
    (work,) = worker.take_work()
    assert work.clock == 2
    assert isinstance(early, ReadDone)
    assert not np.array_equal(work.values, early.values)


def test_a_request_that_was_lost_is_sent_again_and_one_that_waits_is_not() -> None:
    fabric, worker, lost = one_worker(replace(ONE, shards=2))
    assert worker.retry_unanswered() == ()  # it was sent only just now
    (inquiry,) = worker.retry_unanswered()
    (again,) = hear(worker, *answers(fabric, sent(inquiry)))
    assert isinstance(again, Read)
    assert isinstance(lost, Read)
    assert again.request > lost.request
    hear(worker, *answers(fabric, again))
    update, ahead = compute(worker)
    hear(worker, *answers(fabric, update))
    assert answers(fabric, ahead) == []  # the other shard's delta is not in yet
    assert worker.retry_unanswered() == ()
    (inquiry,) = worker.retry_unanswered()
    assert answers(fabric, sent(inquiry)) == []


def training(owners: tuple[str, str], epochs: tuple[int, int]) -> Fabric:
    """Created on "r"; given to the owners, who push to "r"."""
    fabric = Fabric(SETUP, ("r", "a", "b"))
    fabric.add_worker("w")
    for partition, (owner, epoch) in enumerate(zip(owners, epochs, strict=True)):
        fabric.command(Create("r", partition, 1, 0))
        if owner != "r":
            to = peer(owner)
            fabric.command(Handover("r", partition, owner, to.endpoint, epoch, 0, True, False, peer("r")))
    fabric.deliver()
    fabric.assign(assignment(fabric, "w", (0, 1), owners, epochs=epochs))
    return fabric


@pytest.mark.parametrize("lost", [Read, ReadDone, Update, UpdateDone])
def test_a_clock_goes_on_whatever_of_it_is_lost(lost: type) -> None:
    fabric = training(("r", "r"), (1, 1))
    fabric.loses = (lost,)
    fabric.run()
    assert fabric.completed(0) in ([], [1])
    fabric.loses = ()
    fabric.look_back()
    fabric.run()
    assert fabric.completed(0) == fabric.completed(1) == [1, 2, 3, 4, 5, 6]
    fabric.command(SaveModel("r", 0, 6, (0, 1)))
    assert fabric.model().tobytes() == serial(SETUP, 6).tobytes()


@pytest.mark.parametrize(("lost", "sent"), [(Push, [(0, 1), (1, 2)]), (PushDone, [(1, 2)])])
def test_a_range_that_was_lost_is_sent_again_and_one_that_came_is_not(
    lost: type, sent: list[tuple[int, int]]
) -> None:
    fabric = training(("a", "b"), (2, 2))
    fabric.loses = (lost,)
    fabric.run()
    fabric.loses, fabric.sent = (), []
    fabric.look_back()
    pushes = [message for message in fabric.sent if isinstance(message, Push) and message.partition == 0]
    assert [(push.since, push.clock) for push in pushes] == sent
    backed = [event.clock for event in fabric.events if isinstance(event, BackedUp) and event.partition == 0]
    assert backed == [1, 2]


@pytest.mark.parametrize("lost", [(Install,), (Arrived,)])
def test_a_partition_that_was_lost_on_its_way_is_sent_again(lost: tuple[type, ...]) -> None:
    fabric = training(("r", "r"), (1, 1))
    fabric.run()
    fabric.loses = lost
    fabric.command(Handover("r", 0, "a", peer("a").endpoint, 2, 0, True, False, peer("r")))
    fabric.deliver()
    fabric.loses = ()
    fabric.look_back()
    assert fabric.servers["a"].role_of(0) == "serving"
    assert fabric.servers["r"].retry_unanswered() == fabric.servers["r"].retry_unanswered() == ()


@pytest.mark.parametrize("lost", [(Push,), (EndOfLife,), (Push, EndOfLife), (PushDone, Arrived)])
def test_an_end_of_life_and_what_goes_before_it_are_sent_again(lost: tuple[type, ...]) -> None:
    fabric = training(("a", "b"), (2, 2))
    fabric.loses = lost
    fabric.run()
    for partition, active in enumerate(("a", "b")):
        order = Handover(active, partition, "r", peer("r").endpoint, 3, 0, False, True, None)
        fabric.command(order)
    fabric.deliver()
    fabric.loses = ()
    fabric.look_back()
    fabric.look_back()
    assert fabric.servers["r"].role_of(0) == fabric.servers["r"].role_of(1) == "serving"
    fabric.assign(assignment(fabric, "w", (0, 1), ("r", "r"), epochs=(3, 3), version=2))
    fabric.run()
    fabric.command(SaveModel("r", 0, 6, (0, 1)))
    assert fabric.model().tobytes() == serial(SETUP, 6).tobytes()
