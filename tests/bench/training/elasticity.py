"""Bulk incorporation and bulk eviction (Harlap 4.5.5, Fig. 4.15): 4 machines, 60 more, and 4 again.

``python -m tests.bench elasticity [--only timed|real] [--clocks N]``: once in virtual time, warned at several
moments of a clock; once with real processes in network namespaces, where so many clocks (10) are timed before
the 60, with them, and after. Printed: every clock; the blip, which is the longest clock at the eviction over
the steady one of 4 machines; and the longest clock while the 60 start and join.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from agileml.protocol.commands import SafeToKill
from agileml.protocol.events import EvictionWarned, MachineReleased, Setup, Stage
from tests.agileml.simulated.timed_experiments import elasticity
from tests.bench.support.machines import MACHINES, PARTITIONS, PATIENCE_S, Watched, median, spread_job

RELIABLE: Final = 4
COMPUTE_S: Final = 12.0
"""Of a clock that 4 machines share."""
LINK_MBIT_PER_S: Final = 20.0
NOTICE_S: Final = 120.0
WARM_UP: Final = 2
MOMENTS: Final = (0.0, 0.25, 0.5, 0.75, 0.95)
"""Of a clock, at which the warning comes in virtual time."""
BOOTING: Final = 19
UP: Final = 0
"""Niceness: 60 machines that boot on the processors of one host would slow down those that compute."""
BAR_S: Final = 0.5
"""What a character of the plot stands for."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Clocks: the last completed before the 60 were started, had joined, were warned, were safe to kill."""

    started: int
    joined: int
    warned: int
    safe: int


def main() -> None:
    """Print the series and what follows from it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench elasticity")
    parser.add_argument("--only", choices=("timed", "real"), help="in virtual time, or with real processes")
    parser.add_argument("--clocks", type=int, default=10, help="to time in each phase of the real run")
    chosen = parser.parse_args(sys.argv[2:])
    if chosen.only != "real":
        _timed()
    if chosen.only != "timed":
        _real(chosen.clocks)


def _timed() -> None:
    for within in MOMENTS:
        told = elasticity(warned_within=within)
        print(
            f"virtual time, warned when {within:.0%} of a clock is over: 4 machines {told.steady:.2f} s; "
            f"joining {told.joining:+.1%}, blip {told.blip:+.1%}, safe to kill after {told.safe_s:.1f} s, "
            f"{told.steps} steps of the controller",
            flush=True,
        )


def _real(clocks: int) -> None:
    setup = Setup(PARTITIONS, 4 * MACHINES, clocks=10**6)
    stay = [f"r{number}" for number in range(RELIABLE)]
    with spread_job(setup, stay, COMPUTE_S * RELIABLE, LINK_MBIT_PER_S) as job:
        job.reach(WARM_UP + clocks)
        marks, safe_s = _join_and_evict(job, clocks)
        job.reach(marks.safe + clocks)
        _report(job, marks, safe_s, clocks)


def _join_and_evict(job: Watched, clocks: int) -> tuple[Marks, float]:
    come = [f"t{number}" for number in range(MACHINES - RELIABLE)]
    started = job.job.clock
    for machine in come:
        job.meanwhile(partial(job.job.start_agent, machine))
        job.network.prioritize(machine, BOOTING)
        job.job.announce(machine)
    job.joined(MACHINES)
    for machine in come:
        job.meanwhile(partial(job.network.prioritize, machine, UP))
    joined = job.job.clock
    job.reach_stage(Stage.TWO)
    job.reach(job.job.clock + clocks)
    warned, warned_at = job.job.clock, time.monotonic()
    job.job.client.send_events(EvictionWarned(tuple(come), NOTICE_S))
    while sum(isinstance(said, SafeToKill) for said in job.job.heard) < len(come):
        job.listen()
        if time.monotonic() - warned_at > PATIENCE_S:
            raise AssertionError(f"60 machines were not safe to kill within {PATIENCE_S} s")
    safe_s = time.monotonic() - warned_at
    safe = job.job.clock
    for machine in come:
        job.meanwhile(partial(job.job.host.kill, machine))
    job.job.client.send_events(*(MachineReleased(machine) for machine in come))
    return Marks(started, joined, warned, safe), safe_s


def _report(job: Watched, marks: Marks, safe_s: float, clocks: int) -> None:
    for clock in range(WARM_UP + 1, job.job.clock + 1):
        (took,) = job.clock_seconds(clock, clock)[:1]
        told = [name for name in Marks.__slots__ if getattr(marks, name) == clock]
        print(f"{clock:>4} {took:7.2f} s {'#' * round(took / BAR_S)} {' '.join(told)}")
    before = median(job.clock_seconds(WARM_UP + 1, marks.started))
    after = median(job.clock_seconds(marks.safe + 3, marks.safe + clocks))
    joining = job.clock_seconds(marks.started + 1, max(marks.joined, marks.started + 1))
    evicting = job.clock_seconds(marks.warned + 1, marks.safe + 2)
    many = median(job.clock_seconds(marks.joined + 3, marks.warned))
    print(f"steady: 4 machines {before:.2f} s before and {after:.2f} s after, 64 machines {many:.2f} s")
    print(f"joining: the longest clock is {max(joining) / before - 1:+.1%} of the steady one of 4 machines")
    blip = max(evicting) / before - 1
    print(f"eviction: blip {blip:+.1%}; all 60 machines were safe to kill after {safe_s:.1f} s")
    print(f"clocks computed again: {sum(job.job.redone)}")
