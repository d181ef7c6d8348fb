"""Implements the default strategy: does the rest of the work for least, by the market's rules and record.

    by the hour     where evicted hours are free a bid is worth dollars: requests and renewals by E until the
                    hour's end, as Proteus has them (``proteus.py``)
    by the second   nothing is refunded for long and a machine may be exchanged at any moment: requests and
                    exchanges by what work costs on a footprint that is kept up
                    (``bidbrain.bidding.steady_state_cost``)

A machine is exchanged where another market does its work for less, by more than the exchange costs:

    saved   (E now - E then) V over the time that such an advantage lasts, or the work does
    cost    lambda for all, both machines for the time in which both are paid, and a margin

Never pays more than the list price for a spot machine.
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
"""Seconds for which both are paid in an exchange.

They last from when the new machines run until the old ones are gone.
"""
_COUNTS: Final = 24
"""Number of counts tried in each market."""


@dataclass(frozen=True, slots=True)
class Auto:
    """Implements the default strategy; see the module."""

    name: str = "auto"
    recovery: Recovery = ELASTIC
    uses_reliable: bool = True
    lasts_s: float = 1800.0
    """Seconds for which one market is assumed to stay cheaper than another, once it is."""
    margin: float = 0.02
    """Share of the machines' cost meanwhile that an exchange must save beside its own cost."""
    by_the_hour: BidBrain = field(default_factory=BidBrain)

    def choose_requests(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        """Requests what makes the work that is left cheapest: more machines, or cheaper ones.

        Replacements are requested first: a job that released machines for a request that is then refused
        would have neither. Until they run, for about a minute, there are more machines than the job's
        maximum.
        """
        if setting.rules.quantum_s >= HOUR_S:
            return self.by_the_hour.choose_requests(setting, at)
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
        tempted = ~growing & self._sees_cheaper(setting, at)
        for some, ask in ((growing, self._choose_growth), (tempted, self._choose_exchange)):
            rows = np.flatnonzero(some)
            if len(rows):
                found = ask(setting, at.select(rows))
                wanted.market[rows], wanted.count[rows], wanted.bid[rows] = (
                    found.market,
                    found.count,
                    found.bid,
                )
                wanted.again[rows] = found.again
        return wanted

    def _choose_growth(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        rows, fresh = np.arange(len(at)), fresh_rates(setting, at)
        now = sum_footprint(setting, at, held_rates(setting, at))
        counts, grown = _score_growth(setting, at, fresh, now)
        flat = grown.cost_per_work.reshape(len(at), -1)
        market, nth = np.unravel_index(flat.argmin(axis=1), grown.cost_per_work.shape[1:])
        count = counts[rows, market, nth]
        least, as_it_is = flat.min(axis=1), estimate_costs(setting, now)
        joining = count * fresh.paid[rows, market] * setting.scaling.sigma_s / HOUR_S
        # Work that is done before the new machines run is not made cheaper by them.
        left = np.maximum(at.work_left - as_it_is.speed * REPLACEMENT_GAP_S, 0.0)
        better = least < as_it_is.cost_per_work
        # From an empty footprint, whose E is infinite, any machine saves infinitely much.
        saved = np.where(np.isfinite(as_it_is.cost_per_work), as_it_is.cost_per_work - least, np.inf)
        worth = better & (np.where(better, saved, 0.0) * np.maximum(left, 1e-9) > joining)
        return _as_requests(setting, market, count, worth)

    def _choose_exchange(self, setting: MarketSetup, at: DecisionBatch) -> RequestBatch:
        """Requests machines in place of the allocation whose exchange gains most."""
        # Without refunds: a new machine's refunded first hour must not make exchanges look profitable.
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
        """Returns, (n,), the dearest of the surplus machines, once their replacements run.

        Returns at once what has come to cost more than on demand.
        """
        if setting.rules.quantum_s >= HOUR_S or not at.held.count.any():
            return np.full(len(at), NO_REQUEST)
        # An age of 0 means that the machine does not run yet.
        pending = np.where((at.held.count > 0) & (at.held.age_s <= 0), 1, 0).max(axis=1) > 0
        going = (_surplus_machines(setting, at) & ~pending[:, None]) | _above_list_price(setting, at)
        dearest = np.where(going, _paid_per_core(setting, at), -np.inf).argmax(axis=1)
        return np.where(going.any(axis=1), dearest, NO_REQUEST)

    def _sees_cheaper(self, setting: MarketSetup, at: DecisionBatch) -> Flags:
        """Returns, (n,), whether some market's price is below that of something held, by the margin at least.

        Only prices tell one market from another here. An old machine's first hour is over, and a new one may
        be refunded in its own; exchanging every hour for that would lose more than is refunded.
        """
        offered = np.where(_fairly_offered(setting, at), at.prices / setting.cores, np.inf).min(axis=1)
        there = at.held.count > 0
        highest = np.where(there, _paid_per_core(setting, at), 0.0).max(axis=1, initial=0.0)
        tempted: Flags = offered < (1 - self.margin) * highest
        return tempted

    def _exchange_gain(
        self,
        setting: MarketSetup,
        at: DecisionBatch,
        rates: tuple[MachineRates, MachineRates],
        place: int,
        standing: tuple[FootprintSums, FootprintCosts],
    ) -> tuple[Floats, Codes, Codes]:
        """Returns dollars that exchanging the machines at ``place`` saves, for which market and count.

        Each has shape (n,).
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
        """Chooses where the reliable machines run, while nothing else is held."""
        fresh = fresh_rates(setting, at)
        _, grown = _score_growth(setting, at, fresh, sum_footprint(setting, at, held_rates(setting, at)))
        flat = grown.cost_per_work.reshape(len(at), -1)
        rows, best = np.arange(len(at)), flat.argmin(axis=1)
        per_hour, speed = (
            values.reshape(len(at), -1)[rows, best] for values in (grown.per_hour, grown.speed)
        )
        largest = FootprintCosts(per_hour, speed, flat[rows, best])
        # Closed at a fair price means that a request was refused a moment ago.
        refused = ~at.open & (at.prices <= setting.on_demand)
        return place_tier(setting, (_fairly_offered(setting, at), refused), fresh, largest, restart)

    def needs_nothing(self, setting: MarketSetup, held: FootprintBatch) -> Flags:
        """See ``Strategy.needs_nothing``."""
        if setting.rules.quantum_s >= HOUR_S:
            return self.by_the_hour.needs_nothing(setting, held)
        return np.zeros(len(held.count), np.bool_)

    def choose_renewals(self, setting: MarketSetup, at: DecisionBatch, place: Codes) -> Flags:
        """Renews by the hour as Proteus does; by the second always, since exchanges need no hour's end."""
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
        said = int(wanted.market[0]), int(wanted.count[0]), float(wanted.bid[0]), bool(wanted.again[0])
        return explain_purchase(observation, single, compared, said)

    def renew_or_terminate(self, observation: Observation, holding_id: str) -> Decision:
        """See ``Strategy.renew_or_terminate``."""
        if observation.rules.quantum_s >= HOUR_S:
            return self.by_the_hour.renew_or_terminate(observation, holding_id)
        return renew_one(self, observation, holding_id, "kept until others are worth an exchange")


def _as_requests(setting: MarketSetup, market: Codes, count: Codes, worth: Flags) -> RequestBatch:
    """Requests ``count`` of ``market`` where that is ``worth`` it, at most what one request may ask for."""
    together = np.minimum(count, setting.limits.max_per_allocation)
    return RequestBatch(
        np.where(worth, market, NO_REQUEST),
        np.where(worth, together, 0),
        setting.on_demand[market],
        worth & (count > together),
    )


def _above_list_price(setting: MarketSetup, at: DecisionBatch) -> Flags:
    """Returns, (n, a), which running spot machines cost more than on demand."""
    here = np.take_along_axis(at.prices, at.held.market, axis=1)
    running = (at.held.count > 0) & (at.held.age_s > 0) & ~at.held.on_demand
    dear: Flags = running & (here > setting.on_demand[at.held.market])
    return dear


def _surplus_machines(setting: MarketSetup, at: DecisionBatch) -> Flags:
    """Returns, (n, a), the dearest running machines, as many as exceed the job's maximum.

    Their replacements are on the way.
    """
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
    """Returns, (n, a), dollars per core-hour of what is held, now; meaningless in empty places."""
    here = np.take_along_axis(at.prices, at.held.market, axis=1)
    paid = np.where(at.held.on_demand, setting.on_demand[at.held.market], here)
    per_core: Floats = paid / setting.cores[at.held.market]
    return per_core


def _fairly_offered(setting: MarketSetup, at: DecisionBatch) -> Flags:
    """Returns, (n, m), where a machine can be requested for no more than on demand."""
    offered: Flags = at.open & (at.prices <= setting.on_demand)
    return offered


def _score_growth(
    setting: MarketSetup, at: DecisionBatch, fresh: MachineRates, now: FootprintSums
) -> tuple[Codes, FootprintCosts]:
    """Returns counts (n, m, c), and the costs of footprints with that many more machines of each market.

    E is infinite where that is not allowed.
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
    """Returns, (n, m), how many more machines of each market there is room for.

    They may be in any number of allocations.
    """
    instances = np.maximum(setting.limits.max_instances - held.live_count, 0)
    most = np.broadcast_to(instances[:, None], (len(instances), len(setting.markets)))
    if np.isinf(setting.limits.max_cores):
        return most
    left = setting.limits.max_cores - (held.count * setting.cores[held.market]).sum(axis=1)
    fitting: Codes = np.minimum(most, np.maximum(left[:, None] / setting.cores, 0).astype(np.int64))
    return fitting


def _tried_counts(most: int) -> Codes:
    """Returns, (c,), the counts to try, increasing to ``most``: all of them where they are few."""
    if most <= _COUNTS:
        return np.arange(1, max(most, 1) + 1)
    # Spaced in the logarithm: the best count matters by its ratio, not by one machine.
    return np.unique(np.rint(np.geomspace(1, most, _COUNTS)).astype(np.int64))
