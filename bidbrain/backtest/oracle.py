"""Computes the clairvoyant optimum: a lower bound on what any strategy pays that finishes by a horizon.

    H       horizon of a job; W its work, core-seconds
    K       cores that may run together, reliable ones included
    c*      cores that, held all along, do W in H; Q = c* H core-seconds are needed
    r_i     cheapest dollars per core-second of machines that are paid for, in grid cell i of g seconds
    b       seconds that a new machine takes until it works: boot and sigma
    mu      price put on an idle core-second
    V_i     least cost of one core from cell i to the horizon, its idle time paid for at mu

It knows all prices and breaks no rule, but skips some of them, each time in its own favour:

1. Speed is concave in the number of cores, so by Jensen W in H takes at least Q core-seconds, as if the
   largest machines were available at every moment. Evictions and changes delay no other machine's work.
2. Each of K cores is planned for itself. With I the idle core-seconds, cost = cost + mu I - mu I, and
   I <= K H - Q; so for every mu >= 0: cost >= K V_0 - mu (K H - Q). The best mu of a grid is taken.
3. A paid second under hourly billing costs a share of an hour begun at most an hour before: at least the
   lowest price of that hour; no hour need be used whole. Machines on demand, reliable ones too, cost
   their list price by the second.
4. A refunded hour is a free ride: from a request, b seconds idle, up to a later and higher price, within the
   hour less the notice; or at the end of an hour paid for, without b.
5. Time is cut into cells and a plan forgets where in a cell it is. A stretch of paid or idle time is charged
   by whole cells, so by at most one too much, which costs at most mu g; every ride is credited that much.

A ride's charge mu (b - g) must not be negative, so a grid finer than b is asked for.

Where a price moves every few minutes, an oracle that knows when it last rises in an hour rides free all
day: the optimum is then next to nothing, truly. ``refunds=False`` leaves rule 4 out: the least that a job
pays that is never refunded. No strategy with refunds need respect that bound, but prices can be compared with
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.backtest.job import BacktestJob
from bidbrain.backtest.price_tape import PriceTape
from bidbrain.bidding.decision_batch import Codes, MarketSetup
from pricing_data.model.market import Refund
from pricing_data.model.units import HOUR_S

GRID_S: Final = 60
_PRICES: Final = 10
"""Number of values of mu that are tried."""


@dataclass(frozen=True, slots=True, eq=False)
class GridCells:
    """Splits a tape into grid cells of ``grid_s`` seconds from its begin; arrays (cells,)."""

    grid_s: int
    rate: Floats
    """r: dollars per core-second."""
    ride: Codes
    """The last cell to which a machine requested in this one can ride for free; itself: there is no ride."""
    late_ride: Codes
    """The same for a machine that was paid for until now."""

    @classmethod
    def from_tape(
        cls, setting: MarketSetup, job: BacktestJob, tape: PriceTape, *, refunds: bool, grid_s: int = GRID_S
    ) -> GridCells:
        """Cuts a tape into cells; raises ValueError where new machines work sooner than a cell is long."""
        rules = setting.rules
        rides = refunds and rules.cleared_by_bid and rules.refund is Refund.EVICTED_HOUR
        if rides and grid_s > job.boot_s + setting.scaling.sigma_s:
            raise ValueError(
                f"a grid of {grid_s} s is too coarse: new machines work after "
                f"{job.boot_s + setting.scaling.sigma_s:g} s; give a finer grid or a longer boot"
            )
        lowest, highest = _price_extremes(setting, tape, grid_s)
        per_core = lowest / setting.cores[:, None]
        if rules.quantum_s == HOUR_S:
            per_core = _trailing_minimum(per_core, HOUR_S // grid_s + 1)
        listed = float((setting.on_demand / setting.cores).min())
        if setting.reliable.count:
            listed = min(listed, setting.reliable.price / setting.reliable.cores)
        rate = np.minimum(per_core.min(axis=0), listed) / HOUR_S
        stay = np.arange(len(rate))
        if not rides:
            return cls(grid_s, rate, stay, stay)
        hour = (HOUR_S - rules.notice_s) // grid_s + 1
        boot = -(-job.boot_s // grid_s)
        return cls(grid_s, rate, _last_rise(lowest, highest, hour + boot), _last_rise(lowest, highest, hour))


def clairvoyant_bound(
    setting: MarketSetup,
    job: BacktestJob,
    tape: PriceTape,
    starts: Codes,
    horizon_s: Floats,
    *,
    refunds: bool = True,
) -> Floats:
    """Returns a lower bound in dollars, (n,), for doing the job from each start within ``horizon_s`` (n,).

    Raises ValueError where rides are free and machines boot and join within ``GRID_S``.
    """
    cells = GridCells.from_tape(setting, job, tape, refunds=refunds)
    most = _most_cores(setting)
    seconds = np.ceil(horizon_s / cells.grid_s + 1) * cells.grid_s
    needed = _core_seconds(setting, job.work, seconds)
    prices = np.geomspace(cells.rate.min() * 0.5, cells.rate.max(), _PRICES)
    first = ((starts - tape.begin) // cells.grid_s).astype(np.int64)
    value = _least_cost(cells, setting, job, first, (seconds // cells.grid_s).astype(np.int64), prices)
    bound = most * value - prices * (most * seconds - needed)[:, None]
    least: Floats = np.maximum(bound.max(axis=1), 0.0)
    return least


def _least_cost(
    cells: GridCells, setting: MarketSetup, job: BacktestJob, first: Codes, lengths: Codes, prices: Floats
) -> Floats:
    """Returns V_0 (n, mu), backwards from each job's last cell."""
    grid_s, hour, last = cells.grid_s, HOUR_S // cells.grid_s, len(cells.rate) - 1
    reach = int((cells.ride - np.arange(len(cells.ride))).max())
    # Without rides each cell costs the lesser of working and idling, so sums of the cells do.
    if not reach:
        spent = np.concatenate(
            [np.zeros((1, len(prices))), np.cumsum(np.minimum(cells.rate[:, None], prices), 0)]
        )
        straight: Floats = (spent[np.minimum(first + lengths, last + 1)] - spent[first]) * grid_s
        return straight
    longest = int(lengths.max())
    window = reach + hour + 1
    fee = prices * max(job.boot_s + setting.scaling.sigma_s - grid_s, 0.0)
    paid = np.concatenate([[0.0], np.cumsum(cells.rate)]) * grid_s
    # Beyond a job's last cell V is 0: there is nothing left to pay.
    value = np.zeros((longest + window + 1, len(first), len(prices)))
    for k in range(longest - 1, -1, -1):
        at = np.minimum(first + k, last)
        best = grid_s * np.minimum(cells.rate[at][:, None], prices) + value[k + 1]
        best = np.minimum(best, fee + _least_until(value, k, cells.ride[at] - at))
        # An hour paid for, and a free ride after it.
        then = np.minimum(at + hour, last)
        late = _least_until(value, k + hour, cells.late_ride[then] - then)
        hours = np.maximum((paid[then] - paid[at])[:, None] - prices * grid_s, 0.0)
        value[k] = np.where((k < lengths)[:, None], np.minimum(best, hours + late), 0.0)
    least: Floats = value[0]
    return least


