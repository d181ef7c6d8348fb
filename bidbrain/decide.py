"""Observation in, decision out: which allocation to acquire, renew or let go (Harlap 4.3.2).

The measure is E, the expected dollars per expected core-second of the whole footprint (``work.py``,
``cost.py``): a candidate is taken only if work gets cheaper with it. Pure, so the same observation gives
the same decision in every world and in every replay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bidbrain.footprint import Reckoned, bid_at, columns, delta_of, held, reckon, renewed, requests
from bidbrain.model import Action, Decision, Holding, Observation, Offer, Weighed
from bidbrain.work import Allocations
from pricing_data.market import Market
from pricing_data.units import HOUR_S, Usd


def decide(observation: Observation) -> Decision:
    """Acquire the candidate with the least E of "footprint and candidate", if that is below E now; else hold.

    Candidates are every open market with enough history, every count within the limits and every bid delta;
    ties go to the first by (market, count, delta).
    """
    footprint = columns((holding, held(observation, holding)) for holding in observation.footprint)
    now = _as_it_is(reckon(observation, footprint, changes=False))
    offers = sorted((offer for offer in observation.offers if offer.open), key=lambda offer: offer.market)
    known = [offer for offer in offers if observation.evictions.evidence(offer.market, HOUR_S).known]
    room = min(observation.limits.max_per_allocation, observation.limits.max_instances - observation.live)
    if not known or room < 1:
        return _hold(observation, now, [], 0, _why_no_candidate(offers, room))
    counts, deltas = range(1, room + 1), _deltas(observation)
    candidates = requests(observation, known, counts, deltas)
    reckoned = reckon(observation, footprint.beside(candidates), changes=True)
    weighed = _best_bids(known, counts, deltas, candidates, reckoned)
    considered = reckoned.cost_per_work.size
    best = min(weighed, key=lambda candidate: candidate.cost_per_work)
    if best.cost_per_work >= now.cost_per_work:
        why = f"A core-hour costs {_core_hour(now)}, and none of {considered} requests would make it cheaper."
        return _hold(observation, now, weighed, considered, why)
    return _acquire(observation, now, weighed, considered, best)


def renew_or_terminate(observation: Observation, holding_id: str) -> Decision:
    """Shortly before its hour ends: renew the holding if E with it for one more hour is below E without it.

    Renewed, it costs the price of now and keeps its bid, as far above that price as it may now lie. Giving
    it up changes the footprint and costs sigma. Raises KeyError where there is no such holding.
    """
    holding = observation.holding(holding_id)
    outlooks = [(other, held(observation, other)) for other in observation.footprint]
    others = columns(pair for pair in outlooks if pair[0] is not holding)
    again = renewed(observation, holding)
    now = _as_it_is(reckon(observation, columns(outlooks), changes=False))
    with_it = reckon(observation, others.beside(columns([(holding, again)])), changes=False)
    without = reckon(observation, others, changes=True)
    delta = None if holding.on_demand else _delta_now(observation, holding)
    subject = _Subject(holding.market, holding.counts_for, delta, 1 - again.survival)
    renew = _weighed(Action.RENEW, with_it, (), subject, "one more hour at the price of now")
    terminate = _weighed(Action.TERMINATE, without, (), subject, "without it")
    best = renew if renew.cost_per_work < terminate.cost_per_work else terminate
    return Decision(
        at=observation.now,
        action=best.action,
        cost_per_work_now=now.cost_per_work,
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


def _delta_now(observation: Observation, holding: Holding) -> float:
    return delta_of(holding.bid, observation.offer(holding.market).price, observation.rules)


@dataclass(frozen=True, slots=True)
class _Subject:
    """The allocation that an alternative is about."""

    market: Market | None
    count: int
    bid_delta: float | None
    beta: float


def _weighed(action: Action, reckoned: Reckoned, at: tuple[int, ...], subject: _Subject, why: str) -> Weighed:
    """The footprint at index ``at`` of those reckoned, as an alternative not (yet) chosen."""
    return Weighed(
        action=action,
        market=subject.market,
        count=subject.count,
        bid_delta=subject.bid_delta,
        beta=subject.beta,
        expected_charge=Usd(float(reckoned.charge[at])),
        expected_work=float(reckoned.work[at]),
        cost_per_work=float(reckoned.cost_per_work[at]),
        chosen=False,
        why=why,
    )


def _as_it_is(now: Reckoned) -> Weighed:
    return _weighed(Action.HOLD, now, (), _Subject(None, 0, None, float(now.beta)), "the footprint as it is")


def _deltas(observation: Observation) -> Sequence[float]:
    """Where prices do not evict, the highest bid alone: a lower maximum price could but lose the machine."""
    deltas = observation.limits.bid_deltas
    return deltas if observation.rules.cleared_by_bid else deltas[-1:]


def _best_bids(
    offers: Sequence[Offer],
    counts: Sequence[int],
    deltas: Sequence[float],
    candidates: Allocations,
    reckoned: Reckoned,
) -> list[Weighed]:
    """Of each offer and count, in order, the candidate with the best bid."""
    best = reckoned.cost_per_work.argmin(axis=-1)
    weighed = []
    for i, offer in enumerate(offers):
        for j, count in enumerate(counts):
            at = (i, j, int(best[i, j]))
            beta = 1 - float(candidates.survival[(*at, 0)])
            subject = _Subject(offer.market, count, deltas[at[2]], beta)
            weighed.append(_weighed(Action.ACQUIRE, reckoned, at, subject, "the best bid for this count"))
    return weighed


def _hold(
    observation: Observation, now: Weighed, weighed: Sequence[Weighed], considered: int, why: str
) -> Decision:
    return Decision(
        at=observation.now,
        action=Action.HOLD,
        cost_per_work_now=now.cost_per_work,
        why=why,
        weighed=(replace(now, chosen=True), *weighed),
        considered=considered,
    )


def _acquire(
    observation: Observation, now: Weighed, weighed: Sequence[Weighed], considered: int, best: Weighed
) -> Decision:
    assert best.market is not None
    assert best.bid_delta is not None
    offer = observation.offer(best.market)
    bid = bid_at(offer.price, best.bid_delta)
    return Decision(
        at=observation.now,
        action=Action.ACQUIRE,
        cost_per_work_now=now.cost_per_work,
        why=(
            f"With {best.count} x {best.market} (price ${offer.price:.4f}, bid ${bid:.4f}) for an hour, "
            f"a core-hour costs {_core_hour(best)} instead of {_core_hour(now)}; "
            f"{best.beta:.1%} chance of eviction within it."
        ),
        weighed=(now, *(replace(option, chosen=option is best) for option in weighed)),
        considered=considered,
        market=best.market,
        count=best.count,
        bid=bid,
    )


def _why_no_candidate(offers: Sequence[Offer], room: int) -> str:
    if room < 1:
        return "The footprint is as large as it may be."
    if not offers:
        return "No market is open to requests."
    names = ", ".join(str(offer.market) for offer in offers)
    return f"Too little price history to know how long a machine would last: {names}."


def _core_hour(option: Weighed) -> str:
    """Cost per work in the unit that people compare prices in."""
    if math.isinf(option.cost_per_work):
        return "infinitely much"
    return f"${option.cost_per_work * HOUR_S:.5f}"
