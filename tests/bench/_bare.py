"""Bare pyzmq doing what a worker's clock does, in one of two ways.

``copies``: fetch an array, send one back, wait to be told it came: two round trips in which nobody looks at
the array. ``sums``: send an array, wait for the sum of all that was sent: one round trip and one addition,
which no parameter server with a clock of its own could do without.

``python -m tests.bench._bare serve WAY ENDPOINT BYTES`` and ``... ask WAY ENDPOINT BYTES SECONDS``, which
prints the bytes it moved both ways together, the seconds it took, and its processor seconds.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import zmq


def serve(way: str, endpoint: str, size: int) -> None:
    socket = zmq.Context(1).socket(zmq.ROUTER)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.bind(endpoint)
    array = np.zeros(size // 4, np.float32)
    while True:
        sender, *frames = socket.recv_multipart(copy=False)
        if way == "sums":
            array = array + np.frombuffer(frames[0].buffer, np.float32)
        reply: memoryview | bytes = b"done" if len(frames) == 2 else array.data
        socket.send_multipart([sender, reply], copy=False)


def ask(way: str, endpoint: str, size: int, seconds: float) -> tuple[int, float, float]:
    socket = zmq.Context(1).socket(zmq.DEALER)
    socket.connect(endpoint)
    moved, began, idle = 0, time.perf_counter(), time.process_time()
    got: memoryview = np.zeros(size // 4, np.float32).data
    while (took := time.perf_counter() - began) < seconds or not moved:
        if way == "copies":
            socket.send(b"read")
            got = socket.recv(copy=False).buffer
            socket.send_multipart([b"update", got], copy=False)
            assert socket.recv() == b"done"
        else:
            socket.send(got, copy=False)
            got = socket.recv(copy=False).buffer
        assert got.nbytes == size
        moved += 2 * size
    return moved, took, time.process_time() - idle


if __name__ == "__main__":
    role, way, where, count, *more = sys.argv[1:]
    if role == "serve":
        serve(way, where, int(count))
    else:
        print(*ask(way, where, int(count), float(more[0])))
