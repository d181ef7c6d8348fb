"""What a job should cost and when it should be done, if the market stayed as it is now.

For showing before anything is bought. The footprint is built at once, by the very decisions a run would
take now, and is then held until the work is done. So this assumes that prices stay, that every hour is
renewed as it began, and that what is evicted is replaced without waiting: refunds, lost time and lambda
are in E, the search for new machines is not. Sigma is paid once. The last hour is paid for as a bill has it
(``billing.billed_s``): where hours are billed, whole; unless it is only a part of a job that is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from bidbrain.bidding.decide import decide as least_cost
from bidbrain.bidding.expected_work import mean_left
from bidbrain.bidding.footprint import held, reckon
from bidbrain.bidding.observation_batch import Single
from bidbrain.model import UNBOUNDED, Action, Decision, Holding, Observation
from pricing_data.model.billing import billed_s
from pricing_data.model.units import HOUR_S, Instant, Seconds, Usd, UsdPerHour

ENDLESS_S: Final = 100 * 365 * 24 * HOUR_S
"""Longer ones are slips of the keyboard, and soon later than a date can say."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Expectations for one job. Cost and time are infinite where it would not be done in a hundred years."""

    work: float
    """Core-seconds."""
    expected_cost: Usd
    expected_s: Seconds
    expected_evictions: float
    """Allocations that are expected to be taken away until the work is done."""
    decisions: tuple[Decision, ...]
    """What would be acquired now, in order, and the decision to hold that ends it."""


Decide: TypeAlias = Callable[[Observation], Decision]
"""A strategy's: what to acquire now."""


def plan_ahead(
    observation: Observation,
    work: float,
    decide: Decide = least_cost,
    *,
    most_s: float = math.inf,
    whole: bool = True,
    reliable_per_hour: float | None = None,
) -> Plan:
    """Expected cost and time of ``work`` core-seconds on the footprint that ``decide`` would build now.

    ``most_s``: the job ends after so long, whatever is done by then; one of both is finite. ``whole``:
    whether that is the job's end, so that what was begun is paid for. ``reliable_per_hour``: dollars for a
    reliable machine, where that is not its list price.
    """
    decisions, settled = _built(observation, decide)
    held_up = settled
    if reliable_per_hour is not None:
        held_up = replace(settled, reliable=replace(settled.reliable, price=UsdPerHour(reliable_per_hour)))
    single = Single.of(held_up)
    transient = held(single.setting, single.at)
    steady = reckon(single.setting, transient, np.array([math.inf]), changes=False)
    window_s, charge, done = (
        float(column[0]) for column in (mean_left(transient), steady.charge, steady.work)
    )
    sigma_s = observation.scaling.sigma_s if len(decisions) > 1 else 0.0
    if math.isfinite(most_s):
        work = min(work, done / window_s * max(most_s - sigma_s, 0.0))
    expected_s = work / done * window_s + sigma_s if done > 0 else math.inf
    if expected_s > ENDLESS_S:
        expected_s = math.inf
    ends = math.isfinite(expected_s)
    evicted = float((1.0 - transient.survival).sum())
    paid_s = partial(billed_s, observation.rules) if whole else float
    return Plan(
        work=work,
        expected_cost=Usd(charge / window_s * paid_s(expected_s) if ends else math.inf),
        expected_s=Seconds(expected_s),
        expected_evictions=evicted / window_s * expected_s if evicted and ends else 0.0,
        decisions=decisions,
    )


def _built(observation: Observation, decide: Decide) -> tuple[tuple[Decision, ...], Observation]:
    """Decide, take it as granted, decide again, until nothing more is wanted."""
    decisions = [decide(observation)]
    while decisions[-1].action is Action.ACQUIRE:
        requested = _requested(observation, decisions[-1], f"planned {len(decisions)}")
        observation = replace(observation, footprint=(*observation.footprint, requested))
        decisions.append(decide(observation))
    return tuple(decisions), observation


def _requested(observation: Observation, decision: Decision, name: str) -> Holding:
    assert decision.market is not None
    offer = observation.offer(decision.market)
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
