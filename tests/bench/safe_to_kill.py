"""From a warning to "safe to kill", by size of the model; everything on this machine, over loopback.

Two spot machines of three compute and serve a model that is backed up on the reliable one (stage 2). One that
serves is warned, so its part of the model goes to the other; then the other, so that the backups take over.
The speed of the link is that of bare pyzmq carrying arrays one way, in the same run. ``safe_to_kill`` takes
the sizes from the command line, in MB, if there are any.
"""

from __future__ import annotations

import statistics
import sys
import time

from agileml.commands import SafeToKill, StageChanged
from agileml.events import EvictionWarned, MachineReleased, Setup, Stage
from agileml.hosts.job import Job
from tests.bench._job import PATIENCE_S, MeasuredJob, measured
from tests.bench.plane import bare_pyzmq, numbered

SIZES_MB = (10, 100, 1000)
REPEATS = 3
TOUCHED_KIB = 8 * 1024
"""Of a shard, each clock; less where the model is smaller."""
SHARDS = 3


def main() -> None:
    """A line per size: medians, and the most of all repeats."""
    speed = statistics.median(bare_pyzmq(1, 16 * 2**20).rate for _ in range(3))
    print(f"link: loopback, {speed / 1e9:.2f} GB/s by bare pyzmq; {REPEATS} repeats each")
    for megabytes in map(int, sys.argv[2:]) if len(sys.argv) > 2 else SIZES_MB:
        pairs = [evictions(megabytes) for _ in range(REPEATS)]
        first, second = zip(*pairs, strict=True)
        for what, took in (("to the other spot machine", first), ("to the backups", second)):
            print(
                f"{megabytes:5} MB, {what}: {statistics.median(took):6.2f} s, at most {max(took):6.2f} s; "
                f"the link alone {megabytes * 1e6 / speed:6.2f} s"
            )


def evictions(megabytes: int) -> tuple[float, float]:
    """Seconds until the first and then the second spot machine is safe to kill."""
    all_kib = megabytes * 1_000_000 // 1024
    touched = min(TOUCHED_KIB, all_kib // SHARDS)
    setup = Setup(partitions=4, shards=SHARDS, clocks=10_000_000)
    arguments = {"kib": touched, "untouched_kib": all_kib - SHARDS * touched}
    job = Job("tests.bench._echo:Echo", arguments, setup)
    with measured(job, numbered(SHARDS), ("r1", "t1", "t2")) as running:
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
    running.client.tell(EvictionWarned((machine,), 120.0))
    while not any(said == SafeToKill(machine) for said in running.listen(0.01)):
        assert time.perf_counter() - began < PATIENCE_S, f"{machine} is not safe:\n{running.logs()}"
    took = time.perf_counter() - began
    running.host.kill(machine)
    running.client.tell(MachineReleased(machine))
    return took


if __name__ == "__main__":
    main()
