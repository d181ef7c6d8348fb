"""Simulates a provider from a price trace: it grants, warns and evicts as the trace says.

It knows the whole trace, as the market does; a caller learns only what has happened by the
time of the call. Under rules without a bid nothing is ever evicted by price; where it knows when a
market had capacity, it refuses and evicts by that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from pricing_data.model.billing import EndReason
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market, MarketRules, PriceHistory
from pricing_data.model.units import Instant, UsdPerHour
from spotctl.errors import BadRequest, CapacityUnavailable, InstanceNotFound
from spotctl.providers.base import (
    InstanceStatus,
    Notice,
    Offering,
    Order,
    OrderAnswer,
    Report,
    answer_at_once,
)


@dataclass(frozen=True, slots=True)
class _Machine:
    token: str
    runs_from: Instant
    warned_at: Instant | None
    evicted_at: Instant | None
    ended_at: Instant | None = None
    end: EndReason | None = None

    def end_by(self, now: Instant) -> tuple[Instant, EndReason] | None:
        """Returns when and why it ended, if it has by ``now``."""
        if self.ended_at is not None and self.end is not None:
            return self.ended_at, self.end
        if self.evicted_at is not None and self.evicted_at <= now:
            return self.evicted_at, EndReason.EVICTED
        return None


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Keeps what is reported of all machines from one moment until another, unless a call changes them."""

    since: Instant
    until: Instant | None
    """None: for good."""
    reports: tuple[Report, ...]
    notices: tuple[Notice, ...]

    def is_valid_at(self, at: Instant) -> bool:
        return self.since <= at and (self.until is None or at < self.until)


UNLIMITED: Final = Observations()


