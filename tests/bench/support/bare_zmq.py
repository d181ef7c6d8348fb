"""Bare pyzmq doing what a worker's clock does, in one of two ways.

``copies``: fetch an array, send one back, wait to be told it came: two round trips in which nobody looks at
the array. ``sums``: send an array, wait for the sum of all that was sent: one round trip and one addition,
and none is answered before so many have sent theirs: no parameter server with clocks could do with less.

``python -m tests.bench.support.bare_zmq serve WAY ENDPOINT BYTES TOGETHER`` and ``... ask WAY ENDPOINT BYTES
SECONDS``, which prints the bytes it moved both ways together, the seconds it took, and its processor seconds.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import zmq

ALONE_MS = 2000
"""After which whoever is to be answered together with others takes them to have ended."""


def serve(way: str, endpoint: str, size: int, together: int) -> None:
    socket = zmq.Context(1).socket(zmq.ROUTER)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.bind(endpoint)
    array = np.zeros(size // 4, np.float32)
    wait: list[zmq.Frame] = []
    while True:
        sender, *frames = socket.recv_multipart(copy=False)
        if way == "copies":
            socket.send_multipart([sender, b"done" if len(frames) == 2 else array.data], copy=False)
            continue
        array = array + np.frombuffer(frames[0].buffer, np.float32)
        wait.append(sender)
        if len(wait) == together:
            for waits in wait:
                socket.send_multipart([waits, array.data], copy=False)
            wait.clear()


def ask(way: str, endpoint: str, size: int, seconds: float) -> tuple[int, float, float]:
    """The first exchange is not counted: others may still be starting."""
    socket = zmq.Context(1).socket(zmq.DEALER)
    socket.connect(endpoint)
    exchange = copied if way == "copies" else summed
    got = exchange(socket, np.zeros(size // 4, np.float32).data)
    socket.setsockopt(zmq.RCVTIMEO, ALONE_MS)
    moved, began, busy = 0, time.perf_counter(), time.process_time()
    while (took := time.perf_counter() - began) < seconds:
        try:
            got = exchange(socket, got)
        except zmq.Again:
            break
        assert got.nbytes == size
        moved += 2 * size
    return moved, took, time.process_time() - busy


def copied(socket: zmq.Socket[bytes], last: memoryview) -> memoryview:
    socket.send(b"read")
    got = socket.recv(copy=False).buffer
    socket.send_multipart([b"update", last], copy=False)
    assert socket.recv() == b"done"
    return got


def summed(socket: zmq.Socket[bytes], last: memoryview) -> memoryview:
    socket.send(last, copy=False)
    return socket.recv(copy=False).buffer


if __name__ == "__main__":
    role, way, where, count, *more = sys.argv[1:]
    if role == "serve":
        serve(way, where, int(count), int(more[0]))
    else:
        print(*ask(way, where, int(count), float(more[0])))
