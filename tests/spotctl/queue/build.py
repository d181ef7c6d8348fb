"""Queues over a scripted market, replayed: who held what and when is read from the ledgers alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from pricing_data.formats.traces import read_trace
from pricing_data.model.market import PriceHistory
from pricing_data.model.units import HOUR_S
from spotctl.control import entries as e
from spotctl.control.state import State
from spotctl.job.choices import WorldKind
from spotctl.job.resolve import PriceOptions
from spotctl.queue.file import load_queue
from spotctl.queue.lifecycle.journal import QueueFolder, QueueRun, root_of
from spotctl.queue.lifecycle.run_queue import resume_queue, run_queue
from spotctl.queue.spec import QueueOptions, QueueSettings
from spotctl.records.ledger import Ledger
from spotctl.records.run import Run
from tests.scenarios.support.market import START, Step, write_prices

COMMAND = """\
name: {name}
engine: command
run: "true"
work: {{steps: {steps}, takes: {takes}m, on: c4.xlarge}}
checkpoint: {{every: 10m, restart: 30s}}
resources: {{spot: {{clouds: [aws], instance_types: [c4.xlarge]}}}}
output: {folder}/out-{name}
"""
ELASTIC = """\
name: {name}
app: agileml.apps.mf:MatrixFactorization
data: {folder}/ratings.csv
stop: {{clocks: {steps}}}
resources:
  reliable: {{instance_type: m4.large}}
  spot: {{instance_types: [c4.xlarge], max_instances: {most}, max_per_allocation: 2}}
scaling: {{phi: 0.98, sigma: 15s, lambda: 15s, stage2_above: 1, stage3_above: 4}}
local: {{core_seconds_per_clock: {work}}}
output: {folder}/out-{name}
"""
ON_DEMAND = {"m4.large": Decimal("0.120"), "c4.xlarge": Decimal("0.209")}
"""Dollars per hour in us-east-1 in June 2016."""


class Crash(Exception):
    """The process that runs the queue dies."""


@dataclass
class Watching:
    """Keeps what it is told. ``dies_after``: entries after which the process is gone."""

    dies_after: int | None = None
    seen: int = 0
    left: dict[str, int] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    def on_queue(self, run: QueueRun, settings: QueueSettings) -> None:
        """Nothing to keep."""

    def on_start(self, run: Run, prices: str) -> None:
        self.runs[run.name] = run

    def on_entry(self, state: State, entry: e.Entry) -> None:
        self.seen += 1
        if self.dies_after is not None and self.seen > self.dies_after:
            raise Crash

    def on_left(self, job: str, exit_code: int, why: str, final: dict[str, Any] | None) -> None:
        self.left[job] = exit_code

    def on_trouble(self, told: str) -> None:
        self.troubles.append(told)


@dataclass(frozen=True)
class Queue:
    """A queue file in ``folder``, and the market it is run in."""

    folder: Path
    rules: str = "aws-2016"

    @property
    def prices(self) -> Path:
        return self.folder / "prices.csv"

    @property
    def settings(self) -> QueueSettings:
        prices = PriceOptions(trace=self.prices, start=START, rules=self.rules)
        return QueueSettings(
            load_queue(self.folder / "queue.yaml"), QueueOptions(WorldKind.REPLAY, prices=prices)
        )

    def run(self, watching: Watching) -> dict[str, Any]:
        return run_queue(self.settings, watching)

    def go_on(self, watching: Watching) -> dict[str, Any]:
        settings = self.settings
        folder = QueueFolder(settings.spec.name, root_of(WorldKind.REPLAY))
        with folder.lock():
            newest = folder.newest_run()
            assert newest is not None
            return resume_queue(settings, folder, newest, watching)


def queue(
    folder: Path,
    head: str,
    jobs: Sequence[tuple[str, str]],
    steps: Sequence[Step] = (),
    rules: str = "aws-2016",
    types: Sequence[str] = ("c4.xlarge",),
) -> Queue:
    """``head``: of the queue file. ``jobs``: each job's file, and what its entry says beside ``job``."""
    write_prices(folder / "prices.csv", steps, types)
    (folder / "ratings.csv").write_text("1,1,3.0\n")
    lines = [head, "jobs:"]
    for number, (text, more) in enumerate(jobs):
        (folder / f"job{number}.yaml").write_text(text)
        lines.append(f"  - {{job: job{number}.yaml{', ' if more else ''}{more}}}")
    (folder / "queue.yaml").write_text("\n".join(lines) + "\n")
    return Queue(folder, rules)


