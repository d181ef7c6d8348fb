"""Explains the default strategy's decisions for people: turns the arrays of one job into a ``Decision``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bidbrain.bidding.decision_batch import Codes
from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.bidding.steady_state_cost import FootprintCosts, MachineRates
from bidbrain.model import Action, Candidate, Decision, Observation
from pricing_data.model.units import HOUR_S, Usd, UsdPerHour

_SHOWN: Final = 50
"""Most markets to list in a decision, cheapest first: enough to explain it, few enough for the ledger."""


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Holds the alternatives of one decision, over m markets and c counts."""

    now: FootprintCosts
    """(1,): the footprint as it stands."""
    counts: Codes
    """(1, m, c): machines to add."""
    grown: FootprintCosts
    """(1, m, c): the footprint with ``counts`` more machines of each market."""
    fresh: MachineRates
    """(1, m): a new machine of each market."""


def explain_hold(observation: Observation, compared: Comparison) -> Decision:
    """Returns the decision to buy and exchange nothing."""
    tried = int(np.isfinite(compared.grown.cost_per_work).sum())
    if tried:
        now = _core_hour(float(compared.now.cost_per_work[0]))
        why = f"A core-hour costs {now}, and none of {tried} purchases makes the rest of the work cheaper."
    elif observation.live_count >= observation.limits.max_instances:
        why = "The job holds as many machines as it may."
    else:
        why = "No market offers a spot machine at or below its on-demand price now."
    weighed = (replace(_as_it_is(compared), chosen=True), *_market_candidates(observation, compared))
    return replace(_plain_decision(observation, compared, Action.HOLD, why), weighed=weighed)


def explain_purchase(
    observation: Observation,
    single: ObservationBatch,
    compared: Comparison,
    wanted: tuple[int, int, float, bool],
) -> Decision:
    """Returns the decision to buy ``wanted``: (market code, count, bid, whether another request follows)."""
    code, count, bid, again = wanted
    market = single.setting.markets[code]
    price, losses = float(single.at.prices[0, code]), float(compared.fresh.losses[0, code])
    weighed = tuple(
        replace(option, chosen=True) if option.market == market else option
        for option in _market_candidates(observation, compared)
    )
    now = float(compared.now.cost_per_work[0])
    instead = "" if math.isinf(now) else f" instead of {_core_hour(now)}"
    best = min((w.cost_per_work for w in weighed), default=None)
    what = f"{count} x {market} at ${price:.4f} an hour each, never more than ${bid:.4f}"
    why = "to replace dearer machines, which are released once these run"
    # An exchange happens on a full footprint, which leaves no candidate to grow by.
    if best is not None:
        why = f"with all machines wanted there, a core-hour costs {_core_hour(best)}{instead}"
    known = any(holding.market == market for holding in observation.footprint)
    why = f"{what}: {why}." + ("" if known else f" {_explain_risk(observation, losses)}")
    decision = _plain_decision(observation, compared, Action.ACQUIRE, why)
    weighed = (_as_it_is(compared), *weighed)
    return replace(
        decision, weighed=weighed, market=market, count=count, bid=UsdPerHour(round(bid, 6)), again=again
    )


def explain_release(observation: Observation, compared: Comparison, place: int) -> Decision:
    """Returns the decision to release the machines at ``place``."""
    holding = observation.footprint[place]
    offer = observation.find_offer(holding.market)
    if not holding.on_demand and offer.price > offer.on_demand:
        why = f"each costs ${offer.price:.4f} an hour now, and ${offer.on_demand:.4f} on demand"
    else:
        why = f"each costs ${offer.price / holding.cores:.4f} a core-hour, and cheaper ones replace them"
    why = f"Release {holding.counts_for} x {holding.market}: {why}."
    decision = _plain_decision(observation, compared, Action.TERMINATE, why)
    bid = None if holding.on_demand else holding.bid
    return replace(decision, holding=holding.id, market=holding.market, count=holding.counts_for, bid=bid)


def _plain_decision(observation: Observation, compared: Comparison, action: Action, why: str) -> Decision:
    tried = int(np.isfinite(compared.grown.cost_per_work).sum())
    return Decision(observation.now, action, float(compared.now.cost_per_work[0]), why, (), considered=tried)


def _as_it_is(compared: Comparison) -> Candidate:
    """Returns the alternative of buying nothing."""
    now = compared.now
    return Candidate(
        action=Action.HOLD,
        market=None,
        count=0,
        bid_delta=None,
        beta=0.0,
        expected_charge=Usd(float(now.per_hour[0])),
        expected_work=float(now.speed[0]) * HOUR_S,
        cost_per_work=float(now.cost_per_work[0]),
        chosen=False,
        why="an hour of the footprint as it is",
    )


def _market_candidates(observation: Observation, compared: Comparison) -> tuple[Candidate, ...]:
    """Returns the best count for each open market: at most ``_SHOWN`` markets, the cheapest per work."""
    ratio = compared.grown.cost_per_work[0]
    best, found = ratio.argmin(axis=1), []
    # Stable, so that a replay lists equally cheap markets in the same order.
    order = np.argsort(ratio.min(axis=1), kind="stable")[:_SHOWN]
    for code in order.tolist():
        nth = int(best[code])
        if not math.isfinite(ratio[code, nth]):
            continue
        # Codes of offers come first in the batch (``ObservationBatch``), so they index the offers too.
        offer = observation.offers[code]
        found.append(
            Candidate(
                action=Action.ACQUIRE,
                market=offer.market,
                count=int(compared.counts[0, code, nth]),
                bid_delta=float(offer.on_demand - offer.price),
                beta=1.0 - math.exp(-HOUR_S * float(compared.fresh.losses[0, code])),
                expected_charge=Usd(float(compared.grown.per_hour[0, code, nth])),
                expected_work=float(compared.grown.speed[0, code, nth]) * HOUR_S,
                cost_per_work=float(ratio[code, nth]),
                chosen=False,
                why="an hour of the whole footprint with it, lost machines replaced",
            )
        )
    return tuple(found)


def _explain_risk(observation: Observation, losses: float) -> str:
    """Explains how often such machines are lost (``losses`` per second), and what a loss costs."""
    if losses * HOUR_S < 0.001:
        return "Evictions are rare there: less than one in 1000 hours."
    hours = 1 / (losses * HOUR_S)
    stop_s = observation.scaling.lambda_s
    return (
        f"They are evicted about once in {hours:.0f} hours; that pauses the others for {stop_s:.0f} s and "
        "loses no work."
    )


def _core_hour(cost_per_work: float) -> str:
    if math.isinf(cost_per_work):
        return "infinitely much"
    return f"${cost_per_work * HOUR_S:.5f}"
