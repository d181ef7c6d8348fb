"""Turns an observation into a decision: which allocation to acquire, renew or release (Harlap 4.3.2).

``candidate_search.py`` finds the best candidate, for one running job as for a thousand of a backtest. This
module explains it, and lists the alternatives. It is pure: the same observation gives the same decision in
every world and in every replay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bidbrain.bidding.candidate_search import ScoredCandidates, score_renewals, score_requests
from bidbrain.bidding.decision_batch import DecisionBatch
from bidbrain.bidding.footprint import FootprintEstimate, bid_at, delta_of
from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.model import Action, Candidate, Decision, Observation, Offer
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Usd, UsdPerHour

_SHOWN: Final = 200
"""Most alternatives to list in a decision, best first: enough to explain it, few enough for the ledger."""


def decide(observation: Observation) -> Decision:
    """Acquires the candidate whose footprint has the least E, if that is below E now; otherwise holds.

    Candidates are every open market with enough history, every count within the limits and every bid delta.
    Ties go to the first by (market, count, delta), whatever the order of the offers.
    """
    single = ObservationBatch.from_observation(observation)
    room = min(
        observation.limits.max_per_allocation, observation.limits.max_instances - observation.live_count
    )
    weighing = score_requests(single.setting, single.at, np.arange(1, max(room, 1) + 1)[None, :])
    now = _as_it_is(weighing.now)
    considered = int(weighing.allowed.sum()) * len(weighing.deltas)
    if not considered:
        return _decide_to_hold(observation, now, [], 0, _why_no_candidate(observation, room))
    candidates = _best_bids(single, weighing)
    weighed = [candidate for _, candidate in candidates]
    # min returns the first of equals, and the candidates are sorted by market and count.
    code, best = min(candidates, key=lambda candidate: candidate[1].cost_per_work)
    if best.cost_per_work >= now.cost_per_work:
        why = f"A core-hour costs {_core_hour(now)}, and none of {considered} requests would make it cheaper."
        return _decide_to_hold(observation, now, weighed, considered, why)
    price = UsdPerHour(float(single.at.prices[0, code]))
    return _decide_to_acquire(observation, now, weighed, considered, best, price)


def renew_or_terminate(observation: Observation, holding_id: str) -> Decision:
    """Renews a holding whose hour ends soon if E with it for one more hour is below E without it.

    A renewed holding costs the current price and keeps its bid. Raises KeyError for an unknown holding.
    """
    holding = observation.find_holding(holding_id)
    single = ObservationBatch.from_observation(observation)
    place = observation.footprint.index(holding)
    renewals = score_renewals(single.setting, single.at, np.array([place]))
    delta = None if holding.on_demand else _delta_now(single.at, place, observation.rules.cleared_by_bid)
    subject = _Subject(holding.market, holding.counts_for, delta, float(renewals.beta[0]))
    renew = _as_candidate(Action.RENEW, renewals.with_it, subject, "one more hour at the price of now")
    terminate = _as_candidate(Action.TERMINATE, renewals.without, subject, "without it")
    best = renew if renewals.should_renew[0] else terminate
    return Decision(
        at=observation.now,
        action=best.action,
        cost_per_work_now=_as_it_is(renewals.now).cost_per_work,
        why=(
            f"With {holding.counts_for} x {holding.market} for one more hour a core-hour costs "
            f"{_core_hour(renew)}, without them {_core_hour(terminate)}."
        ),
        weighed=tuple(replace(option, chosen=option is best) for option in (renew, terminate)),
        considered=2,
        holding=holding.id,
        market=holding.market,
        count=holding.counts_for,
        bid=holding.bid,
    )


def _delta_now(at: DecisionBatch, place: int, cleared_by_bid: bool) -> float:
    here = at.prices[:, at.held.market[0, place]]
    return float(delta_of(at.held.bid[:, place], here, cleared_by_bid)[0])


@dataclass(frozen=True, slots=True)
class _Subject:
    """Describes the allocation that an alternative is about."""

    market: Market | None
    count: int
    bid_delta: float | None
    beta: float


def _as_candidate(action: Action, reckoned: FootprintEstimate, subject: _Subject, why: str) -> Candidate:
    """Returns the only footprint of ``reckoned`` as an alternative, not chosen yet."""
    return Candidate(
        action=action,
        market=subject.market,
        count=subject.count,
        bid_delta=subject.bid_delta,
        beta=subject.beta,
        expected_charge=Usd(float(reckoned.charge[0])),
        expected_work=float(reckoned.work[0]),
        cost_per_work=float(reckoned.cost_per_work[0]),
        chosen=False,
        why=why,
    )


def _as_it_is(now: FootprintEstimate) -> Candidate:
    subject = _Subject(None, 0, None, float(now.beta[0]))
    return _as_candidate(Action.HOLD, now, subject, "the footprint as it is")


def _best_bids(single: ObservationBatch, weighing: ScoredCandidates) -> list[tuple[int, Candidate]]:
    """Returns (market code, candidate) with the best bid for each market and count, sorted by both.

    Of more than ``_SHOWN`` it keeps the best.
    """
    ratio = weighing.scores.cost_per_work[0]
    bids = ratio.argmin(axis=-1)
    least = np.take_along_axis(ratio, bids[..., None], axis=-1)[..., 0]
    shown = np.flatnonzero(weighing.allowed[0])
    if len(shown) > _SHOWN:
        # A partition finds the bound without sorting all candidates. Where the best are all equal to it,
        # they are all kept: dropping any would let the order of the offers decide.
        bound = np.partition(least.flat[shown], _SHOWN)[_SHOWN]
        shown = shown[least.flat[shown] < bound] if least.min() < bound else shown[least.flat[shown] == bound]
    markets, counts = (axis.tolist() for axis in np.unravel_index(shown, least.shape))
    # By name, not by code: the order of the offers must not change which of equals wins.
    named = sorted((single.setting.markets[m], k, m) for m, k in zip(markets, counts, strict=True))
    return [(m, _request_candidate(single, weighing, m, k, int(bids[m, k]))) for _, k, m in named]


def _request_candidate(
    single: ObservationBatch, weighing: ScoredCandidates, market: int, count: int, bid: int
) -> Candidate:
    at = (0, market, count, bid)
    return Candidate(
        action=Action.ACQUIRE,
        market=single.setting.markets[market],
        count=int(weighing.counts[0, min(market, weighing.counts.shape[1] - 1), count]),
        bid_delta=float(weighing.deltas[bid]),
        beta=float(weighing.beta[0, market, bid]),
        expected_charge=Usd(float(weighing.scores.charge[at])),
        expected_work=float(weighing.scores.work[at]),
        cost_per_work=float(weighing.scores.cost_per_work[at]),
        chosen=False,
        why="the best bid for this count",
    )


def _decide_to_hold(
    observation: Observation, now: Candidate, weighed: Sequence[Candidate], considered: int, why: str
) -> Decision:
    return Decision(
        at=observation.now,
        action=Action.HOLD,
        cost_per_work_now=now.cost_per_work,
        why=why,
        weighed=(replace(now, chosen=True), *weighed),
        considered=considered,
    )


def _decide_to_acquire(
    observation: Observation,
    now: Candidate,
    weighed: Sequence[Candidate],
    considered: int,
    best: Candidate,
    price: UsdPerHour,
) -> Decision:
    assert best.bid_delta is not None
    bid = bid_at(price, best.bid_delta)
    instead = "" if math.isinf(now.cost_per_work) else f" instead of {_core_hour(now)}"
    return Decision(
        at=observation.now,
        action=Action.ACQUIRE,
        cost_per_work_now=now.cost_per_work,
        why=(
            f"With {best.count} x {best.market} (price ${price:.4f}, bid ${bid:.4f}) for an hour, "
            f"a core-hour costs {_core_hour(best)}{instead}; "
            f"{best.beta:.1%} chance of eviction within it."
        ),
        weighed=(now, *(replace(option, chosen=option is best) for option in weighed)),
        considered=considered,
        market=best.market,
        count=best.count,
        bid=bid,
    )


def _why_no_candidate(observation: Observation, room: int) -> str:
    if room < 1:
        return "The footprint is at its maximum size."
    offers: Sequence[Offer] = sorted((o for o in observation.offers if o.open), key=lambda o: o.market)
    if not offers:
        return "No market is open to requests."
    names = ", ".join(str(offer.market) for offer in offers)
    return f"Too little price history to know how long a machine would last: {names}."


def _core_hour(option: Candidate) -> str:
    """Formats E in dollars per core-hour, the unit that people compare prices in."""
    if math.isinf(option.cost_per_work):
        return "infinitely much"
    return f"${option.cost_per_work * HOUR_S:.5f}"