def command(folder: Path, name: str, steps: int = 20, takes: int = 60) -> str:
    return COMMAND.format(folder=folder, name=name, steps=steps, takes=takes)


def elastic(folder: Path, name: str, steps: int = 20, most: int = 4, work: int = 2400) -> str:
    return ELASTIC.format(folder=folder, name=name, steps=steps, most=most, work=work)


# ---- what the ledgers say ------------------------------------------------------------------------


def entries_of(runs: Mapping[str, Run]) -> dict[str, tuple[e.Entry, ...]]:
    found = {}
    for name, run in runs.items():
        ledger = Ledger.open_file(run.ledger_path)
        found[name] = ledger.read_entries()
        ledger.close()
    return found


@dataclass(frozen=True)
class Machine:
    """One instance, from the ledger's own words."""

    kind: str
    zone: str
    on_demand: bool
    granted: int
    ran: int | None
    ended: int
    how: str


def machines(entries: Iterable[e.Entry]) -> Iterator[Machine]:
    asked: dict[str, e.Acquire] = {}
    granted: dict[str, tuple[e.Acquire, int]] = {}
    ran: dict[str, int] = {}
    for entry in entries:
        match entry:
            case e.Acquire():
                asked[entry.allocation] = entry
            case e.Granted():
                granted |= dict.fromkeys(entry.instances, (asked[entry.allocation], entry.at))
            case e.InstancesRunning():
                ran |= dict.fromkeys(entry.instances, entry.at)
            case e.InstancesEnded():
                for name in entry.instances:
                    order, at = granted[name]
                    yield Machine(
                        order.market.instance_type,
                        order.market.zone,
                        order.bid is None,
                        at,
                        ran.get(name),
                        entry.at,
                        entry.end,
                    )
            case _:
                pass


def most_at_once(ledgers: Mapping[str, tuple[e.Entry, ...]]) -> Counter[str]:
    """Of each type, the most machines that there were at any moment, all jobs together."""
    changes: list[tuple[int, int, str]] = []
    for entries in ledgers.values():
        for machine in machines(entries):
            changes += [(machine.granted, 1, machine.kind), (machine.ended, -1, machine.kind)]
    held, most = Counter[str](), Counter[str]()
    for _, change, kind in sorted(changes):  # who ends makes room for who comes at the same moment
        held[kind] += change
        most[kind] = max(most[kind], held[kind])
    return most


def owed(entries: Iterable[e.Entry], prices: Path) -> Decimal:
    """By the rules of 2016, in decimals: each hour at the price of its start; none for the hour of an
    eviction.
    """
    history = read_trace(prices).history
    total = Decimal(0)
    for machine in machines(entries):
        if machine.ran is None:
            continue
        for hour in range(machine.ran, machine.ended, HOUR_S):
            if machine.how == "evicted" and machine.ended < hour + HOUR_S:
                continue
            price = ON_DEMAND[machine.kind] if machine.on_demand else _price(history, machine, hour)
            total += price.quantize(Decimal("0.000001"), ROUND_HALF_UP)
    return total


def _price(history: PriceHistory, machine: Machine, at: int) -> Decimal:
    for market in history.markets:
        if (market.instance_type, market.zone) == (machine.kind, machine.zone):
            series = history.series(market)
            return Decimal(str(float(series.prices[[n for n, t in enumerate(series.times) if t <= at][-1]])))
    raise KeyError(machine)
