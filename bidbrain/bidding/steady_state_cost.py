"""What work costs on footprints whose losses are replaced, for n decision points at once.

    n, m, a   decision points, markets, places of a footprint
    H         the time ahead: what the rest of the work takes all machines, from one hour to eight
    U, S, B   E[min(time to eviction, H)], P(no eviction within H), and seconds charged within H
    q         (1 - S) / U: evictions per second while it is up
    G         P (B / U) (1 + q notice): dollars per machine-hour while a machine is up, refunds deducted; what
              is warned is paid for to the end of its notice
    gap_s     seconds from an eviction until what replaces the machine works
    u         1 / (1 + q gap_s): share of the time that a replaced machine is up
    C         sum of k G u, and the list price of the reliable machines: dollars per hour
    V         phi (sum of k nu u + reliable machines' cores) (1 - lambda sum of q): core-seconds per second
    E         C / V

Equation 4.4 asks what work costs until the end of a billing hour. This asks what it costs on a footprint
that is kept up, which is the question where seconds are billed and machines may be exchanged at any moment.
An hour of the job's time counts as its reliable machines on demand, wherever these really run: E alone
would never pay for speed. Where nothing is known of a market, machines there are taken to be lost as
``UNKNOWN_PER_S`` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.billed_time import billed_seconds
from bidbrain.bidding.decision_batch import Codes, Moments, Setting
from bidbrain.bidding.footprint import delta_of
from pricing_data.model.units import HOUR_S

UNKNOWN_PER_S: Final = 0.05 / HOUR_S
"""A market that nobody watched is taken to lose machines once in twenty hours."""
AHEAD_S: Final = (1.0 * HOUR_S, 8.0 * HOUR_S)
"""Bounds of H. Young machines are lost more often than old ones: the next hour alone says how long a new one
lasts, and not how often a footprint that is kept up loses one.
"""
GAP_S: Final = 120.0
"""A machine that is asked for works about two minutes later."""


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """One machine of each kind that is looked at; arrays of one shape."""

    paid: Floats
    """G: dollars per hour while it is up."""
    losses: Floats
    """q: evictions per second while it is up."""
    up: Floats
    """u."""
    billed: Floats
    """Dollars per hour that the provider asks for now."""


@dataclass(frozen=True, slots=True, eq=False)
class Footprints:
    """Sums over the allocations of each footprint; arrays of one shape, that broadcast."""

    paid: Floats
    """Sum of k G u."""
    cores: Floats
    """Sum of k nu u."""
    losses: Floats
    """Sum of q over allocations: one eviction takes a whole one."""
    instances: Floats

    def plus(self, count: Floats, cores: Floats, rates: Rates) -> Footprints:
        """These with one more allocation of ``count`` machines each; a negative count takes one away."""
        return Footprints(
            self.paid + count * rates.paid * rates.up,
            self.cores + count * cores * rates.up,
            self.losses + np.sign(count) * rates.losses,
            self.instances + count,
        )

    def axes(self, more: int) -> Footprints:
        """The same with ``more`` axes behind."""
        shape = (..., *(None for _ in range(more)))
        return Footprints(self.paid[shape], self.cores[shape], self.losses[shape], self.instances[shape])


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Footprints by the equations above; arrays of one shape."""

    per_hour: Floats
    """C."""
    speed: Floats
    """V."""
    cost_per_work: Floats
    """E: dollars per core-second; infinite without work."""


def costs(setting: Setting, footprints: Footprints) -> Costs:
    """C, V and E of ``footprints``, their reliable machines included."""
    reliable, scaling = setting.reliable, setting.scaling
    works = scaling.reliable_work(footprints.instances, reliable.count)
    tier = works * reliable.count
    working = np.maximum(1.0 - scaling.lambda_s * np.maximum(footprints.losses, 0.0), 0.0)
    cores = np.maximum(footprints.cores, 0.0) + tier * reliable.cores
    speed = scaling.efficiencies(footprints.instances + tier) * cores * working
    per_hour = np.maximum(footprints.paid, 0.0) + reliable.count * reliable.price
    ratio = np.full(np.broadcast_shapes(per_hour.shape, speed.shape), np.inf)
    np.divide(per_hour / HOUR_S, speed, out=ratio, where=speed > 0)
    return Costs(per_hour, speed, ratio)


