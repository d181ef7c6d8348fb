"""Jobs on a network: processes that reach each other over TCP, and strangers who do not."""

from __future__ import annotations

import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import pytest
import zmq

from agileml.job import JobFolder
from agileml.node.transport.curve_keys import CurveKeys
from agileml.node.transport.sockets import Listener, end_with_silence, listening_endpoint, make_socket
from agileml.protocol.events import Stage
from tests.agileml.processes.real_jobs import running_job

WAIT_MS = 5000
REFUSED_WITHIN_MS = 500
PATIENCE_MS = 60_000


@pytest.mark.process
def test_a_job_over_tcp_trains_to_the_same_model_through_evictions_and_deaths(tmp_path: Path) -> None:
    with running_job(tmp_path, network=True) as job:
        job.start("r1", "t1", "t2", "t3")
        job.reach_stage(Stage.TWO)
        assert (job.folder.coordinator_endpoint() or "").startswith("tcp://127.0.0.1:")
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
        self.keys = CurveKeys.make_pair()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
        self._poller = zmq.Poller()
        self._listener = Listener(self._context, "tcp://127.0.0.1:*", self.keys, self._poller)

    def hears(self, keys: CurveKeys | None, expected: str | None, wait_ms: int) -> bool:
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
    own = CurveKeys.make_pair()
    assert not door.hears(None, None, REFUSED_WITHIN_MS)
    assert not door.hears(own, own.public, REFUSED_WITHIN_MS)
    assert not door.hears(own, door.keys.public, REFUSED_WITHIN_MS)
    assert door.hears(door.keys, door.keys.public, WAIT_MS)


def test_nobody_is_let_in_where_no_doorkeeper_answers() -> None:
    """Were libzmq left alone, it would admit whoever knows the public half."""
    keys = CurveKeys.make_pair()
    with (
        zmq.Context(1) as context,
        make_socket(context, zmq.ROUTER, keys=keys) as listening,
        make_socket(context, zmq.DEALER, "worker/t1/1", keys) as caller,
    ):
        listening.bind("tcp://127.0.0.1:*")
        caller.connect(listening_endpoint(listening))
        caller.send(b"let me in")
        assert not listening.poll(REFUSED_WITHIN_MS)


def test_an_address_of_version_6_is_put_in_brackets_and_a_missing_one_is_said(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    (tmp_path / "machines" / "t1").mkdir(parents=True)
    CurveKeys.make_pair().write(tmp_path / "keys.json")
    with pytest.raises(ValueError, match="t1 has no address in a job on a network"):
        folder.machine_endpoint("t1", 1)
    folder.set_address("t1", "::1")
    assert folder.machine_endpoint("t1", 1) == "tcp://[::1]:*"
    folder.set_address("t1", "10.0.0.7")
    assert folder.machine_endpoint("t1", 1) == "tcp://10.0.0.7:*"


class SlowLink:
    """A relay on this machine, which carries so many bytes a second to a port. For one call at a time."""

    PIECE: Final = 8192

    def __init__(self, port: int, bytes_per_s: float) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.PIECE)  # also of those it accepts
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._relay, args=(port, self.PIECE / bytes_per_s))
        self._thread.start()
        self.endpoint = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"

    def close(self) -> None:
        """After the caller has hung up."""
        self._closing.set()
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def _relay(self, port: int, every_s: float) -> None:
        with suppress(OSError):  # closed
            while True:
                calling, _ = self._server.accept()
                with calling, socket.create_connection(("127.0.0.1", port)) as called:
                    back = threading.Thread(target=self._copy, args=(called, calling, 0.0))
                    back.start()
                    self._copy(calling, called, every_s)
                    back.join()

    def _copy(self, source: socket.socket, target: socket.socket, every_s: float) -> None:
        with suppress(OSError):  # either end has hung up
            while not self._closing.is_set() and (piece := source.recv(self.PIECE)):
                target.sendall(piece)
                time.sleep(every_s)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_an_array_that_takes_longer_to_come_than_anybody_may_be_silent_arrives() -> None:
    """In the first of three goes: the others are for a host so busy that the relay itself is silent."""
    silent_s, takes_s, size = 2, 3.0, 1_000_000
    with zmq.Context(1) as context, make_socket(context, zmq.ROUTER) as listening:
        end_with_silence(listening, silent_s)
        port = listening.bind_to_random_port("tcp://127.0.0.1")
        with closing(SlowLink(port, size / takes_s)) as link, make_socket(context, zmq.DEALER) as calling:
            end_with_silence(calling, silent_s)
            calling.connect(link.endpoint)
            began = time.monotonic()
            for _ in range(3):
                calling.send(bytes(size))
            assert listening.poll(PATIENCE_MS)
            assert time.monotonic() - began > silent_s


def test_a_call_that_nobody_takes_is_made_anew() -> None:
    """Where a listener's queue is full, Linux drops what calls: it would ask again after 1, 2, 4, 8 ... s."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        place = listening.getsockname()
        with (
            socket.create_connection(place),  # which fills the queue
            zmq.Context(1) as context,
            make_socket(context, zmq.DEALER) as calling,
            calling.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED) as retried,
        ):
            end_with_silence(calling, after_s=1)
            calling.connect("tcp://{}:{}".format(*place))
            assert retried.poll(PATIENCE_MS)
            calling.disable_monitor()
