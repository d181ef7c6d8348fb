"""Finds where to run a job over time: the cheapest place per unit of work, with moves when prices change.

    m    options: markets, each with its price and the job's speed there
    t    steps of a time grid

After Narayanan, section 6.3.2: choosing a kind of machine by dollars per work instead of by name, among more
markets, and again whenever prices change. Choices at t read prices at t alone; ``egress.py`` prices moves.
Knows no GPUs and no clouds: options are columns. Evictions are left out, as in the source: its jobs
checkpoint, and lost machines only every few hours to days.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.relocation.egress import MARGIN, EgressPrices, JobSite, TransferLoad, move_cost, worth_moving
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Seconds, Usd, UsdPerHour


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """Lists where a job may run, and what that costs, over a grid of steps of ``step_s`` seconds."""

    markets: tuple[Market, ...]
    speed: Floats
    """(m,): work per second."""
    prices: Floats
    """(m, t): dollars per hour for what the job uses; NaN while there is no offer."""
    step_s: float

    def __post_init__(self) -> None:
        if self.prices.ndim != 2 or not len(self.markets) == len(self.speed) == len(self.prices):
            raise ValueError("options need a speed and a row of prices for each market")

    @property
    def cost_per_work(self) -> Floats:
        """Returns dollars, (m, t); infinite without an offer, or where no work is done."""
        with np.errstate(divide="ignore"):
            cost = self.prices / (self.speed[:, None] * HOUR_S)
        return np.where(np.isnan(cost), np.inf, cost)


@dataclass(frozen=True, slots=True)
class Journey:
    """Describes one job from its start to its end."""

    cost: Usd
    """NaN, like ``seconds``, where the prices ended before the job or nothing was on offer."""
    seconds: Seconds
    places: tuple[int, ...]
    """Codes of the options, in the order they were used."""

    @property
    def move_count(self) -> int:
        return max(len(self.places) - 1, 0)


@dataclass(frozen=True, slots=True)
class MovePolicy:
    """Sets what a job carries, what a move costs, and for how many seconds prices are trusted."""

    baggage: TransferLoad
    egress: EgressPrices
    lasts_s: float
    margin: float = MARGIN


def stay_put(options: Options, start: int, work: float) -> Journey:
    """Runs the whole job where work is cheapest at the start; the first of equals."""
    return follow_prices(options, start, work, None)


def follow_prices(options: Options, start: int, work: float, moving: MovePolicy | None) -> Journey:
    """Starts where it is cheapest and, with ``moving``, moves to wherever is worth it later.

    The job leaves a place that is no longer on offer; without ``moving`` that ends the journey unfinished.
    """
    per_work = options.cost_per_work
    here = int(per_work[:, start].argmin())
    places = [here]
    cost, idle_s, left = 0.0, 0.0, work
    for at in range(start, options.prices.shape[1]):
        if moving is not None and (there := int(per_work[:, at].argmin())) != here:
            move = _worthwhile_cost(options, at, here, there, left, moving)
            if move is not None:
                here, cost, idle_s = there, cost + move[0], move[1]
                places.append(there)
        # The offer ended, and either nowhere has a better one or the job may not move.
        if math.isinf(per_work[here, at]):
            break
        # A move may idle for longer than a step; the rest carries over.
        wasted_s = min(idle_s, options.step_s)
        working_s = min(options.step_s - wasted_s, left / float(options.speed[here]))
        cost += float(options.prices[here, at]) * (wasted_s + working_s) / HOUR_S
        idle_s, left = idle_s - wasted_s, left - working_s * float(options.speed[here])
        # Sums of floats miss 0 by a little, which would cost another step.
        if left <= 1e-9 * work:
            elapsed = (at - start) * options.step_s + wasted_s + working_s
            return Journey(Usd(cost), Seconds(elapsed), tuple(places))
    return Journey(Usd(math.nan), Seconds(math.nan), tuple(places))


def _worthwhile_cost(
    options: Options, at: int, here: int, there: int, left: float, moving: MovePolicy
) -> tuple[float, float] | None:
    """Returns (egress dollars, seconds without progress) of a move if it is worth it, else None."""
    now, then = _site_at(options, here, at), _site_at(options, there, at)
    cost = move_cost(moving.baggage, moving.egress, now.market, then)
    if not worth_moving(now, then, cost, left, moving.lasts_s, moving.margin):
        return None
    # Without ``cost.idle``: the caller pays for idle seconds step by step, at the prices of each.
    return cost.egress, cost.delay_s


def _site_at(options: Options, code: int, at: int) -> JobSite:
    """Returns the place as on offer at step ``at``; without an offer it does no work."""
    price = float(options.prices[code, at])
    offered = not math.isnan(price)
    return JobSite(
        options.markets[code],
        UsdPerHour(price if offered else 0.0),
        float(options.speed[code]) if offered else 0.0,
    )


def mean_cost(journeys: Sequence[Journey]) -> float:
    """Returns mean dollars; NaN where any journey is unfinished."""
    return float(np.mean([journey.cost for journey in journeys]))
