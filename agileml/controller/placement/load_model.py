"""Derives the cost of a clock, in network and cores, from the reports of servers and workers.

Automatic stages need it. The controller folds reports into ``LoadReports``, and ``measure_clock_cost`` turns
them into the ``ClockCost`` by which ``stages`` compares the stages. It sums over machines, so neither the
order of the reports nor who served what matters.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from agileml.controller.stages import ClockCost
from agileml.protocol.events import ServerLoad, Setup, Stage, WorkerLoad

MOST_STRAGGLING: Final = 2.0
"""A worker that lags by more than this times the pushes has another reason to lag."""
MOST_STRAYED: Final = 3.0
"""Clocks that are this many times longer or shorter than predicted have another reason."""
LEARNED_OF_A_ROUND: Final = 0.5
"""The weight of the latest round of measurements, in which every worker reports once."""


class LoadReports(Struct, frozen=True):
    """The last report of each machine, and what was learned from earlier ones.

    ``straggling``: how far the reliable machines' workers lagged when stage 2 was last in place, as a share
    of the time that pushes take; None before stage 2.
    """

    servers: Mapping[str, ServerLoad] = field(default_factory=dict)
    workers: Mapping[str, WorkerLoad] = field(default_factory=dict)
    """Reports of workers that have reported twice since ``version``."""
    heard: frozenset[str] = frozenset()
    """Workers that have reported at least once since ``version``."""
    version: int = 0
    """The version of the orders under which workers work."""
    straggling: float | None = None
    computing_s: float | None = None
    """Core-seconds of a shard in a clock."""
    strayed: Mapping[Stage, float] = field(default_factory=dict)
    """The ratio of measured to predicted length of a clock (``clock_seconds``), for each stage reached."""

    def with_server(self, report: ServerLoad) -> LoadReports:
        # Reports of machines that left stay: in stage 1, without pushes, they still show the cost of pushing.
        return replace(self, servers={**self.servers, report.machine: report})

    def with_worker(self, report: WorkerLoad, version: int) -> LoadReports:
        """Adds a worker's report. ``version``: that of the orders under which workers work now."""
        known = self if version == self.version else replace(self.without_workers(), version=version)
        # A worker's first report may still cover clocks under earlier orders.
        workers = (
            {**known.workers, report.machine: report} if report.machine in known.heard else known.workers
        )
        computing_s = report.computing_s / report.shards
        return replace(known, workers=workers, heard=known.heard | {report.machine}, computing_s=computing_s)

    def without_workers(self) -> LoadReports:
        """Drops workers' reports: times under other orders or stages say nothing about who lags now."""
        return replace(self, workers={}, heard=frozenset())

    def with_lag(self, reliable: frozenset[str], load: ClockCost) -> LoadReports:
        """Compares the tiers' workers, in stage 2. Changes nothing where one tier has not reported."""
        mine = [report.busy_s for name, report in self.workers.items() if name in reliable]
        others = [report.busy_s for name, report in self.workers.items() if name not in reliable]
        pushing_s = load.pushed_s / len(reliable) if reliable else 0.0
        if not mine or not others or pushing_s <= 0:
            return self
        lag_s = sum(mine) / len(mine) - sum(others) / len(others)
        return replace(self, straggling=min(max(lag_s / pushing_s, 0.0), MOST_STRAGGLING))

    def with_clock(self, stage: Stage, promised_s: float, workers: int) -> LoadReports:
        """Compares measured clocks with ``promised_s``, the prediction. ``workers``: how many will report."""
        if not self.workers or promised_s <= 0:
            return self
        # The median, as one slow machine is no property of the stage.
        took_s = statistics.median(report.clock_s for report in self.workers.values())
        seen = min(max(took_s / promised_s, 1 / MOST_STRAYED), MOST_STRAYED)
        weight = LEARNED_OF_A_ROUND / workers
        strayed = (1 - weight) * self.strayed.get(stage, 1.0) + weight * seen
        return replace(self, strayed={**self.strayed, stage: strayed})


def measure_clock_cost(loads: LoadReports, setup: Setup) -> ClockCost | None:
    """Returns what one clock costs; None before a server and a worker have reported."""
    completed = sum(report.completions for report in loads.servers.values())
    pushing = [report for report in loads.servers.values() if report.pushed]
    if not completed or loads.computing_s is None:
        return None
    exchanged = sum(report.exchanged for report in loads.servers.values()) / completed
    pushed = sum(report.pushed for report in pushing) / max(1, sum(r.completions for r in pushing))
    return ClockCost(
        computing_s=loads.computing_s * setup.shards,
        exchanged_s=exchanged * setup.partitions / setup.link_bytes_per_s,
        pushed_s=pushed * setup.partitions / setup.link_bytes_per_s,
        straggling=loads.straggling or 0.0,
    )
