"""Jobs on a network: processes that reach each other over TCP, and strangers who do not."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from agileml.events import Stage
from agileml.hosts.job import JobFolder
from agileml.hosts.keys import Keys
from agileml.hosts.sockets import Listener, bound_to, make_socket
from tests.agileml.real_jobs import running_job

WAIT_MS = 5000
REFUSED_WITHIN_MS = 500


@pytest.mark.process
def test_a_job_over_tcp_trains_to_the_same_model_through_evictions_and_deaths(tmp_path: Path) -> None:
    with running_job(tmp_path, network=True) as job:
        job.start("r1", "t1", "t2", "t3")
        job.reach_stage(Stage.TWO)
        assert (job.folder.controller_endpoint() or "").startswith("tcp://127.0.0.1:")
        assert not (job.folder.path / "sockets").exists()
        assert stat.S_IMODE((job.folder.path / "keys.json").stat().st_mode) == 0o600
        job.reach(job.clock + 2)
        job.evict("t1")
        for role, machine in (("controller", "r1"), ("server", "t2"), ("worker", "t3")):
            job.reach(job.clock + 2)
            job.kill_role(role, machine)
        job.reach(job.clock + 2)
        job.stop()
        job.check_result()
        job.check_nothing_left()


class Door:
    """A listener of a job, and what callers get through it."""

    def __init__(self) -> None:
        self.keys = Keys.make()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
        self._poller = zmq.Poller()
        self._listener = Listener(self._context, "tcp://127.0.0.1:*", self.keys, self._poller)

    def hears(self, keys: Keys | None, expected: str | None, wait_ms: int) -> bool:
        """Whether a word comes in from a caller with ``keys``; ``expected``: the listener's public key."""
        with make_socket(self._context, zmq.DEALER, "worker/t1/1", keys) as caller:
            if expected is not None:
                caller.curve_serverkey = expected.encode()
            caller.connect(self._listener.endpoint)
            caller.send(b"let me in")
            heard: list[str] = []
            until = time.monotonic() + wait_ms / 1000
            while not heard and time.monotonic() < until:
                self._poller.poll(wait_ms)
                heard += [name for name, _ in self._listener.receive()]
            return bool(heard)

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    made.close()


def test_a_stranger_gets_nothing(door: Door) -> None:
    """One that speaks in clear, one with keys of its own, one who overheard the public half of the job's."""
    own = Keys.make()
    assert not door.hears(None, None, REFUSED_WITHIN_MS)
    assert not door.hears(own, own.public, REFUSED_WITHIN_MS)
    assert not door.hears(own, door.keys.public, REFUSED_WITHIN_MS)
    assert door.hears(door.keys, door.keys.public, WAIT_MS)


def test_nobody_is_let_in_where_no_doorkeeper_answers() -> None:
    """Were libzmq left alone, it would admit whoever knows the public half."""
    keys = Keys.make()
    with (
        zmq.Context(1) as context,
        make_socket(context, zmq.ROUTER, keys=keys) as listening,
        make_socket(context, zmq.DEALER, "worker/t1/1", keys) as caller,
    ):
        listening.bind("tcp://127.0.0.1:*")
        caller.connect(bound_to(listening))
        caller.send(b"let me in")
        assert not listening.poll(REFUSED_WITHIN_MS)


def test_an_address_of_version_6_is_put_in_brackets_and_a_missing_one_is_said(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    (tmp_path / "machines" / "t1").mkdir(parents=True)
    Keys.make().write(tmp_path / "keys.json")
    with pytest.raises(ValueError, match="t1 has no address in a job on a network"):
        folder.endpoint("t1", 1)
    folder.set_address("t1", "::1")
    assert folder.endpoint("t1", 1) == "tcp://[::1]:*"
    folder.set_address("t1", "10.0.0.7")
    assert folder.endpoint("t1", 1) == "tcp://10.0.0.7:*"
