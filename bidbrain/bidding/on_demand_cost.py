"""Finds the least cost of work on on-demand machines alone, over all types and counts that a job allows.

    W       work, core-seconds
    n       machines of one type, all of them from the start to the end of the work
    nu      core-seconds per second of one machine alone
    eff(n)  efficiency of n machines together (``ScalingModel.efficiency``)
    sigma   seconds from when a machine runs until it takes part
    t       seconds that each machine is paid for: sigma + W / (n nu eff(n)), rounded up
    start   seconds from the request to running machines, which are not billed

On-demand machines are never revoked, so none stands by as a reliable one: all work all the time, as in stage
1. ``spotctl/report`` compares the result with what a run cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.bidding.decision_batch import Codes
from bidbrain.model import ScalingCurve, ScalingModel
from pricing_data.model.billing import MICROS_PER_USD, on_demand_micros, whole_s
from pricing_data.model.market import Market, MarketRules
from pricing_data.model.units import HOUR_S, MicroUsd, Seconds, UsdPerHour

_CHUNK: Final = 4096
"""Counts to evaluate together; most jobs allow fewer."""
_SLACK_S: Final = 2e-6
"""Seconds by which array arithmetic may differ from ``whole_s``; more than it ever does."""


@dataclass(frozen=True, slots=True)
class MachineType:
    """Describes one on-demand machine: ``price`` in dollars per hour, ``speed`` (nu) alone."""

    market: Market
    price: UsdPerHour
    speed: float
    rules: MarketRules


@dataclass(frozen=True, slots=True)
class Workload:
    """Describes the work to do, and the most machines of one type that may do it."""

    core_seconds: float
    scaling: ScalingModel
    start_s: Seconds
    most_machines: int


@dataclass(frozen=True, slots=True)
class Rental:
    """Describes ``machines`` of one market, rented on demand until the work is done."""

    market: Market
    machines: int
    seconds: int
    """Seconds from when they run to the end of the work; each machine is paid for these."""
    finish_s: int
    """Seconds from their request to the end of the work."""
    cost: MicroUsd


def cheapest_rental(
    types: Sequence[MachineType], work: Workload, within_s: float = math.inf
) -> Rental | None:
    """Returns the cheapest rental that does ``work`` within ``within_s`` seconds of the request.

    None where no type and count is fast enough. Among equally cheap ones it prefers the fastest, then the
    smallest.
    """
    best: Rental | None = None
    most = work.most_machines if _scales_up(work.scaling) else 1
    # The most machines are the fastest: a type that is too slow with all of them is too slow with any count.
    types = [t for t in types if _least_seconds(t, np.array([most]), work)[0] <= within_s - work.start_s + 1]
    for first in range(1, most + 1, _CHUNK) if types else ():
        # No larger count can be cheaper than its floor, so the search ends here.
        if best is not None and min(_cost_floor(machine, first, work) for machine in types) > best.cost:
            break
        counts = np.arange(first, min(first + _CHUNK, most + 1))
        # Exact pricing is slow. Candidates come by lower bound, so the first bound above the best ends it.
        for least, machine, count in _rentals_by_least_cost(types, counts, work, within_s):
            if best is not None and least > best.cost:
                break
            rental = price_rental(machine, count, work)
            if rental.finish_s <= within_s and (best is None or _rental_rank(rental) < _rental_rank(best)):
                best = rental
    return best


def price_rental(machine: MachineType, count: int, work: Workload) -> Rental:
    """Prices ``count`` machines of a type until the work is done, exact to the micro-dollar."""
    rate = count * machine.speed * work.scaling.efficiency(count)
    seconds = whole_s(work.scaling.sigma_s + work.core_seconds / rate)
    cost = MicroUsd(count * on_demand_micros(machine.rules, machine.price, seconds))
    return Rental(machine.market, count, seconds, whole_s(work.start_s) + seconds, cost)


def _rental_rank(rental: Rental) -> tuple[int, int, int, Market]:
    return rental.cost, rental.finish_s, rental.machines, rental.market


def _rentals_by_least_cost(
    types: Sequence[MachineType], counts: Codes, work: Workload, within_s: float
) -> Iterator[tuple[float, MachineType, int]]:
    """Yields (lower bound of micro-dollars, type, count) of what may be fast enough, lowest bound first."""
    seconds = np.stack([_least_seconds(machine, counts, work) for machine in types])
    least = np.stack([_least_cost(machine, counts, row) for machine, row in zip(types, seconds, strict=True)])
    # One second of slack, because the array's seconds are a lower bound of the exact ones.
    least[seconds > within_s - work.start_s + 1] = np.inf
    for place in np.argsort(least, axis=None).tolist():
        row, column = divmod(place, len(counts))
        if math.isinf(least[row, column]):
            return
        yield float(least[row, column]), types[row], int(counts[column])


def _scales_up(scaling: ScalingModel) -> bool:
    """Returns whether two machines do at least as much as one."""
    # Doubling multiplies the speed by 2 phi; below one half, more machines are slower.
    return scaling.curve is ScalingCurve.CONSTANT or scaling.phi >= 0.5


def _least_seconds(machine: MachineType, counts: Codes, work: Workload) -> Floats:
    """Returns a lower bound of t for each of ``counts``."""
    scaling = work.scaling
    rate = counts * machine.speed * scaling.batch_efficiency(counts.astype(np.float64))
    # Rounding errors must only ever make this smaller, or the exact optimum could be pruned.
    seconds: Floats = np.ceil((scaling.sigma_s + work.core_seconds / rate) * (1 - 1e-12) - _SLACK_S)
    return seconds


def _least_cost(machine: MachineType, counts: Codes, seconds: Floats) -> Floats:
    """Returns a lower bound, in micro-dollars, of what ``counts`` machines cost for ``seconds`` each."""
    rules = machine.rules
    if rules.quantum_s == HOUR_S:
        billed = np.ceil(seconds / HOUR_S) * HOUR_S
    else:
        billed = np.maximum(seconds, rules.minimum_s)
    # A bill rounds each hour once, by half a micro-dollar at most.
    hours = np.ceil(billed / HOUR_S)
    each = machine.price * MICROS_PER_USD * billed / HOUR_S * (1 - 1e-12) - hours / 2
    least: Floats = counts * each
    return least


def _cost_floor(machine: MachineType, count: int, work: Workload) -> float:
    """Returns a lower bound, in micro-dollars, for ``count`` machines of a type and for any more."""
    # Every term grows with the count: sigma and minimum charges by machine, lost efficiency by doubling.
    scaling = work.scaling
    alone_s = work.core_seconds / machine.speed / scaling.efficiency(count)
    paid_s = max(count * scaling.sigma_s + alone_s, count * max(machine.rules.minimum_s, 1.0))
    per_second = machine.price * MICROS_PER_USD / HOUR_S
    rounding = 0.5 / (per_second * HOUR_S) if per_second > 0 else 1.0
    return paid_s * per_second * (1 - rounding) - count
