"""Harlap 4.5 in virtual time: the stages at four ratios (Fig. 4.10 to 4.13), and 4 + 60 - 60 (Fig. 4.15).

The proportions follow the paper's matrix factorization on 64 machines: nearly all of the model changes in a
clock, a worker exchanges a small part of it, and with 32 servers the network takes about a tenth of a clock.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Final

from agileml.protocol.commands import SafeToKill
from agileml.protocol.events import EvictionWarned, MachineReleased, Setup, Stage, StageDecided
from tests.agileml.simulated.timed import Timed, Traffic

MACHINES: Final = 64
PARTITIONS: Final = MACHINES // 2
TRAFFIC: Final = Traffic(rows=28_500, columns=64, touched=264)
"""7.3 MB, of which a shard reads and updates 68 kB; 256 shards change nine rows of ten in a clock."""
CLOCK_S: Final = 4.0
"""Of computing, in a clock that 64 machines share."""
LINK_BYTES_PER_S: Final = 12e6 / 8
RATIOS: Final = {"63:1": 1, "15:1": 4, "7:1": 8, "1:1": 32}
"""Reliable machines at each ratio."""
SETTLE: Final = 2
"""Clocks after a change that do not count."""
MAKE_UP_ITS_MIND: Final = 4
"""Clocks until an automatic choice is looked at."""


def shards_for(reliable: int) -> int:
    """So many that all machines, and the transient ones alone, have nearly equal numbers of them.

    At 15:1 and 63:1 that takes too many: there the remainder hides what stage 3 loses (6 and 2 %).
    """
    transient = MACHINES - reliable
    even = math.lcm(transient, MACHINES)
    return even if even <= 8 * MACHINES else 4 * transient


def training(shards: int, *, automatic: bool = False) -> Timed:
    """A job on 64 machines at the most."""
    setup = Setup(PARTITIONS, shards, clocks=10**6, automatic=automatic, link_bytes_per_s=LINK_BYTES_PER_S)
    traffic = Traffic(TRAFFIC.rows, TRAFFIC.columns, TRAFFIC.touched * 4 * MACHINES // shards)
    return Timed(setup, traffic, CLOCK_S * MACHINES / shards, LINK_BYTES_PER_S)


def automatic_training(reliable: int) -> Timed:
    """On 64 machines, of which so many are reliable; the job chooses its stage by what it measures."""
    job = training(shards_for(reliable), automatic=True)
    job.add(*(f"r{number}" for number in range(reliable)))
    job.add(*(f"t{number}" for number in range(MACHINES - reliable)))
    return job


# ---- stages over ratios ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds of a clock in each stage; what the job chose by itself, and what its clocks took then."""

    took: dict[Stage, float]
    chosen: Stage
    automatic: float


def traditional(clocks: int = 1) -> float:
    """All machines reliable, half of them servers: seconds of a clock."""
    job = training(4 * MACHINES)
    job.add(*(f"r{number}" for number in range(MACHINES)))
    return statistics.median(job.next_clocks(SETTLE, clocks))


def stages(reliable: int, clocks: int = 1) -> Stages:
    """Times the stage that the job chooses by itself, coming from the stage of its ratio; then each stage in
    turn.
    """
    job = automatic_training(reliable)
    automatic = statistics.median(job.next_clocks(MAKE_UP_ITS_MIND, clocks))
    chosen, took = job.stages[-1].stage, dict[Stage, float]()
    for stage in Stage:
        job.tell(StageDecided(stage))
        took[stage] = statistics.median(job.next_clocks(SETTLE, clocks))
        assert job.stages[-1].stage is stage
    return Stages(took, chosen, automatic)


def settles_on(reliable: int, first: Stage) -> Stage:
    """The stage of a job that chooses for itself, some time after it was put into ``first``."""
    job = automatic_training(reliable)
    job.tell(StageDecided(first))
    job.next_clocks(SETTLE, 1)
    job.tell(StageDecided(None))
    job.next_clocks(2 * MAKE_UP_ITS_MIND, 1)
    return job.stages[-1].stage


# ---- bulk incorporation and bulk eviction ------------------------------------------------------

STAY: Final = 4
NOTICE_S: Final = 120.0
COMES_UP_S: Final = 0.25
"""Between two of the machines that join."""


@dataclass(frozen=True, slots=True)
class Elasticity:
    """Seconds of each clock; the last ones before the 60 were announced, owned input, were warned, were safe.

    ``safe_s``: from the warning until all of them were; ``steps``: of the controller.
    """

    seconds: list[float]
    announced: int
    joined: int
    warned: int
    safe: int
    safe_s: float
    steps: int

    @property
    def steady(self) -> float:
        """The length of a steady clock of 4 machines."""
        return statistics.median(self.seconds[1 : self.announced])

    @property
    def joining(self) -> float:
        """The excess of the longest clock while they joined over a steady one, as a share of that."""
        return max(self.seconds[self.announced : self.joined + 2]) / self.steady - 1

    @property
    def blip(self) -> float:
        """The excess of the longest clock at the eviction over a steady one, as a share of that."""
        return max(self.seconds[self.warned : self.safe + 2]) / self.steady - 1


def elasticity(clocks: int = 3, warned_within: float = 0.5) -> Elasticity:
    """4 machines, 60 more, and 4 again. ``warned_within``: which part of a clock is over at the warning."""
    job = training(4 * MACHINES)
    job.add(*(f"r{number}" for number in range(STAY)))
    job.reach(1 + clocks)
    announced, come = job.clock, [f"t{number}" for number in range(MACHINES - STAY)]
    job.add(*come, every_s=COMES_UP_S)
    job.run(lambda: job.controller.cluster.holds_shards(come[-1]))
    joined = job.clock
    job.reach(joined + 1 + clocks)
    warned, moment = job.clock, job.now + warned_within * job.clock_seconds(job.clock, job.clock)[0]
    job.run(lambda: job.now >= moment)
    job.tell(EvictionWarned(tuple(come), NOTICE_S))
    job.run(lambda: sum(isinstance(word, SafeToKill) for _, word in job.heard) == len(come))
    safe, safe_s = job.clock, job.now - moment
    job.remove(*come)
    job.tell(*(MachineReleased(name) for name in come))
    job.reach(safe + clocks)
    assert not job.redone
    seconds = [job.completed_at[1], *job.clock_seconds(2, job.clock)]
    return Elasticity(seconds, announced, joined, warned, safe, safe_s, job.steps)