def _least_until(value: Floats, k: int, cells_ahead: Codes) -> Floats:
    """Returns the least V over the cells from k + 1 to k + ``cells_ahead``, (n, mu).

    Without a ride the cells begin at k.
    """
    span = int(cells_ahead.max()) + 1
    falling = np.minimum.accumulate(value[k + 1 : k + 1 + span], axis=0)
    at = np.maximum(cells_ahead - 1, 0)
    return np.where((cells_ahead > 0)[:, None], falling[at, np.arange(len(at))], np.inf)


def _most_cores(setting: MarketSetup) -> float:
    """Returns K: what the limits allow, in the largest machines, beside the reliable ones."""
    limits, reliable = setting.limits, setting.reliable
    transient = min(limits.max_cores, limits.max_instances * float(setting.cores.max()))
    return transient + reliable.count * reliable.cores


def _core_seconds(setting: MarketSetup, work: float, seconds: Floats) -> Floats:
    """Returns Q (n,): the time at the number of cores that is just fast enough, found by bisection.

    Where even all cores are too slow, all of them: then no strategy is done in time either.
    """
    largest = float(setting.cores.max())
    # The lower end is returned: rounding must never raise a lower bound.
    low, high = np.zeros_like(seconds), np.full_like(seconds, _most_cores(setting))
    for _ in range(60):
        middle = (low + high) / 2
        fast = middle * setting.scaling.batch_efficiency(middle / largest) * seconds >= work
        low, high = np.where(fast, low, middle), np.where(fast, middle, high)
    return low * seconds


def _price_extremes(setting: MarketSetup, tape: PriceTape, grid_s: int) -> tuple[Floats, Floats]:
    """Returns the lowest and the highest price in force within each cell, (m, cells).

    They are infinite and 0 where no price is in force.
    """
    count = (tape.end - tape.begin) // grid_s + 1
    begins = tape.begin + np.arange(count) * grid_s
    lowest, highest = np.empty((2, len(setting.markets), count))
    for market in range(len(setting.markets)):
        low = tape.step_at(np.array(market), begins)
        high = tape.step_at(np.array(market), begins + grid_s - 1)
        edges = np.ravel(np.column_stack([low, high + 1]))
        prices = tape.prices
        lowest[market] = np.minimum.reduceat(np.where(np.isnan(prices), np.inf, prices), edges)[::2]
        highest[market] = np.maximum.reduceat(np.where(np.isfinite(prices), prices, 0.0), edges)[::2]
    return lowest, highest


def _trailing_minimum(values: Floats, width: int) -> Floats:
    """Returns, (m, cells), the least of the ``width`` values that end at each cell."""
    padded = np.concatenate([np.full((len(values), width - 1), np.inf), values], axis=1)
    least: Floats = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1).min(axis=-1)
    return least


def _last_rise(lowest: Floats, highest: Floats, width: int) -> Codes:
    """Returns, (cells,), the last of the next ``width`` cells with a market above its lowest price here."""
    count = lowest.shape[1]
    last = np.arange(count)
    for ahead in range(1, width + 1):
        rises = (highest[:, ahead:] > lowest[:, : count - ahead]).any(axis=0)
        last[: count - ahead] = np.where(rises, np.arange(count - ahead) + ahead, last[: count - ahead])
    return last
