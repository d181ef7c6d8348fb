"""Bytes a second that workers read and update, beside bare pyzmq moving the same arrays, and beside memcpy.

Real worker and server processes of a job whose application hands back what it read. The job is frozen while
the references run, and all take turns; figures are medians. Aim: half of bare pyzmq or more. Bare pyzmq
neither looks at the arrays nor waits for other workers; so one that adds them, and answers when all those
have sent theirs for whom a clock waits (none, where staleness is allowed), is told beside it. Both send all
of it through sockets like the job's, which lends what is long (``agileml.node.transport.shared_memory``).

On a machine that others use, who waits for whom decides what the clock says; so the processor time of the
workers and the server is told as well, beside that of the reference: their ratio for the same bytes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agileml.job import TrainingJob
from agileml.protocol.events import Setup
from tests.bench.support.measured_job import MeasuredJob, measured, processor_s

TURNS = 7
TURN_S = 1.5


def main() -> None:
    """Print a line per number of workers, size of shard and staleness bound."""
    print(f"{TURNS} turns of {TURN_S} s each; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for workers, staleness in ((1, 0), (2, 0), (2, 3)):
        for kib in (1024, 4 * 1024, 16 * 1024):
            setup = Setup(partitions=1, shards=workers, clocks=10_000_000, staleness=staleness)
            echo = TrainingJob("tests.bench.support.echo_app:Echo", {"kib": kib}, setup)
            with measured(echo, numbered(workers), ("r1", "t1")[:workers]) as job:
                turns = [turn(job, workers, kib, 1 if staleness else workers) for _ in range(TURNS)]
            ours, bare, sums, copied = (
                Moved(*(statistics.median(values) for values in zip(*moved, strict=True)))
                for moved in zip(*turns, strict=True)
            )
            print(
                f"{workers} workers, s = {staleness}, {kib // 1024:2} MiB: {ours.rate / 1e9:5.2f} GB/s, "
                f"bare pyzmq {bare.rate / 1e9:5.2f}, summing {sums.rate / 1e9:5.2f}, "
                f"memcpy {copied.rate / 1e9:5.2f}: {beside([(turn[0], turn[1]) for turn in turns])} of bare, "
                f"{beside([(turn[0], turn[2]) for turn in turns])} of summing, "
                f"{ours.rate / copied.rate:.2f} of memcpy"
            )


class Moved(NamedTuple):
    """Bytes a second, and processor seconds a byte."""

    rate: float
    busy: float


def beside(pairs: Sequence[tuple[Moved, Moved]]) -> str:
    """Ours of another's, turn by turn."""
    rate = statistics.median(ours.rate / other.rate for ours, other in pairs)
    busy = sum(other.busy for _, other in pairs) / sum(ours.busy for ours, _ in pairs)
    return f"{rate:.2f} ({busy:.2f} by processor time)"


def numbered(shards: int) -> str:
    """An input that is the shards' numbers."""
    return "x\n" + "".join(f"{shard}\n" for shard in range(shards))


def turn(job: MeasuredJob, workers: int, kib: int, together: int) -> tuple[Moved, Moved, Moved, Moved]:
    """Of ours, of bare pyzmq, of bare pyzmq that sums for so many ``together``, and of memcpy."""
    moved = workers * 2 * kib * 1024
    rate, busy = job.clocks(TURN_S)
    with job.frozen():
        bare, copied = bare_pyzmq("copies", workers, kib * 1024), memcpy(kib * 1024)
    with job.frozen():  # again: a machine that stands still for too long is taken for lost
        sums = bare_pyzmq("sums", workers, kib * 1024, together)
    return Moved(rate * moved, busy / moved), bare, sums, copied


def bare_pyzmq(way: str, workers: int, size: int, together: int = 1) -> Moved:
    with tempfile.TemporaryDirectory() as folder:
        endpoint = f"ipc://{folder}/bare"
        base = [sys.executable, "-m", "tests.bench.support.bare_zmq"]
        server = subprocess.Popen([*base, "serve", way, endpoint, str(size), str(together)], text=True)
        ask = [*base, "ask", way, endpoint, str(size), str(TURN_S)]
        askers = [subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) for _ in range(workers)]
        try:
            said = [asker.communicate()[0].split() for asker in askers]
            server_s = processor_s(server.pid)
        finally:
            for process in (server, *askers):
                process.kill()
                process.wait()
    moved = sum(int(words[0]) for words in said)
    if not moved:  # the machine stood still
        return bare_pyzmq(way, workers, size, together)
    rate = sum(int(words[0]) / float(words[1]) for words in said)
    return Moved(rate, (server_s + sum(float(words[2]) for words in said)) / moved)


def memcpy(size: int) -> Moved:
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    times = []
    for _ in range(20):
        began = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - began)
    return Moved(size / statistics.median(times), statistics.median(times) / size)


if __name__ == "__main__":
    main()
