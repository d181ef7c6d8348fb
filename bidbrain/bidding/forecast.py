"""Forecasts what a job should cost and when it should end if the market stays as it is now.

The forecast is shown before anything is bought. It builds the footprint at once, by the decisions that a run
would take now, and holds it until the work is done. It assumes that prices stay, that every hour is renewed
as it began, and that evicted machines are replaced without waiting. E includes refunds, lost time and lambda,
but no search for new machines; sigma is paid once. The last hour is charged as on a bill
(``billing.billed_s``): in full where hours are billed, unless only a part of a job is forecast.
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
"""A hundred years: longer forecasts are typing errors, and would overflow a date."""


@dataclass(frozen=True, slots=True)
class CostForecast:
    """Holds the expectations of one job. Cost and time are infinite beyond ``ENDLESS_S``."""

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
    """Returns the expected cost and time of ``work`` on the footprint that ``decide`` would build.

    Args:
        observation: the market and the job now.
        work: core-seconds; infinite if ``most_s`` ends the job.
        decide: the strategy.
        most_s: seconds after which the job ends, whatever is done by then.
        whole: whether the whole job is forecast, so that started billing hours are charged in full.
        reliable_per_hour: dollars for one reliable machine; None: its list price.
    """
    decisions, settled = _simulate_purchases(observation, decide)
    # After the decisions, which weigh the tier at its list price wherever it really runs.
    if reliable_per_hour is not None:
        settled = replace(settled, reliable=replace(settled.reliable, price=UsdPerHour(reliable_per_hour)))
    single = ObservationBatch.from_observation(settled)
    transient = held_columns(single.setting, single.at)
    steady = estimate_footprint(single.setting, transient, np.array([math.inf]), changes=False)
    window_s, charge, done = (
        float(column[0]) for column in (mean_time_left(transient), steady.charge, steady.work)
    )
    # A hold ends the list, so more than one decision means that something is bought.
    sigma_s = observation.scaling.sigma_s if len(decisions) > 1 else 0.0
    if math.isfinite(most_s):
        work = min(work, done / window_s * max(most_s - sigma_s, 0.0))
    expected_s = work / done * window_s + sigma_s if done > 0 else math.inf
    if expected_s > ENDLESS_S:
        expected_s = math.inf
    ends = math.isfinite(expected_s)
    evicted = float((1.0 - transient.survival).sum())
    # The next part of a job goes on using a billing hour that this part began.
    paid_s = partial(billed_s, observation.rules) if whole else float
    return CostForecast(
        work=work,
        expected_cost=Usd(charge / window_s * paid_s(expected_s) if ends else math.inf),
        expected_s=Seconds(expected_s),
        expected_evictions=evicted / window_s * expected_s if evicted and ends else 0.0,
        decisions=decisions,
    )


def _simulate_purchases(observation: Observation, decide: Decide) -> tuple[tuple[Decision, ...], Observation]:
    """Decides, assumes that the request is granted, and decides again, until a decision requests nothing."""
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
