"""Implements the default strategy: finishes the work for the least expected cost under the market's rules.

    billed by the hour     evicted hours are refunded, so bids matter: requests and renewals minimise E to the
                           end of the hour, as in Proteus (``proteus.py``)
    billed by the second   refunds end soon and a machine may be exchanged at any moment: requests and
                           exchanges minimise E of a footprint whose losses are replaced
                           (``bidbrain.bidding.steady_state_cost``)

An exchange replaces machines by those of another market, where that saves more than it costs:

    saved   (E now - E then) V over ``lasts_s``, or over the rest of the work if that is shorter
    cost    lambda for the whole footprint, double pay while both run, and a margin

It never pays more than the list price for a spot machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, FootprintBatch, MarketSetup
from bidbrain.bidding.observation_batch import ObservationBatch
from bidbrain.bidding.steady_state_cost import (
    REPLACEMENT_GAP_S,
    FootprintCosts,
    FootprintSums,
    MachineRates,
    estimate_costs,
    fresh_rates,
    held_rates,
    sum_footprint,
)
from bidbrain.model import Decision, Observation
from bidbrain.strategies.base import NO_REQUEST, RequestBatch
from bidbrain.strategies.proteus import BidBrain
from bidbrain.strategies.reasons import Comparison, explain_hold, explain_purchase, explain_release
from bidbrain.strategies.recovery import ELASTIC, Recovery
from bidbrain.strategies.reliable_tier import Restart, TierPlacement, place_tier
from bidbrain.strategies.single_decision import renew_one
from pricing_data.model.units import HOUR_S

DOUBLE_PAY_S: Final = 90.0
"""Seconds for which an exchange pays twice: from when the new machines run until the old ones are gone."""
_COUNTS: Final = 24
"""Most counts to try in each market."""


@dataclass(frozen=True, slots=True)
class Auto:
    """Implements the default strategy; see the module."""

    name: str = "auto"
    recovery: Recovery = ELASTIC
    uses_reliable: bool = True
    lasts_s: float = 1800.0
    """Seconds for which one market is assumed to stay cheaper than another, once it is."""
    margin: float = 0.02
    """Share of the new machines' cost over that time that an exchange must save beyond its own cost."""
    by_the_hour: BidBrain = field(default_factory=BidBrain)
    """Decides instead where hours are billed."""

    def choose_requests(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        """Requests what makes the remaining work cheapest: more machines, or cheaper ones."""
        if setting.rules.quantum_s >= HOUR_S:
            return self.by_the_hour.choose_requests(setting, at)
        # An exchange requests replacements before it releases anything: if the request were refused, a job
        # that released first would have neither. Surplus machines are on their way out and do not count.
        at = replace(
            at, held=replace(at.held, count=np.where(_surplus_machines(setting, at), 0, at.held.count))
        )
        wanted = RequestBatch(
            np.full(len(at), NO_REQUEST),
            np.zeros(len(at), np.int64),
            np.full(len(at), np.nan),
            np.zeros(len(at), np.bool_),
        )
        growing = (_fairly_offered(setting, at) & (_growth_room(setting, at.held) >= 1)).any(axis=1)
        # Growth goes first: an exchange is only worth its cost on a footprint that is complete.
        exchanging = ~growing & self._sees_cheaper(setting, at)
        for some, choose in ((growing, self._choose_growth), (exchanging, self._choose_exchange)):
            rows = np.flatnonzero(some)
            if len(rows):
                found = choose(setting, at.select(rows))
                wanted.market[rows], wanted.count[rows] = found.market, found.count
                wanted.bid[rows], wanted.again[rows] = found.bid, found.again
        return wanted

    def _choose_growth(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        """Requests the market and count of least E, where that saves more than the machines cost to join."""
        rows, fresh = np.arange(len(at)), fresh_rates(setting, at)
        now = sum_footprint(setting, at, held_rates(setting, at))
        counts, grown = _score_growth(setting, at, fresh, now)
        flat = grown.cost_per_work.reshape(len(at), -1)
        market, nth = np.unravel_index(flat.argmin(axis=1), grown.cost_per_work.shape[1:])
        count = counts[rows, market, nth]
        least, as_it_is = flat.min(axis=1), estimate_costs(setting, now)
        joining = count * fresh.paid[rows, market] * setting.scaling.sigma_s / HOUR_S
        # New machines save nothing on work that is done before they run.
        left = np.maximum(at.work_left - as_it_is.speed * REPLACEMENT_GAP_S, 0.0)
        better = least < as_it_is.cost_per_work
        # From an empty footprint, whose E is infinite, any machine saves infinitely much.
        saved = np.where(np.isfinite(as_it_is.cost_per_work), as_it_is.cost_per_work - least, np.inf)
        worth = better & (np.where(better, saved, 0.0) * np.maximum(left, 1e-9) > joining)
        return _as_requests(setting, market, count, worth)

    def _choose_exchange(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        """Requests machines to replace the allocation whose exchange gains most."""
        # Refunds are left out: only young machines get them, so the newest would always look cheapest.
        fresh, rates = fresh_rates(setting, at, refunds=False), held_rates(setting, at, refunds=False)
        now = sum_footprint(setting, at, rates)
        standing = now, estimate_costs(setting, now)
        found = [
            self._exchange_gain(setting, at, (fresh, rates), place, standing)
            for place in range(at.held.count.shape[1])
        ]
        gains, markets, counts = (np.stack(column, axis=1) for column in zip(*found, strict=True))
        rows, place = np.arange(len(at)), gains.argmax(axis=1)
        worth = gains[rows, place] > 0
        return replace(_as_requests(setting, markets[rows, place], counts[rows, place], worth), again=worth)

    def give_up(self, setting: MarketSetup, at: DecisionBatch) -> Codes:
        """Returns, (n,), the dearest machines to release: surplus ones, or any dearer than on demand."""
        if setting.rules.quantum_s >= HOUR_S or not at.held.count.any():
            return np.full(len(at), NO_REQUEST)
        # Surplus machines work until their replacements run; an age of 0 means that some do not run yet.
        pending = np.where((at.held.count > 0) & (at.held.age_s <= 0), 1, 0).max(axis=1) > 0
        going = (_surplus_machines(setting, at) & ~pending[:, None]) | _above_list_price(setting, at)
        dearest = np.where(going, _paid_per_core(setting, at), -np.inf).argmax(axis=1)
        return np.where(going.any(axis=1), dearest, NO_REQUEST)

    def _sees_cheaper(self, setting: MarketSetup, at: DecisionBatch) -> Flags:
        """Returns, (n,), whether a market's price per core undercuts a machine held by the margin."""
        # Prices alone are compared. Refunds favour machines in their first hour, and an exchange every hour
        # would cost more than the refunds bring.
        offered = np.where(_fairly_offered(setting, at), at.prices / setting.cores, np.inf).min(axis=1)
        there = at.held.count > 0
        highest = np.where(there, _paid_per_core(setting, at), 0.0).max(axis=1, initial=0.0)
        cheaper: Flags = offered < (1 - self.margin) * highest
        return cheaper

    def _exchange_gain(
        self,
        setting: MarketSetup,
        at: DecisionBatch,
        rates: tuple[MachineRates, MachineRates],
        place: int,
        standing: tuple[FootprintSums, FootprintCosts],
    ) -> tuple[Floats, Codes, Codes]:
        """Returns the net dollars that exchanging the machines at ``place`` saves, and for which market and
        count; each (n,).

        ``rates`` are those of new and of held machines, ``standing`` the footprint as it is.
        """
        fresh, held = rates
        now, as_it_is = standing
        count = at.held.count[:, place].astype(np.float64)
        mine = MachineRates(
            held.paid[:, place], held.losses[:, place], held.up[:, place], held.billed[:, place]
        )
        cores = setting.cores[at.held.market[:, place]]
        # As many machines as make up the same cores, but never more machines than there were.
        others = np.ceil((count * cores)[:, None] / setting.cores)
        others = np.clip(others, 1.0, np.maximum(count, 1.0)[:, None])
        then = estimate_costs(
            setting,
            now.add_machines(-count, cores, mine).add_axes(1).add_machines(others, setting.cores, fresh),
        )
        least = np.where(_fairly_offered(setting, at), then.cost_per_work, np.inf)
        best, rows = least.argmin(axis=1), np.arange(len(at))
        least, speed, new = least[rows, best], then.speed[rows, best], others[rows, best]
        # Only running machines are exchanged: a pending one costs nothing yet.
        cheaper = (count > 0) & (at.held.age_s[:, place] > 0) & (least < as_it_is.cost_per_work)
        lasts_s = np.minimum(self.lasts_s, at.work_left / np.maximum(speed, 1e-9))
        saved = (
            np.where(cheaper, as_it_is.cost_per_work - np.where(cheaper, least, 0.0), 0.0) * speed * lasts_s
        )
        paid = new * fresh.billed[rows, best]
        spent = (
            setting.scaling.lambda_s * as_it_is.per_hour + DOUBLE_PAY_S * paid + self.margin * lasts_s * paid
        ) / HOUR_S
        return np.where(cheaper, saved - spent, -np.inf), best, new.astype(np.int64)

    def place_reliable(self, setting: MarketSetup, at: DecisionBatch, restart: Restart) -> TierPlacement:
        """Chooses where the reliable machines run (``reliable_tier.py``); the job holds nothing else."""
        fresh = fresh_rates(setting, at)
        _, grown = _score_growth(setting, at, fresh, sum_footprint(setting, at, held_rates(setting, at)))
        flat = grown.cost_per_work.reshape(len(at), -1)
        rows, best = np.arange(len(at)), flat.argmin(axis=1)
        per_hour, speed = (
            values.reshape(len(at), -1)[rows, best] for values in (grown.per_hour, grown.speed)
        )
        largest = FootprintCosts(per_hour, speed, flat[rows, best])
        # A market that is closed at a fair price refused a request just now.
        refused = ~at.open & (at.prices <= setting.on_demand)
        return place_tier(setting, (_fairly_offered(setting, at), refused), fresh, largest, restart)

    def needs_nothing(self, setting: MarketSetup, held: FootprintBatch) -> Flags:
        """See ``Strategy.needs_nothing``."""
        if setting.rules.quantum_s >= HOUR_S:
            return self.by_the_hour.needs_nothing(setting, held)
        return np.zeros(len(held.count), np.bool_)

    def choose_renewals(self, setting: MarketSetup, at: DecisionBatch, place: Codes) -> Flags:
        """Renews as Proteus does where hours are billed, else always: exchanges need no end of an hour."""
        if setting.rules.quantum_s >= HOUR_S:
            return self.by_the_hour.choose_renewals(setting, at, place)
        return np.ones(len(at), np.bool_)

    def decide(self, observation: Observation) -> Decision:
        """See ``Strategy.decide``."""
        if observation.rules.quantum_s >= HOUR_S:
            return self.by_the_hour.decide(observation)
        single = ObservationBatch.from_observation(observation)
        setting, at = single.setting, single.at
        fresh, now = fresh_rates(setting, at), sum_footprint(setting, at, held_rates(setting, at))
        compared = Comparison(estimate_costs(setting, now), *_score_growth(setting, at, fresh, now), fresh)
        place = int(self.give_up(setting, at)[0])
        if place != NO_REQUEST:
            return explain_release(observation, compared, place)
        wanted = self.choose_requests(setting, at)
        if wanted.market[0] == NO_REQUEST:
            return explain_hold(observation, compared)
        purchase = int(wanted.market[0]), int(wanted.count[0]), float(wanted.bid[0]), bool(wanted.again[0])
        return explain_purchase(observation, single, compared, purchase)

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """See ``Strategy.renew_or_terminate``."""
        if observation.rules.quantum_s >= HOUR_S:
            return self.by_the_hour.renew_or_terminate(observation, holding_id)
        return renew_one(self, observation, holding_id, "kept until an exchange pays")


def _as_requests(setting: MarketSetup, market: Codes, count: Codes, worth: Flags) -> RequestBatch:
    """Requests ``count`` of ``market`` where ``worth`` is set, in as many requests as the limits need."""
    together = np.minimum(count, setting.limits.max_per_allocation)
    return RequestBatch(
        np.where(worth, market, NO_REQUEST),
        np.where(worth, together, 0),
        setting.on_demand[market],
        worth & (count > together),
    )


def _above_list_price(setting: MarketSetup, at: DecisionBatch) -> Flags:
    """Returns, (n, a), which running spot machines cost more than their on-demand price now."""
    here = np.take_along_axis(at.prices, at.held.market, axis=1)
    running = (at.held.count > 0) & (at.held.age_s > 0) & ~at.held.on_demand
    dear: Flags = running & (here > setting.on_demand[at.held.market])
    return dear


def _surplus_machines(setting: MarketSetup, at: DecisionBatch) -> Flags:
    """Returns, (n, a), the dearest running allocations, as many as exceed the job's maximum."""
    held = at.held
    surplus = held.live_count - setting.limits.max_instances
    if not (surplus > 0).any():
        return np.zeros(held.count.shape, np.bool_)
    running = (held.count > 0) & (held.age_s > 0)
    # Stable, so that of equally dear allocations the first one goes.
    order = np.argsort(np.where(running, -_paid_per_core(setting, at), np.inf), axis=1, kind="stable")
    counts = np.take_along_axis(np.where(running, held.count, 0), order, axis=1)
    # An allocation goes as a whole if the dearer ones before it do not cover the surplus yet.
    before = np.cumsum(counts, axis=1) - counts
    found = np.zeros(held.count.shape, np.bool_)
    np.put_along_axis(found, order, (before < surplus[:, None]) & (counts > 0), axis=1)
    return found


def _paid_per_core(setting: MarketSetup, at: DecisionBatch) -> Floats:
    """Returns, (n, a), dollars per core-hour of what is held, now; empty places mean nothing."""
    here = np.take_along_axis(at.prices, at.held.market, axis=1)
    paid = np.where(at.held.on_demand, setting.on_demand[at.held.market], here)
    per_core: Floats = paid / setting.cores[at.held.market]
    return per_core


def _fairly_offered(setting: MarketSetup, at: DecisionBatch) -> Flags:
    """Returns, (n, m), which open markets cost no more than on demand."""
    offered: Flags = at.open & (at.prices <= setting.on_demand)
    return offered


def _score_growth(
    setting: MarketSetup, at: DecisionBatch, fresh: MachineRates, now: FootprintSums
) -> tuple[Codes, FootprintCosts]:
    """Returns counts to add, (n, m, c), and the costs of the footprints that result.

    E is infinite where the market is closed or the limits leave no room.
    """
    most = _growth_room(setting, at.held)
    counts = _tried_counts(setting.limits.max_instances)
    tried = np.minimum(counts, np.maximum(most, 1)[:, :, None])
    rates = MachineRates(
        fresh.paid[:, :, None], fresh.losses[:, :, None], fresh.up[:, :, None], fresh.billed[:, :, None]
    )
    found = estimate_costs(
        setting, now.add_axes(2).add_machines(tried.astype(np.float64), setting.cores[:, None], rates)
    )
    allowed = (_fairly_offered(setting, at) & (most >= 1))[:, :, None]
    return tried, FootprintCosts(found.per_hour, found.speed, np.where(allowed, found.cost_per_work, np.inf))


def _growth_room(setting: MarketSetup, held: FootprintBatch) -> Codes:
    """Returns, (n, m), how many more machines of each market the limits allow, in any number of requests."""
    instances = np.maximum(setting.limits.max_instances - held.live_count, 0)
    most = np.broadcast_to(instances[:, None], (len(instances), len(setting.markets)))
    if np.isinf(setting.limits.max_cores):
        return most
    left = setting.limits.max_cores - (held.count * setting.cores[held.market]).sum(axis=1)
    fitting: Codes = np.minimum(most, np.maximum(left[:, None] / setting.cores, 0).astype(np.int64))
    return fitting


def _tried_counts(most: int) -> Codes:
    """Returns, (c,), the counts to try, increasing from 1 to ``most``; at most ``_COUNTS`` of them."""
    if most <= _COUNTS:
        return np.arange(1, max(most, 1) + 1)
    # Spaced in the logarithm: a miss by some percent costs little, by some machines of few it costs much.
    return np.unique(np.rint(np.geomspace(1, most, _COUNTS)).astype(np.int64))
