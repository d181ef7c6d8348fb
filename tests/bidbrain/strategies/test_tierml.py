"""TierML's choices for one running job: where it goes, when it moves, what it keeps."""

from __future__ import annotations

from dataclasses import replace

from bidbrain.model import Action, Limits
from bidbrain.strategies.tierml import TierML
from tests.bidbrain.build import DOUBLE, XLARGE, Told, holding, observe, offer

BID = 0.2
"""The on-demand price of both offers."""
LIMITS = Limits(max_instances=8, max_per_allocation=8)
OFFERS = (offer(XLARGE, 0.05), offer(DOUBLE, 0.04))


def fixed_betas(xlarge: float, double: float, held: float | None = None) -> Told:
    """Betas of requests at the on-demand price, and of the machines held (at a bid of 0.1)."""
    betas = {(XLARGE, 0.2 - 0.05): xlarge, (DOUBLE, 0.2 - 0.04): double}
    return Told(betas=betas if held is None else betas | {(XLARGE, 0.1 - 0.05): held})


STRATEGY = TierML(cores=16)


def test_begins_where_machines_fail_least_and_bids_the_on_demand_price() -> None:
    decision = STRATEGY.decide(observe(offers=OFFERS, evictions=fixed_betas(0.1, 0.3), limits=LIMITS))
    assert (decision.action, decision.market, decision.count, decision.bid) == (
        Action.ACQUIRE,
        XLARGE,
        4,
        BID,
    )


def test_machines_that_were_never_seen_to_fail_are_told_apart_by_price() -> None:
    decision = STRATEGY.decide(observe(offers=OFFERS, evictions=fixed_betas(0.0, 0.0), limits=LIMITS))
    assert decision.market == DOUBLE


def test_moves_only_for_a_significantly_better_class() -> None:
    for beta, action in ((0.2, Action.HOLD), (0.05, Action.ACQUIRE)):
        evictions = fixed_betas(0.9, beta, held=0.3)
        decision = STRATEGY.decide(observe(holding("h"), offers=OFFERS, evictions=evictions, limits=LIMITS))
        assert decision.action is action
    stays = TierML(cores=16, factor=float("inf"))
    assert (
        stays.decide(observe(holding("h"), offers=OFFERS, evictions=fixed_betas(0.9, 0.05, 0.3))).action
        is Action.HOLD
    )


def test_what_it_moves_away_from_ends_with_its_hour() -> None:
    better = holding("new", DOUBLE, bid=0.2, price=0.04)
    observation = observe(holding("old"), better, offers=OFFERS, evictions=fixed_betas(0.9, 0.05, 0.3))
    assert STRATEGY.renew_or_terminate(observation, "old").action is Action.TERMINATE
    assert STRATEGY.renew_or_terminate(observation, "new").action is Action.RENEW


def test_on_demand_while_spot_is_dearer_and_no_longer() -> None:
    dear = (offer(XLARGE, 0.3), offer(DOUBLE, 0.25))
    decision = STRATEGY.decide(observe(offers=dear, limits=LIMITS))
    assert (decision.action, decision.bid, decision.count) == (Action.ACQUIRE, None, 4)
    rented = replace(holding("r", price=0.2), on_demand=True)
    assert STRATEGY.decide(observe(rented, offers=dear)).action is Action.HOLD
    assert STRATEGY.renew_or_terminate(observe(rented, offers=dear), "r").action is Action.RENEW
    assert STRATEGY.decide(observe(rented, offers=OFFERS)).action is Action.ACQUIRE
    assert STRATEGY.renew_or_terminate(observe(rented, offers=OFFERS), "r").action is Action.TERMINATE