class SimulatedProvider:
    """Grants instances, which run ``boot_s`` seconds later; ``clock`` returns the nominal now.

    ``rules_of``: rules of markets that have their own. ``capacity``: when each market had capacity; a market
    without spells has capacity always.
    """

    def __init__(
        self,
        trace: PriceHistory,
        rules: MarketRules,
        boot_s: int,
        clock: Callable[[], Instant],
        capacity: Observations = UNLIMITED,
        rules_of: Mapping[Market, MarketRules] = MappingProxyType({}),
    ) -> None:
        self._trace = trace
        self._capacity = capacity
        self._common, self._rules = rules, rules_of
        self._boot_s = boot_s
        self._clock = clock
        self._orders: dict[str, tuple[str, ...]] = {}
        self._machines: dict[str, _Machine] = {}
        self._said: _Snapshot | None = None
        self._unheard: list[OrderAnswer] = []

    def offerings(self) -> tuple[Offering, ...]:
        known = self._trace.as_of(self._clock())
        return tuple(
            Offering(market, UsdPerHour(float(series.prices[-1])), Instant(int(series.times[-1])))
            for market in known.markets
            if len(series := known.series(market))
        )

    def submit(self, order: Order) -> None:
        self._unheard.append(answer_at_once(order, self.request))

    def answers(self) -> tuple[OrderAnswer, ...]:
        answers, self._unheard = tuple(self._unheard), []
        return answers

    def request(self, order: Order) -> tuple[str, ...]:
        """Returns the names of the order's instances, or raises a ProviderError."""
        if order.token in self._orders:
            return self._orders[order.token]
        self._check_order(order)
        return self.grant_order(order)

    def grant_order(self, order: Order) -> tuple[str, ...]:
        """Grants an order now, without checking its bid."""
        if order.token in self._orders:
            return self._orders[order.token]
        return self.restore_order(order, self._clock())

    def instance_names(self, order: Order) -> tuple[str, ...]:
        """Returns the names of an order's instances, granted or not."""
        return tuple(f"{order.token}-{number}" for number in range(1, order.count + 1))

    def restore_order(self, order: Order, requested_at: Instant) -> tuple[str, ...]:
        """Takes up an order that was granted at ``requested_at``; its fate follows from the trace."""
        names = self.instance_names(order)
        warned_at = self._taken_at(order.market, order.bid, requested_at)
        evicted_at = (
            None if warned_at is None else Instant(warned_at + self._rules_of_market(order.market).notice_s)
        )
        runs_from = Instant(requested_at + self._boot_s)
        for name in names:
            self._machines[name] = _Machine(order.token, runs_from, warned_at, evicted_at)
        # Any change of a machine outdates the snapshot.
        self._said = None
        self._orders[order.token] = names
        return names

    def describe(self) -> tuple[Report, ...]:
        """Returns all instances; the same tuple for as long as nothing changes."""
        return self._current_snapshot().reports

    def terminate(self, instances: Sequence[str]) -> None:
        self._end_machines(instances, EndReason.RELEASED)

    def fail_instance(self, instance: str, at: float | None = None) -> None:
        """Marks an instance as having died by itself, at ``at`` or now."""
        now = self._clock()
        if at is None or at >= now or self._machines[instance].end_by(now) is not None:
            self._end_machines((instance,), EndReason.FAILED)
        else:
            self.end_instance(instance, Instant(int(at)), EndReason.FAILED)

    @property
    def now(self) -> Instant:
        """Returns the nominal now."""
        return self._clock()

    def taken_at(self, instance: str) -> Instant | None:
        """Returns when the provider will end the instance, as the trace says; None for never. Not for
        decisions.
        """
        return self._machines[instance].evicted_at

    def end_instance(self, instance: str, at: Instant, end: EndReason) -> None:
        """Takes up a recorded end."""
        self._machines[instance] = replace(self._machines[instance], ended_at=at, end=end)
        self._said = None

    def notices(self) -> tuple[Notice, ...]:
        """Returns all notices; the same tuple for as long as nothing changes."""
        return self._current_snapshot().notices

    def _current_snapshot(self) -> _Snapshot:
        now = self._clock()
        if self._said is None or not self._said.is_valid_at(now):
            reports = tuple(
                self._report_machine(name, machine, now) for name, machine in self._machines.items()
            )
            self._said = _Snapshot(now, self._change_after(now), reports, self._notices_at(now))
        return self._said

    def _notices_at(self, now: Instant) -> tuple[Notice, ...]:
        return tuple(
            Notice(name, machine.token, machine.warned_at, machine.evicted_at)
            for name, machine in self._machines.items()
            if machine.warned_at is not None and machine.evicted_at is not None
            if machine.warned_at <= now
            and (machine.ended_at is None or machine.warned_at <= machine.ended_at)
        )

    def next_change(self, after: Instant) -> Instant | None:
        said = self._said
        return said.until if said is not None and said.is_valid_at(after) else self._change_after(after)

    def _change_after(self, after: Instant) -> Instant | None:
        moments = (
            moment
            for machine in self._machines.values()
            if machine.ended_at is None
            for moment in (machine.runs_from, machine.warned_at, machine.evicted_at)
            if moment is not None and moment > after
        )
        return min(moments, default=None)

    def _check_order(self, order: Order) -> None:
        if order.count < 1:
            raise BadRequest(f"an order of {order.count} instances makes no sense")
        if order.bid is None:
            return
        price = self._trace.price(order.market, self._clock())
        if price is None:
            raise CapacityUnavailable(f"{order.market} is not traded at this time; try another market")
        if self._rules_of_market(order.market).cleared_by_bid and price > order.bid:
            raise CapacityUnavailable(
                f"{order.market} costs {price} and the bid is {order.bid}; bid more or try another market"
            )

        if not has_capacity(self._capacity.spells(order.market), self._clock()):
            raise CapacityUnavailable(f"{order.market} has no spot capacity now; try another market")

    def _taken_at(self, market: Market, bid: UsdPerHour | None, since: Instant) -> Instant | None:
        """Returns when the provider warns of an eviction: for its price, for want of capacity, or for its
        age.
        """
        if bid is None:
            return None
        capacity = self._capacity.spells(market)
        moments = (
            self._price_crossing(market, bid, since),
            capacity_ends(capacity, since),
            self._lifetime_warning(market, since),
        )
        return min((moment for moment in moments if moment is not None), default=None)

    def _price_crossing(self, market: Market, bid: UsdPerHour, since: Instant) -> Instant | None:
        """Returns the time of the first price above the bid after ``since``."""
        if not self._rules_of_market(market).cleared_by_bid:
            return None
        series = self._trace.series(market)
        # Strictly after ``since``: the order was admitted at the price of that moment.
        first = int(np.searchsorted(series.times, since, side="right"))
        above = np.flatnonzero(series.prices[first:] > bid)
        return Instant(int(series.times[first + int(above[0])])) if len(above) else None

    def _rules_of_market(self, market: Market) -> MarketRules:
        return self._rules.get(market, self._common)

    def _lifetime_warning(self, market: Market, since: Instant) -> Instant | None:
        """Returns when the provider warns a machine so that it ends at its maximum lifetime."""
        rules = self._rules_of_market(market)
        if rules.max_lifetime_s is None:
            return None
        return Instant(since + self._boot_s + rules.max_lifetime_s - rules.notice_s)

    def _report_machine(self, name: str, machine: _Machine, now: Instant) -> Report:
        ended = machine.end_by(now)
        ran = machine.runs_from <= now and (ended is None or machine.runs_from < ended[0])
        running_at = machine.runs_from if ran else None
        if ended is not None:
            return Report(name, machine.token, InstanceStatus.ENDED, running_at, *ended)
        standing = InstanceStatus.RUNNING if ran else InstanceStatus.PENDING
        return Report(name, machine.token, standing, running_at)

    def _end_machines(self, instances: Sequence[str], end: EndReason) -> None:
        now = self._clock()
        known = [name for name in instances if name in self._machines]
        for name in known:
            if self._machines[name].end_by(now) is None:
                self.end_instance(name, now, end)
        if unknown := [name for name in instances if name not in known]:
            raise InstanceNotFound(f"no such instance: {', '.join(unknown)}")


def has_capacity(spells: Spells, at: Instant) -> bool:
    """Tells whether a machine could be had at ``at``; unobserved times count as having capacity."""
    current = int(np.searchsorted(spells.begins, at, side="right")) - 1
    if not len(spells) or (current >= 0 and at < spells.ends[current]):
        return True
    return current >= 0 and not bool(spells.lost[current])


def capacity_ends(spells: Spells, since: Instant) -> Instant | None:
    """Returns when the spell that holds at ``since`` is lost; None where no loss was observed."""
    current = int(np.searchsorted(spells.begins, since, side="right")) - 1
    if current < 0 or since >= spells.ends[current] or not spells.lost[current]:
        return None
    return Instant(int(spells.ends[current]))
