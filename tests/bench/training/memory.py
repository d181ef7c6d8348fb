"""Memory of every role while the backup is frozen, beside what it was: nothing may grow with the clocks.

A model that every clock touches all over, the hardest case: r1 backs up what t1 serves, and all three
machines compute. The server process of r1 is stopped (SIGSTOP) and training goes on for as many clocks as the
backups may lag behind. Told are the peaks of what is resident, in models: before, meanwhile, after.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from msgspec.structs import replace

from agileml.job import TrainingJob
from agileml.protocol.commands import Progressed, StageChanged
from agileml.protocol.events import Setup, Stage
from tests.bench.support.measured_job import MeasuredJob, measured
from tests.bench.training.plane import numbered

SHARDS, KIB = 3, 16 * 1024
MODEL = SHARDS * KIB * 1024
QUIET_S, FROZEN_S = 4.0, 6.0
LAGS = (2, 8, 32, 128)


def main() -> None:
    """A line per lag and role."""
    print(
        f"model of {MODEL / 1e6:.0f} MB, touched all over by every clock; peaks in models; "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    setup = Setup(partitions=2, shards=SHARDS, clocks=10_000_000)
    for lag in LAGS:
        job = TrainingJob("tests.bench.support.echo_app:Echo", {"kib": KIB}, replace(setup, backup_lag=lag))
        with measured(job, numbered(SHARDS), ("r1", "t1", "t2")) as running:
            reach_stage_two(running)
            quiet, quiet_clocks = peaks(running, QUIET_S)
            backup = running.processes("server", machine="r1")[0]
            os.kill(backup, signal.SIGSTOP)
            frozen, frozen_clocks = peaks(running, FROZEN_S)
            os.kill(backup, signal.SIGCONT)
            thawed, thawed_clocks = peaks(running, QUIET_S)
        print(
            f"lag at most {lag}: {quiet_clocks} clocks in {QUIET_S} s; {frozen_clocks} in {FROZEN_S} s "
            f"with a frozen backup; {thawed_clocks} in {QUIET_S} s after it"
        )
        for role in quiet:
            print(f"    {role:9} {quiet[role]:5.1f} {frozen[role]:5.1f} {thawed[role]:5.1f}")


def reach_stage_two(running: MeasuredJob) -> None:
    heard = [said for _, said in running.heard]
    while not any(isinstance(said, StageChanged) and said.stage is Stage.TWO for said in heard):
        heard += running.listen(0.2)
    running.clocks(2.0)


def peaks(running: MeasuredJob, seconds: float) -> tuple[dict[str, float], int]:
    """The peak resident size of each role in that time, in models, and the clocks completed."""
    roles = {
        f"{machine} {role}": process
        for machine in ("r1", "t1", "t2")
        for role in ("server", "worker")
        for process in running.processes(role, machine=machine)
    }
    for process in roles.values():
        Path(f"/proc/{process}/clear_refs").write_text("5")  # the peak starts anew: see proc(5)
    clocks = [said.clock for said in running.listen(seconds) if isinstance(said, Progressed)]
    found = {name: peak_bytes(process) / MODEL for name, process in roles.items()}
    return found, max(clocks, default=0) - min(clocks, default=0)


def peak_bytes(process: int) -> int:
    """All of the process: interpreter and libraries are resident too."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


if __name__ == "__main__":
    main()
