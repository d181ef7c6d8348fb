"""Bare pyzmq doing what a worker's clock does: fetch an array, send one back, wait to be told it came.

``python -m tests.bench._bare serve ENDPOINT BYTES`` and ``... ask ENDPOINT BYTES SECONDS``, which prints the
bytes it moved both ways together, the seconds it took, and its processor seconds.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import zmq


def serve(endpoint: str, size: int) -> None:
    socket = zmq.Context(1).socket(zmq.ROUTER)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.bind(endpoint)
    array = np.ones(size // 4, np.float32)
    while True:
        sender, *frames = socket.recv_multipart(copy=False)
        reply: memoryview | bytes = array.data if len(frames) == 1 else b"done"
        socket.send_multipart([sender, reply], copy=False)


def ask(endpoint: str, size: int, seconds: float) -> tuple[int, float, float]:
    socket = zmq.Context(1).socket(zmq.DEALER)
    socket.connect(endpoint)
    moved, began, idle = 0, time.perf_counter(), time.process_time()
    while (took := time.perf_counter() - began) < seconds:
        socket.send(b"read")
        got = socket.recv(copy=False)
        assert len(got.buffer) == size
        socket.send_multipart([b"update", got.buffer], copy=False)
        assert socket.recv() == b"done"
        moved += 2 * size
    return moved, took, time.process_time() - idle


if __name__ == "__main__":
    role, where, count, *more = sys.argv[1:]
    if role == "serve":
        serve(where, int(count))
    else:
        print(*ask(where, int(count), float(more[0])))
