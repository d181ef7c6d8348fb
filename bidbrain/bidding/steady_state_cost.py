"""Computes the cost of work on footprints whose losses are replaced, for n decision points at once.

    n, m, a   decision points, markets, places of a footprint
    H         the time ahead: what the rest of the work takes all machines, from one hour to eight
    U, S, B   E[min(time to eviction, H)], P(no eviction within H), and seconds charged within H
    q         (1 - S) / U: evictions per second while it is up
    G         P (B / U) (1 + q notice): dollars per machine-hour while a machine is up, refunds deducted;
              a warned machine is charged until its notice ends
    gap_s     seconds from an eviction until what replaces the machine works
    u         1 / (1 + q gap_s): share of the time that a replaced machine is up
    C         sum of k G u, and the list price of the reliable machines: dollars per hour
    V         phi (sum of k nu u + reliable machines' cores) (1 - lambda sum of q): core-seconds per second
    E         C / V

Equation 4.4 gives the cost of work until the end of a billing hour. Where seconds are billed and machines may
be exchanged at any moment, no such hour exists, so this E assumes a footprint that is kept up.

Reliable machines count at their list price wherever they really run: that puts a price on the job's time,
without which E would never pay for speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.billed_time import billed_seconds
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, MarketSetup
from bidbrain.bidding.footprint import delta_of
from pricing_data.model.units import HOUR_S

UNKNOWN_LOSSES_PER_S: Final = 0.05 / HOUR_S
"""Losses assumed in a market without any observation: one machine in twenty hours."""
# Young machines are lost more often than old ones. The next hour alone shows how long a new machine lasts,
# but not how often a footprint that is kept up loses one.
HORIZON_BOUNDS_S: Final = (1.0 * HOUR_S, 8.0 * HOUR_S)
"""Bounds of H."""
REPLACEMENT_GAP_S: Final = 120.0
"""gap_s, of which the request and the start take most."""


@dataclass(frozen=True, slots=True, eq=False)
class MachineRates:
    """Holds rates of one machine of each kind to compare; arrays of one shape."""

    paid: Floats
    """G: dollars per hour while it is up."""
    losses: Floats
    """q: evictions per second while it is up."""
    up: Floats
    """u: share of the time."""
    billed: Floats
    """P: dollars per hour that the provider charges now."""


@dataclass(frozen=True, slots=True, eq=False)
class FootprintSums:
    """Holds sums over the allocations of each footprint; arrays that broadcast to one shape."""

    paid: Floats
    """Sum of k G u: dollars per hour."""
    cores: Floats
    """Sum of k nu u."""
    losses: Floats
    """Sum of q over allocations, per second: one eviction takes a whole allocation."""
    instances: Floats
    """Sum of k."""

    def add_machines(self, count: Floats, cores: Floats, rates: MachineRates) -> FootprintSums:
        """Returns the sums with one allocation of ``count`` machines more, or less where it is negative."""
        return FootprintSums(
            self.paid + count * rates.paid * rates.up,
            self.cores + count * cores * rates.up,
            self.losses + np.sign(count) * rates.losses,
            self.instances + count,
        )

    def add_axes(self, more: int) -> FootprintSums:
        """Returns the same sums with ``more`` axes at the end."""
        shape = (..., *(None for _ in range(more)))
        return FootprintSums(self.paid[shape], self.cores[shape], self.losses[shape], self.instances[shape])


@dataclass(frozen=True, slots=True, eq=False)
class FootprintCosts:
    """Holds C, V and E of footprints; arrays of one shape."""

    per_hour: Floats
    """C: dollars per hour."""
    speed: Floats
    """V: core-seconds per second."""
    cost_per_work: Floats
    """E: dollars per core-second; infinite without work."""


def estimate_costs(setting: MarketSetup, footprints: FootprintSums) -> FootprintCosts:
    """Returns C, V and E of ``footprints``, their reliable machines included."""
    reliable, scaling = setting.reliable, setting.scaling
    works = scaling.reliable_work(footprints.instances, reliable.count)
    tier = works * reliable.count
    # With very frequent losses, pauses would add up to more than all of the time.
    working = np.maximum(1.0 - scaling.lambda_s * np.maximum(footprints.losses, 0.0), 0.0)
    # ``add_machines`` may take away what was added before; rounding then leaves a little less than 0.
    cores = np.maximum(footprints.cores, 0.0) + tier * reliable.cores
    speed = scaling.batch_efficiency(footprints.instances + tier) * cores * working
    per_hour = np.maximum(footprints.paid, 0.0) + reliable.count * reliable.price
    ratio = np.full(np.broadcast_shapes(per_hour.shape, speed.shape), np.inf)
    # E stays infinite without speed, so such footprints lose every comparison.
    np.divide(per_hour / HOUR_S, speed, out=ratio, where=speed > 0)
    return FootprintCosts(per_hour, speed, ratio)


def fresh_rates(setting: MarketSetup, at: DecisionBatch, *, refunds: bool = True) -> MachineRates:
    """Returns the rates of a new machine in every market, bid at its list price, (n, m).

    ``refunds``: whether G deducts them.
    """
    shape = (len(_horizon_s(setting, at)), len(setting.markets))
    # Where capacity evicts, bids do not matter: any delta that is not negative gets the same answer.
    delta = np.full(shape, setting.limits.bid_deltas[-1])
    if setting.rules.cleared_by_bid:
        shape = at.prices.shape
        delta = np.where(np.isfinite(at.prices), np.maximum(setting.on_demand - at.prices, 0.0), 0.0)
    market = np.broadcast_to(np.arange(len(setting.markets)), shape)
    # Rates at a price of 1, once for all decision points that share H; then scaled by each one's price.
    found = _machine_rates(setting, at, (market, delta, np.zeros(shape)), np.ones(shape), refunds=refunds)
    there = np.ones(at.prices.shape)
    return MachineRates(found.paid * at.prices, found.losses * there, found.up * there, at.prices)


def held_rates(setting: MarketSetup, at: DecisionBatch, *, refunds: bool = True) -> MachineRates:
    """Returns the rates of the machines held, (n, a), on demand without losses; empty places mean nothing."""
    now = at.held
    here = np.take_along_axis(at.prices, now.market, axis=1)
    price = np.where(now.on_demand, setting.on_demand[now.market], here)
    delta = delta_of(now.bid, np.where(now.on_demand, 0.0, here), setting.rules.cleared_by_bid)
    delta = np.where(now.on_demand | (now.count == 0), 0.0, delta)
    found = _machine_rates(setting, at, (now.market, delta, now.age_s), price, refunds=refunds)
    listed = now.on_demand
    return MachineRates(
        np.where(listed, price, found.paid),
        np.where(listed, 0.0, found.losses),
        np.where(listed, 1.0, found.up),
        price,
    )


def sum_footprint(setting: MarketSetup, at: DecisionBatch, rates: MachineRates) -> FootprintSums:
    """Returns the sums over what is held, (n,), given the ``rates`` of its places."""
    count = at.held.count.astype(np.float64)
    cores, there = setting.cores[at.held.market], count > 0

    def sum_places(values: Floats) -> Floats:
        summed: Floats = np.where(there, values, 0.0).sum(axis=1)
        return summed

    return FootprintSums(
        sum_places(count * rates.paid * rates.up),
        sum_places(count * cores * rates.up),
        sum_places(rates.losses),
        count.sum(axis=1),
    )


def _horizon_s(setting: MarketSetup, at: DecisionBatch) -> Floats:
    """Returns H in seconds: (n, 1), or (1, 1) where all decision points share it."""
    limits = setting.limits
    # A job that may hold no spot machine at all gets the longest horizon.
    most = max(min(limits.max_instances * float(setting.cores.max()), limits.max_cores), 1e-9)
    # All cores together take at least this long for the rest of the work.
    ahead_s: Floats = np.clip(at.work_left / most, *HORIZON_BOUNDS_S)[:, None]
    return ahead_s[:1] if (ahead_s == ahead_s[:1]).all() else ahead_s


def _machine_rates(
    setting: MarketSetup,
    at: DecisionBatch,
    machines: tuple[Codes, Floats, Floats],
    price: Floats,
    *,
    refunds: bool,
) -> MachineRates:
    """Returns the rates of ``machines`` (market codes, bid deltas, ages in seconds) at ``price``."""
    market, delta, age_s = machines
    rules = setting.rules
    left_s = np.broadcast_to(_horizon_s(setting, at), delta.shape)
    if rules.max_lifetime_s is not None:
        # A machine at the end of its lifetime still needs a positive horizon to divide by.
        left_s = np.clip(rules.max_lifetime_s - age_s, 1.0, left_s)
    known = at.survivals.known_markets()
    watched = np.take_along_axis(np.broadcast_to(known, (len(market), known.shape[1])), market, axis=1)

    def survive_until(until_s: Floats, _: Flags) -> tuple[Floats, Floats]:
        survival, uptime_s = at.survivals.survival_and_uptime(market, delta, age_s, until_s)
        # Unknown markets get a constant hazard: the pessimistic answer, survival 0, would exclude them.
        guessed = np.exp(-UNKNOWN_LOSSES_PER_S * until_s)
        return (
            np.where(watched, survival, guessed),
            np.where(watched, uptime_s, (1.0 - guessed) / UNKNOWN_LOSSES_PER_S),
        )

    survival, uptime_s = survive_until(left_s, np.ones(left_s.shape, np.bool_))
    # At least a second: uptime is 0 for machines whose eviction is under way.
    lasting = np.maximum(uptime_s, 1.0)
    losses = (1.0 - survival) / lasting
    up = 1.0 / (1.0 + losses * REPLACEMENT_GAP_S)
    warned = 1.0 + losses * rules.notice_s
    if not refunds:
        return MachineRates(price * warned, losses, up, price)
    billed_s = billed_seconds(rules, age_s, left_s, survival, survive_until)
    return MachineRates(price * warned * billed_s / lasting, losses, up, price)
