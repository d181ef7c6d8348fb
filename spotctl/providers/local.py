"""Supplies machines of this computer, priced and taken away as a trace says.

The market is simulated; the machines it grants are real processes. Those it takes are killed, and those that
die by themselves have failed. So the layers above cannot tell it from a cloud.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from agileml.job import JobFolder
from agileml.node.hosts.local import LocalHost
from agileml.node.tier import Tier
from pricing_data.model.units import Instant
from spotctl.errors import InstanceNotFound
from spotctl.providers.base import (
    InstanceStatus,
    Notice,
    Offering,
    Order,
    OrderAnswer,
    Report,
    answer_at_once,
)
from spotctl.providers.simulated import SimulatedProvider


class LeftMachines:
    """Lists and ends the machines that a run has on this computer, without a market: nobody drives the run.

    ``folder``: the run's training folder, which serves as the tags that a cloud would keep.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = JobFolder(folder.resolve())
        self._host = LocalHost(folder)

    def describe(self) -> tuple[Report, ...]:
        alive = frozenset(self._host.alive_machines() if self._started() else ())
        return tuple(
            Report(
                name,
                name.rpartition("-")[0],
                InstanceStatus.RUNNING if name in alive else InstanceStatus.ENDED,
            )
            for name in self._started()
        )

    def terminate(self, instances: Sequence[str]) -> None:
        """Ends machines, and removes the job's sockets once none is left. Raises TimeoutError last, where one
        survives.
        """
        known = frozenset(self._started())
        try:
            self._host.kill_each([name for name in instances if name in known])
        finally:
            if known and not self._host.alive_machines():
                self._folder.remove_sockets()
        if unknown := [name for name in instances if name not in known]:
            raise InstanceNotFound(f"{', '.join(unknown)}: no such machine was ever started")

    def _started(self) -> tuple[str, ...]:
        folder = self._folder.path / "machines"
        return tuple(sorted(entry.name for entry in folder.iterdir())) if folder.is_dir() else ()


class LocalProvider:
    """Runs every instance of ``market`` as a machine of ``host``."""

    def __init__(self, market: SimulatedProvider, host: LocalHost) -> None:
        self._market = market
        self._host = host
        self._gone: set[str] = set()
        self._unheard: list[OrderAnswer] = []

    def offerings(self) -> tuple[Offering, ...]:
        return self._market.offerings()

    def submit(self, order: Order) -> None:
        self._unheard.append(answer_at_once(order, self.request))

    def answers(self) -> tuple[OrderAnswer, ...]:
        answers, self._unheard = tuple(self._unheard), []
        return answers

    def request(self, order: Order) -> tuple[str, ...]:
        """Returns the names of the order's instances, or raises a ProviderError."""
        names = self._grant_or_request(order)
        tier = Tier.RELIABLE if order.reliable else Tier.TRANSIENT
        for name in names:
            if not self._host.was_started(name):
                # The machine ends itself at that time, even if no spotctl is there to take it.
                until = self._market.taken_at(name)
                self._host.start_machine(
                    name, tier, order.cores, until=math.inf if until is None else float(until)
                )
        return names

    def _grant_or_request(self, order: Order) -> tuple[str, ...]:
        """Returns the instances of an order; what was started before a crash is granted at any price."""
        names = self._market.instance_names(order)
        # The first machine is started first: if it was started, the order had been granted.
        if names and self._host.was_started(names[0]):
            return self._market.grant_order(order)
        return self._market.request(order)

    def describe(self) -> tuple[Report, ...]:
        for report in self._market.describe():
            if report.standing is not InstanceStatus.ENDED and not self._host.is_alive(report.instance):
                # A process that died by itself is an instance that failed.
                self._market.fail_instance(report.instance, self._host.ended_at(report.instance))
        ended = {
            report.instance: report.ended_at
            for report in self._market.describe()
            if report.standing is InstanceStatus.ENDED
        }
        self._end_processes(ended)
        return self._market.describe()

    def terminate(self, instances: Sequence[str]) -> None:
        try:
            self._market.terminate(instances)
        finally:
            now = self._market.now
            self._end_processes({name: now for name in instances if self._host.was_started(name)})

    def notices(self) -> tuple[Notice, ...]:
        return self._market.notices()

    def next_change(self, after: Instant) -> Instant | None:
        return self._market.next_change(after)

    def _end_processes(self, ended: Mapping[str, Instant | None]) -> None:
        """Ends machines. ``ended``: the nominal moment for each machine; equal moments end together."""
        there = {name: at for name, at in ended.items() if name not in self._gone}
        for at in {at for at in there.values() if at is not None}:
            self._host.end_machines([name for name, end in there.items() if end == at], float(at))
        for name in there:
            self._host.kill(name)
            self._gone.add(name)
