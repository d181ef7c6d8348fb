"""Machines of this computer, priced and taken away as a trace says.

The market is the simulated one; what it grants are real processes, what it takes is killed, and what dies
by itself is a failure. So whatever is above cannot tell it from a cloud.
"""

from __future__ import annotations

from collections.abc import Sequence

from agileml.events import Tier
from agileml.hosts.local import LocalHost
from pricing_data.units import Instant
from spotctl.providers.base import Notice, Offering, Order, Report, Standing
from spotctl.providers.simulated import SimulatedProvider


class LocalProvider:
    """Every instance of ``market`` as a machine of ``host``."""

    def __init__(self, market: SimulatedProvider, host: LocalHost) -> None:
        self._market = market
        self._host = host
        self._gone: set[str] = set()

    def offerings(self) -> tuple[Offering, ...]:
        return self._market.offerings()

    def request(self, order: Order) -> tuple[str, ...]:
        names = self._granted(order)
        tier = Tier.RELIABLE if order.reliable else Tier.TRANSIENT
        for name in names:
            if not self._host.knows(name):
                self._host.start_machine(name, tier, order.cores)
        return names

    def _granted(self, order: Order) -> tuple[str, ...]:
        """What was started before a crash was granted, whatever the price has become since."""
        names = self._market.names(order)
        if names and self._host.knows(names[0]):
            return self._market.grant(order)
        return self._market.request(order)

    def describe(self) -> tuple[Report, ...]:
        for report in self._market.describe():
            if report.standing is Standing.ENDED:
                self._take(report.instance)
            elif not self._host.alive(report.instance):
                self._market.fail(report.instance)
        return self._market.describe()

    def terminate(self, instances: Sequence[str]) -> None:
        try:
            self._market.terminate(instances)
        finally:
            for instance in instances:
                if self._host.knows(instance):
                    self._take(instance)

    def notices(self) -> tuple[Notice, ...]:
        return self._market.notices()

    def next_change(self, after: Instant) -> Instant | None:
        return self._market.next_change(after)

    def _take(self, instance: str) -> None:
        if instance not in self._gone:
            self._host.kill(instance)
            self._gone.add(instance)
