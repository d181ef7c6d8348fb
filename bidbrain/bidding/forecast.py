"""Forecasts what a job should cost and when it should be done, if the market stayed as it is now.

This is shown before anything is bought. The footprint is built at once, by the very decisions a run would
take now, and is then held until the work is done. So this assumes that prices stay, that every hour is
renewed as it began, and that evicted machines are replaced without waiting: refunds, lost time and lambda are
in E, the search for new machines is not. Sigma is paid once. The last hour is paid for as on a bill
(``billing.billed_s``): whole where hours are billed, unless only a part of a job is forecast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from bidbrain.bidding.decide import decide as least_cost
from bidbrain.bidding.expected_work import mean_time_left
from bidbrain.bidding.footprint import estimate_footprint, held_columns
from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.model import UNBOUNDED, Action, Decision, Holding, Observation
from pricing_data.model.billing import billed_s
from pricing_data.model.units import HOUR_S, Instant, Seconds, Usd, UsdPerHour

ENDLESS_S: Final = 100 * 365 * 24 * HOUR_S
"""Longer ones are typing errors, and soon later than a date can express."""


@dataclass(frozen=True, slots=True)
class CostForecast:
    """Holds expectations for one job.

    Cost and time are infinite where it would not finish in a hundred years.
    """

    work: float
    """Core-seconds."""
    expected_cost: Usd
    expected_s: Seconds
    expected_evictions: float
    """Allocations expected to be evicted before the work is done."""
    decisions: tuple[Decision, ...]
    """Purchases that would be made now, in order, and the hold decision that ends them."""


Decide: TypeAlias = Callable[[Observation], Decision]
"""A strategy's decision: what to acquire now."""


def forecast_cost(
    observation: Observation,
    work: float,
    decide: Decide = least_cost,
    *,
    most_s: float = math.inf,
    whole: bool = True,
    reliable_per_hour: float | None = None,
) -> CostForecast:
    """Returns expected cost and time of ``work`` core-seconds on the footprint that ``decide`` would build.

    ``most_s``: the job ends after so long, whatever is done by then; either it or ``work`` is finite.
    ``whole``: whether the job ends there, so that started billing hours are paid for. ``reliable_per_hour``:
    dollars for a reliable machine, where that is not its list price.
    """
    decisions, settled = _simulate_purchases(observation, decide)
    held_up = settled
    if reliable_per_hour is not None:
        held_up = replace(settled, reliable=replace(settled.reliable, price=UsdPerHour(reliable_per_hour)))
    single = ObservationBatch.from_observation(held_up)
    transient = held_columns(single.setting, single.at)
    steady = estimate_footprint(single.setting, transient, np.array([math.inf]), changes=False)
    window_s, charge, done = (
        float(column[0]) for column in (mean_time_left(transient), steady.charge, steady.work)
    )
    # The last decision is the hold that ends the list, so more than one means that something is bought.
    sigma_s = observation.scaling.sigma_s if len(decisions) > 1 else 0.0
    if math.isfinite(most_s):
        work = min(work, done / window_s * max(most_s - sigma_s, 0.0))
    expected_s = work / done * window_s + sigma_s if done > 0 else math.inf
    if expected_s > ENDLESS_S:
        expected_s = math.inf
    ends = math.isfinite(expected_s)
    evicted = float((1.0 - transient.survival).sum())
    # A part of a job ends in the middle of a billing hour that the next part goes on using.
    paid_s = partial(billed_s, observation.rules) if whole else float
    return CostForecast(
        work=work,
        expected_cost=Usd(charge / window_s * paid_s(expected_s) if ends else math.inf),
        expected_s=Seconds(expected_s),
        expected_evictions=evicted / window_s * expected_s if evicted and ends else 0.0,
        decisions=decisions,
    )


def _simulate_purchases(observation: Observation, decide: Decide) -> tuple[tuple[Decision, ...], Observation]:
    """Decides, takes the request as granted, and decides again, until nothing more is wanted."""
    decisions = [decide(observation)]
    while decisions[-1].action is Action.ACQUIRE:
        requested = _as_holding(observation, decisions[-1], f"planned {len(decisions)}")
        observation = replace(observation, footprint=(*observation.footprint, requested))
        decisions.append(decide(observation))
    return tuple(decisions), observation


def _as_holding(observation: Observation, decision: Decision, name: str) -> Holding:
    assert decision.market is not None
    offer = observation.find_offer(decision.market)
    return Holding(
        id=name,
        market=offer.market,
        count=decision.count,
        cores=offer.cores,
        bid=UNBOUNDED if decision.bid is None else decision.bid,
        price=offer.on_demand if decision.bid is None else offer.price,
        hour_ends=Instant(observation.now + HOUR_S),
        counts_for=decision.count,
        on_demand=decision.bid is None,
    )
