"""The stages on 64 machines at four ratios (Harlap 4.5.3, Fig. 4.10 to 4.13): seconds per clock.

``python -m tests.bench stages [--only timed|real] [--clocks N] [RATIO ...]``: once in virtual time; once with
real processes in network namespaces, where so many clocks (20) of each stage are timed at a ratio (63:1,
15:1, 7:1, 1:1), in turns of ``TURN`` clocks, and in between the traditional layout: all machines reliable,
half of them servers. Every turn begins with a change of stage in the running job, and with ``SETTLE`` clocks
that do not count. In the end the job chooses its stage by itself.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agileml.protocol.commands import StageChanged
from agileml.protocol.events import Setup, Stage, StageDecided
from tests.agileml.simulated import timed_experiments
from tests.agileml.simulated.timed_experiments import RATIOS, shards_for
from tests.bench.support.machines import MACHINES, MODEL, PARTITIONS, TOUCHED, median, spread_job

COMPUTE_S: Final = 4.0
"""Of a clock that 64 machines share."""
LINK_MBIT_PER_S: Final = 12.0
SETTLE: Final = 2
TURN: Final = 4
MAKE_UP_ITS_MIND: Final = 6
"""Clocks until an automatic choice is looked at."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of clocks in each stage; and the stage that the job chose, with its clocks."""

    took: dict[Stage, list[float]]
    chosen: Stage
    automatic: list[float]


def main() -> None:
    """Print a line for each ratio as it is done."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench stages")
    parser.add_argument("--only", choices=("timed", "real"), help="in virtual time, or with real processes")
    parser.add_argument("--clocks", type=int, default=20, help="to time of each stage in the real run")
    parser.add_argument("ratios", nargs="*", metavar="RATIO", help=", ".join(RATIOS))
    chosen = parser.parse_args(sys.argv[2:])
    ratios = chosen.ratios or list(RATIOS)
    if not set(ratios) <= RATIOS.keys():
        parser.error(f"found {' '.join(ratios)}, expected some of {', '.join(RATIOS)}")
    if chosen.only != "real":
        _timed(ratios)
    if chosen.only != "timed":
        _real(chosen.clocks, ratios)


def _timed(ratios: Sequence[str]) -> None:
    base = timed_experiments.traditional()
    print(f"virtual time: traditional {base:5.2f} s", flush=True)
    for ratio in ratios:
        timed = timed_experiments.stages(RATIOS[ratio])
        print(f"{ratio:>5}: {_told(timed.took, base)}; automatic chose {timed.chosen.value}", flush=True)


def _real(clocks: int, ratios: Sequence[str]) -> None:
    print(
        f"{MACHINES} machines, links of {LINK_MBIT_PER_S:g} Mbit/s each way, {COMPUTE_S:g} s of computing a "
        f"clock; {MODEL}, {TOUCHED} rows touched, {PARTITIONS} partitions; medians of {clocks} clocks (over "
        f"the traditional)",
        flush=True,
    )
    traditional: list[float] = []
    for ratio in ratios:
        traditional += _traditional(max(TURN, math.ceil(clocks / len(RATIOS))))
        timed = _stages(RATIOS[ratio], clocks)
        base = median(traditional)
        took = {stage: median(seconds) for stage, seconds in timed.took.items()}
        print(
            f"{ratio:>5}: {_told(took, base)}; traditional {base:5.2f} s; "
            f"automatic chose {timed.chosen.value}: {median(timed.automatic):6.2f} s",
            flush=True,
        )


def _told(took: Mapping[Stage, float], base: float) -> str:
    each = (f"stage {stage.value} {took_s:6.2f} s ({took_s / base:4.2f})" for stage, took_s in took.items())
    return ", ".join(each)


def _setup(shards: int) -> Setup:
    return Setup(PARTITIONS, shards, clocks=10**6, automatic=True, link_bytes_per_s=LINK_MBIT_PER_S * 1e6 / 8)


def _traditional(clocks: int) -> list[float]:
    machines = [f"r{number}" for number in range(MACHINES)]
    with spread_job(_setup(4 * MACHINES), machines, COMPUTE_S * MACHINES, LINK_MBIT_PER_S) as job:
        return job.next_clocks(SETTLE, clocks)


def _stages(reliable: int, clocks: int) -> Timed:
    """In turns, each a change of stage, until each stage has been timed for so many clocks."""
    machines = [f"r{number}" for number in range(reliable)]
    machines += [f"t{number}" for number in range(MACHINES - reliable)]
    took: dict[Stage, list[float]] = {stage: [] for stage in Stage}
    setup = _setup(shards_for(reliable))
    with spread_job(setup, machines, COMPUTE_S * MACHINES, LINK_MBIT_PER_S) as job:
        for _ in range(math.ceil(clocks / TURN)):
            for stage in Stage:
                job.job.client.send_events(StageDecided(stage))
                job.reach_stage(stage)
                took[stage] += job.next_clocks(SETTLE, TURN)
                print(f"  {reliable} reliable, stage {stage.value}: {took[stage][-TURN:]}", file=sys.stderr)
        job.job.client.send_events(StageDecided(None))
        automatic = job.next_clocks(MAKE_UP_ITS_MIND, TURN)
        chosen = [said.stage for said in job.job.heard if isinstance(said, StageChanged)][-1]
    return Timed({stage: seconds[:clocks] for stage, seconds in took.items()}, chosen, automatic)
