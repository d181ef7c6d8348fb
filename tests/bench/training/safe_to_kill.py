"""From a warning to "safe to kill", by size of the model.

``python -m tests.bench safe_to_kill [--mbit-per-s RATE] [--shards N] [--repeats N] [MB ...]``. Two spot
machines of three compute and serve a model that is backed up on the reliable one (stage 2). One that serves
is warned, so its part of the model goes to the other; then the other, so that the backups take over.
Everything is on this machine: over loopback, whose speed is that of bare pyzmq carrying arrays one way in the
same run; or, with a rate, each machine in a network namespace behind a link capped both ways, encrypted as on
any network.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from contextlib import ExitStack

from agileml.job import TrainingJob
from agileml.node.hosts.local import HERE
from agileml.protocol.commands import SafeToKill, StageChanged
from agileml.protocol.events import EvictionWarned, MachineReleased, Setup, Stage
from tests.agileml.processes.netns import Network, unavailable
from tests.bench.support.measured_job import PATIENCE_S, MeasuredJob, measured
from tests.bench.training.plane import bare_pyzmq, numbered

SIZES_MB = (10, 100, 1000)
REPEATS = 3
TOUCHED_KIB = 8 * 1024
"""Of a shard, each clock; less where the model is smaller."""
SHARDS = 3


def main() -> None:
    """A line per size: medians, and the most of all repeats."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench safe_to_kill")
    parser.add_argument("sizes", metavar="MB", type=int, nargs="*", default=SIZES_MB)
    parser.add_argument("--mbit-per-s", type=float)
    parser.add_argument("--shards", type=int, default=SHARDS, help="each is computed by a worker of its own")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    asked = parser.parse_args(sys.argv[2:])
    if asked.mbit_per_s is None:
        speed = statistics.median(bare_pyzmq("copies", 1, 16 * 2**20).rate for _ in range(3))
        print(f"link: loopback, {speed / 1e9:.2f} GB/s by bare pyzmq; {asked.repeats} repeats each")
    else:
        if (why := unavailable()) is not None:
            sys.exit(why)
        speed = asked.mbit_per_s * 1e6 / 8
        print(f"links of {asked.mbit_per_s:g} Mbit/s each way, encrypted; {asked.repeats} repeats each")
    print(f"{asked.shards} shards; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    for megabytes in asked.sizes:
        pairs = [evictions(megabytes, asked.shards, asked.mbit_per_s) for _ in range(asked.repeats)]
        first, second = zip(*pairs, strict=True)
        for what, took in (("to the other spot machine", first), ("to the backups", second)):
            print(
                f"{megabytes:5} MB, {what}: {statistics.median(took):6.2f} s, at most {max(took):6.2f} s; "
                f"the link alone {megabytes * 1e6 / speed:6.2f} s",
                flush=True,
            )


def evictions(megabytes: int, shards: int, mbit_per_s: float | None) -> tuple[float, float]:
    """Seconds until the first and then the second spot machine is safe to kill."""
    all_kib = megabytes * 1_000_000 // 1024
    touched = min(TOUCHED_KIB, all_kib // shards)
    # One spot machine is enough for stage 2: else the first eviction would end in the backups as well.
    setup = Setup(partitions=4, shards=shards, clocks=10_000_000, stage2_above=0.5)
    arguments = {"kib": touched, "untouched_kib": all_kib - shards * touched}
    job = TrainingJob("tests.bench.support.echo_app:Echo", arguments, setup, network=mbit_per_s is not None)
    with ExitStack() as stack:
        network = None if mbit_per_s is None else stack.enter_context(Network(mbit_per_s))
        where = (lambda _: HERE) if network is None else network.add
        running = stack.enter_context(measured(job, numbered(shards), ("r1", "t1"), where=where))
        running.start("t2")  # the other serves, since it was there first
        wait_for_stage(running, Stage.TWO)
        running.clocks(1.0)
        first = evict(running, "t1")
        running.clocks(1.0)
        return first, evict(running, "t2")


def wait_for_stage(running: MeasuredJob, stage: Stage) -> None:
    heard = [said for _, said in running.heard]
    until = time.perf_counter() + PATIENCE_S
    while not any(isinstance(said, StageChanged) and said.stage is stage for said in heard):
        assert time.perf_counter() < until, f"stage {stage} is not reached:\n{running.logs()}"
        heard += running.listen(0.2)


def evict(running: MeasuredJob, machine: str) -> float:
    began = time.perf_counter()
    running.client.send_events(EvictionWarned((machine,), 120.0))
    while not any(said == SafeToKill(machine) for said in running.listen(0.01)):
        assert time.perf_counter() - began < PATIENCE_S, f"{machine} is not safe:\n{running.logs()}"
    took = time.perf_counter() - began
    running.host.kill(machine)
    running.client.send_events(MachineReleased(machine))
    return took


if __name__ == "__main__":
    main()
