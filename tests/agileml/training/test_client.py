"""Tests when a client gives up the controller, which the test plays, over real sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zmq
from msgspec import structs

from agileml.apps.planted import planted_ratings, write_ratings
from agileml.client import TrainingClient
from agileml.controller.links import CLIENT
from agileml.job import JobFolder, Timing, TrainingJob
from agileml.node.tier import Tier
from agileml.node.transport.reliable_link import Link
from agileml.node.transport.sockets import Listener
from agileml.protocol.commands import Failed
from agileml.protocol.events import MachineJoined, MachineLost, Setup
from agileml.protocol.telemetry import Control
from agileml.protocol.wire import decode_packet, encode_packet

TIMING = Timing(repeat_s=0.05, silence_s=0.1, lease_s=0.5, first_word_s=1.0)
LIMIT_S = 60.0


class Played:
    """A client, and a controller that answers when the test wants it to."""

    def __init__(self, path: Path) -> None:
        source = path / "ratings.csv"
        write_ratings(planted_ratings(20, 10, 2, 0.1, 0.5, seed=0), source)
        setup = Setup(partitions=1, shards=2, clocks=5)
        job = TrainingJob("agileml.apps.mf:MatrixFactorization", {"rank": 2}, setup, timing=TIMING)
        self.folder = JobFolder.prepare(path / "training", job, source)
        self.folder.controller_record.write_text("r1")
        self.context = zmq.Context(1)
        endpoint = self.folder.coordinator_endpoint()
        assert endpoint is not None
        self._listener = Listener(self.context, endpoint, None, zmq.Poller())
        self._link: Link[Control] = Link()
        self.asked_at = time.monotonic()
        self.client = TrainingClient(self.folder.path)

    def announce(self) -> None:
        self.client.send_events(MachineJoined("r1", Tier.RELIABLE, 1))

    def answer(self) -> None:
        for name, (frame,) in self._listener.receive():
            assert name == CLIENT
            self._link.receive(decode_packet(frame))
            self._link.confirm()
            packet = encode_packet(self._link.make_confirmation())
            self._listener.socket.send_multipart([name.encode(), packet])

    def until_heard(self) -> None:
        until = time.monotonic() + LIMIT_S
        while self.client.confirmed_count < 1:
            self.asked_at = time.monotonic()
            assert self.asked_at < until
            self.client.poll(0.01)
            self.answer()

    def until_given_up(self) -> float:
        """Nobody answers. Seconds until the client has had enough of that, from just before it last heard."""
        until = time.monotonic() + LIMIT_S
        while self.client.hanging_controller is None:
            assert time.monotonic() < until
            assert self.client.poll(0.01) == []
        assert self.client.hanging_controller == "r1"
        return time.monotonic() - self.asked_at


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    made = Played(tmp_path)
    yield made
    made.client.close()
    made.context.destroy(linger=0)
    made.folder.remove_sockets()


def test_a_controller_that_falls_silent_is_given_up_after_two_leases(played: Played) -> None:
    played.announce()
    played.until_heard()
    assert played.client.hanging_controller is None
    assert played.until_given_up() > 2 * TIMING.lease_s


def test_one_that_never_speaks_has_time_to_start(played: Played) -> None:
    played.announce()
    assert played.until_given_up() > TIMING.first_word_s + 2 * TIMING.lease_s


def test_one_that_answers_is_not_given_up_though_it_has_nothing_to_say(played: Played) -> None:
    played.announce()
    until = time.monotonic() + 4 * TIMING.lease_s
    while time.monotonic() < until:
        played.client.poll(0.01)
        played.answer()
        assert played.client.hanging_controller is None


def test_none_is_waited_for_before_its_machine_is_there_or_after_it_is_gone(played: Played) -> None:
    played.client.poll(3 * TIMING.lease_s)
    assert played.client.hanging_controller is None
    played.announce()
    played.until_given_up()
    played.client.send_events(MachineLost("r1"))
    (failed,) = played.client.poll(0.0)
    assert isinstance(failed, Failed)
    assert failed.why.endswith("is gone with its machine r1, of which nothing was heard any more")
    assert played.client.hanging_controller is None


def test_a_job_whose_checkpoints_cannot_be_read_has_failed_all_the_same(played: Played) -> None:
    job = played.folder.read_job()
    setup = structs.replace(job.setup, checkpoints="foo://bucket/states", resume="/kept/4-1", start=4)
    JobFolder.set_up(played.folder.path, replace(job, setup=setup), None)
    played.client.send_events(MachineLost("r1"))
    (failed,) = played.client.poll(0.0)
    assert isinstance(failed, Failed)
    assert failed.checkpoint == "/kept/4-1"
    assert "is gone with its machine r1; foo://bucket/states could not be opened: " in failed.why
    assert played.client.poll(0.0) == []
