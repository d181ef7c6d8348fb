"""Simulates a provider from a price trace: it grants, warns and evicts as the trace says.

It knows the whole trace, as the market does; a caller learns only what has happened by the time of the call.
Under rules without a bid nothing is ever evicted by price; where it knows when a market had capacity, it
refuses and evicts by that.
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


class _TraceMarkets:
    """Knows the whole trace: which orders are granted, and when their machines are warned.

    ``rules_of``: rules of markets that have their own. ``capacity``: when each market had capacity; a market
    without spells has capacity always. ``boot_s``: seconds from an order to running machines.
    """

    def __init__(
        self,
        trace: PriceHistory,
        rules: MarketRules,
        boot_s: int,
        capacity: Observations,
        rules_of: Mapping[Market, MarketRules],
    ) -> None:
        self._trace = trace
        self._capacity = capacity
        self._common, self._rules = rules, rules_of
        self._boot_s = boot_s

    def offerings(self, now: Instant) -> tuple[Offering, ...]:
        """Returns every market that has a price by ``now``, with the last one."""
        known = self._trace.as_of(now)
        return tuple(
            Offering(market, UsdPerHour(float(series.prices[-1])), Instant(int(series.times[-1])))
            for market in known.markets
            if len(series := known.series(market))
        )

    def check_order(self, order: Order, now: Instant) -> None:
        """Raises BadRequest or CapacityUnavailable for an order that is not granted."""
        if order.count < 1:
            raise BadRequest(f"an order of {order.count} instances makes no sense")
        # Machines on demand are granted always: the trace records spot markets only.
        if order.bid is None:
            return
        price = self._trace.price(order.market, now)
        if price is None:
            raise CapacityUnavailable(f"{order.market} is not traded at this time; try another market")
        if self._rules_of_market(order.market).cleared_by_bid and price > order.bid:
            raise CapacityUnavailable(
                f"{order.market} costs {price} and the bid is {order.bid}; bid more or try another market"
            )
        if not has_capacity(self._capacity.spells(order.market), now):
            raise CapacityUnavailable(f"{order.market} has no spot capacity now; try another market")

    def lives_of(self, order: Order, since: Instant) -> _Machine:
        """Returns the life of each machine of an order granted at ``since``, until its eviction."""
        warned_at = self._warning_time(order.market, order.bid, since)
        notice_s = self._rules_of_market(order.market).notice_s
        evicted_at = None if warned_at is None else Instant(warned_at + notice_s)
        return _Machine(order.token, Instant(since + self._boot_s), warned_at, evicted_at)

    def _warning_time(self, market: Market, bid: UsdPerHour | None, since: Instant) -> Instant | None:
        """Returns when machines are warned, for their price, lack of capacity or age; None for never."""
        if bid is None:
            return None
        moments = (
            self._price_crossing(market, bid, since),
            capacity_ends(self._capacity.spells(market), since),
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

    def _lifetime_warning(self, market: Market, since: Instant) -> Instant | None:
        """Returns when a machine is warned so that it ends at its maximum lifetime, counted from its boot."""
        rules = self._rules_of_market(market)
        if rules.max_lifetime_s is None:
            return None
        return Instant(since + self._boot_s + rules.max_lifetime_s - rules.notice_s)

    def _rules_of_market(self, market: Market) -> MarketRules:
        return self._rules.get(market, self._common)


class _Machines:
    """Keeps the machines that were granted, and what is reported of them."""

    def __init__(self) -> None:
        self._machines: dict[str, _Machine] = {}
        self._snapshot: _Snapshot | None = None

    def __getitem__(self, name: str) -> _Machine:
        return self._machines[name]

    def __contains__(self, name: str) -> bool:
        return name in self._machines

    def __setitem__(self, name: str, machine: _Machine) -> None:
        self._machines[name] = machine
        # Any change of a machine outdates the snapshot.
        self._snapshot = None

    def snapshot(self, now: Instant) -> _Snapshot:
        """Returns what is reported at ``now``; the same object for as long as nothing changes."""
        if self._snapshot is None or not self._snapshot.is_valid_at(now):
            reports = tuple(
                self._report_machine(name, machine, now) for name, machine in self._machines.items()
            )
            self._snapshot = _Snapshot(now, self._change_after(now), reports, self._notices_at(now))
        return self._snapshot

    def next_change(self, after: Instant) -> Instant | None:
        known = self._snapshot
        return known.until if known is not None and known.is_valid_at(after) else self._change_after(after)

    def _notices_at(self, now: Instant) -> tuple[Notice, ...]:
        return tuple(
            Notice(name, machine.token, machine.warned_at, machine.evicted_at)
            for name, machine in self._machines.items()
            if machine.warned_at is not None and machine.evicted_at is not None
            if machine.warned_at <= now
            and (machine.ended_at is None or machine.warned_at <= machine.ended_at)
        )

    def _change_after(self, after: Instant) -> Instant | None:
        moments = (
            moment
            for machine in self._machines.values()
            if machine.ended_at is None
            for moment in (machine.runs_from, machine.warned_at, machine.evicted_at)
            if moment is not None and moment > after
        )
        return min(moments, default=None)

    def _report_machine(self, name: str, machine: _Machine, now: Instant) -> Report:
        ended = machine.end_by(now)
        ran = machine.runs_from <= now and (ended is None or machine.runs_from < ended[0])
        running_at = machine.runs_from if ran else None
        if ended is not None:
            return Report(name, machine.token, InstanceStatus.ENDED, running_at, *ended)
        standing = InstanceStatus.RUNNING if ran else InstanceStatus.PENDING
        return Report(name, machine.token, standing, running_at)


class SimulatedProvider:
    """Grants instances, which run ``boot_s`` seconds later; ``clock`` returns the nominal now.

    ``capacity``, ``rules_of``: see ``_TraceMarkets``.
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
        self._markets = _TraceMarkets(trace, rules, boot_s, capacity, rules_of)
        self._clock = clock
        self._orders: dict[str, tuple[str, ...]] = {}
        self._machines = _Machines()
        self._unheard: list[OrderAnswer] = []

    @property
    def now(self) -> Instant:
        """Returns the nominal now."""
        return self._clock()

    def offerings(self) -> tuple[Offering, ...]:
        return self._markets.offerings(self._clock())

    def submit(self, order: Order) -> None:
        self._unheard.append(answer_at_once(order, self.request))

    def answers(self) -> tuple[OrderAnswer, ...]:
        answers, self._unheard = tuple(self._unheard), []
        return answers

    def request(self, order: Order) -> tuple[str, ...]:
        """Returns the names of the order's instances, or raises a ProviderError."""
        # A token that was granted once is granted for good, whatever the price is by now.
        if order.token not in self._orders:
            self._markets.check_order(order, self._clock())
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
        names, life = self.instance_names(order), self._markets.lives_of(order, requested_at)
        for name in names:
            self._machines[name] = life
        # Kept for good: a repeated token gets the same instances.
        self._orders[order.token] = names
        return names

    def describe(self) -> tuple[Report, ...]:
        """Returns all instances; the same tuple for as long as nothing changes."""
        return self._machines.snapshot(self._clock()).reports

    def notices(self) -> tuple[Notice, ...]:
        """Returns all notices; the same tuple for as long as nothing changes."""
        return self._machines.snapshot(self._clock()).notices

    def next_change(self, after: Instant) -> Instant | None:
        return self._machines.next_change(after)

    def terminate(self, instances: Sequence[str]) -> None:
        self._end_machines(instances, EndReason.RELEASED)

    def fail_instance(self, instance: str, at: float | None = None) -> None:
        """Marks an instance as having died by itself, at ``at`` or now."""
        now = self._clock()
        if at is None or at >= now or self._machines[instance].end_by(now) is not None:
            self._end_machines((instance,), EndReason.FAILED)
        else:
            self.end_instance(instance, Instant(int(at)), EndReason.FAILED)

    def taken_at(self, instance: str) -> Instant | None:
        """Returns when the trace ends the instance; None for never. Not for decisions."""
        return self._machines[instance].evicted_at

    def end_instance(self, instance: str, at: Instant, end: EndReason) -> None:
        """Takes up a recorded end."""
        self._machines[instance] = replace(self._machines[instance], ended_at=at, end=end)

    def _end_machines(self, instances: Sequence[str], end: EndReason) -> None:
        now = self._clock()
        known = [name for name in instances if name in self._machines]
        for name in known:
            if self._machines[name].end_by(now) is None:
                self.end_instance(name, now, end)
        # Last, so that an unknown name does not keep the others running.
        if unknown := [name for name in instances if name not in known]:
            raise InstanceNotFound(f"no such instance: {', '.join(unknown)}")


def has_capacity(spells: Spells, at: Instant) -> bool:
    """Tells whether a machine could be had at ``at``; unobserved times count as having capacity."""
    current = int(np.searchsorted(spells.begins, at, side="right")) - 1
    # A market without observations has capacity always (``UNLIMITED``).
    if not len(spells) or (current >= 0 and at < spells.ends[current]):
        return True
    return current >= 0 and not bool(spells.lost[current])


def capacity_ends(spells: Spells, since: Instant) -> Instant | None:
    """Returns when the spell that holds at ``since`` is lost; None where no loss was observed."""
    current = int(np.searchsorted(spells.begins, since, side="right")) - 1
    if current < 0 or since >= spells.ends[current] or not spells.lost[current]:
        return None
    return Instant(int(spells.ends[current]))