def fresh_rates(setting: Setting, at: Moments, *, refunds: bool = True) -> Rates:
    """A new machine of every market, bid at its list price, (n, m); G is P without ``refunds``.

    Where prices do not evict a bid says nothing, and decision points with as much work left ask the same.
    """
    shape = (len(_ahead_s(setting, at)), len(setting.markets))
    delta = np.full(shape, setting.limits.bid_deltas[-1])
    if setting.rules.cleared_by_bid:
        shape = at.prices.shape
        delta = np.where(np.isfinite(at.prices), np.maximum(setting.on_demand - at.prices, 0.0), 0.0)
    market = np.broadcast_to(np.arange(len(setting.markets)), shape)
    found = _rates(setting, at, (market, delta, np.zeros(shape)), np.ones(shape), refunds=refunds)
    there = np.ones(at.prices.shape)
    return Rates(found.paid * at.prices, found.losses * there, found.up * there, at.prices)


def held_rates(setting: Setting, at: Moments, *, refunds: bool = True) -> Rates:
    """The machines that are held, (n, a); what is on demand is never lost. Empty places mean nothing."""
    now = at.held
    here = np.take_along_axis(at.prices, now.market, axis=1)
    price = np.where(now.on_demand, setting.on_demand[now.market], here)
    delta = delta_of(now.bid, np.where(now.on_demand, 0.0, here), setting.rules.cleared_by_bid)
    delta = np.where(now.on_demand | (now.count == 0), 0.0, delta)
    found = _rates(setting, at, (now.market, delta, now.age_s), price, refunds=refunds)
    listed = now.on_demand
    return Rates(
        np.where(listed, price, found.paid),
        np.where(listed, 0.0, found.losses),
        np.where(listed, 1.0, found.up),
        price,
    )


def footprint(setting: Setting, at: Moments, rates: Rates) -> Footprints:
    """What is held, (n,), by the ``rates`` of its places."""
    count = at.held.count.astype(np.float64)
    cores, there = setting.cores[at.held.market], count > 0

    def total(values: Floats) -> Floats:
        summed: Floats = np.where(there, values, 0.0).sum(axis=1)
        return summed

    return Footprints(
        total(count * rates.paid * rates.up),
        total(count * cores * rates.up),
        total(rates.losses),
        count.sum(axis=1),
    )


def _ahead_s(setting: Setting, at: Moments) -> Floats:
    """H: (n, 1), or (1, 1) where it is the same for all."""
    limits = setting.limits
    most = min(limits.max_instances * float(setting.cores.max()), limits.max_cores)
    ahead_s: Floats = np.clip(at.work_left / most, *AHEAD_S)[:, None]
    return ahead_s[:1] if (ahead_s == ahead_s[:1]).all() else ahead_s


def _rates(
    setting: Setting, at: Moments, machines: tuple[Codes, Floats, Floats], price: Floats, *, refunds: bool
) -> Rates:
    """Of ``machines``: market, delta and age of each."""
    market, delta, age_s = machines
    rules = setting.rules
    left_s = np.broadcast_to(_ahead_s(setting, at), delta.shape)
    if rules.max_lifetime_s is not None:
        left_s = np.clip(rules.max_lifetime_s - age_s, 1.0, left_s)
    known = at.chances.known()
    watched = np.take_along_axis(np.broadcast_to(known, (len(market), known.shape[1])), market, axis=1)

    def lives(until_s: Floats, _: Flags) -> tuple[Floats, Floats]:
        survival, uptime_s = at.chances.outlook(market, delta, age_s, until_s)
        guessed = np.exp(-UNKNOWN_PER_S * until_s)
        return (
            np.where(watched, survival, guessed),
            np.where(watched, uptime_s, (1.0 - guessed) / UNKNOWN_PER_S),
        )

    survival, uptime_s = lives(left_s, np.ones(left_s.shape, np.bool_))
    lasting = np.maximum(uptime_s, 1.0)
    losses = (1.0 - survival) / lasting
    up = 1.0 / (1.0 + losses * GAP_S)
    warned = 1.0 + losses * rules.notice_s
    if not refunds:
        return Rates(price * warned, losses, up, price)
    billed_s = billed_seconds(rules, age_s, left_s, survival, lives)
    return Rates(price * warned * billed_s / lasting, losses, up, price)
