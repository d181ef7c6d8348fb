"""Runs many jobs over one history in lockstep: each array operation moves every job to its own next event.

    n         jobs, each from a start of its own
    W         work, core-seconds; a job is done when W reaches ``job.work``

It does in arrays what the control core does, and a test holds it to that: the same decisions at the same
seconds, the same bill to the micro-dollar. It mirrors a run over a recorded trace (``spotctl.control``,
``spotctl.worlds.world``, ``spotctl.engines``):

- decisions every two minutes from the training's start, three minutes before an hour ends, and at every
  warning: at one moment warnings come one allocation after the other, each with a decision of its own,
  unless the moment was one for decisions anyway;
- machines run ``boot_s`` after the request, join sigma later, stop working when warned or given up; each
  such loss costs everybody lambda; reliable machines idle in stage 3;
- a warning comes at the first price above the bid, the end ``notice_s`` later; a planned end is safe after
  ``DRAIN_S``, and a job that is done releases all it has.

The engine knows the future, as the market does; strategies are shown ``DecisionBatch``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.footprint_table import FootprintTable
from bidbrain.backtest.job import DRAIN_S, BacktestJob
from bidbrain.backtest.price_tape import NEVER, PriceTape
from bidbrain.backtest.progress import JobProgress
from bidbrain.backtest.reliable_tier import TierTable, TierTerminationLog
from bidbrain.backtest.terminations import EndedAllocations, TerminationLog
from bidbrain.bidding.decision_batch import Codes, DecisionBatch, FootprintBatch, MarketSetup, SurvivalBatch
from bidbrain.bidding.decision_times import DECISION_PERIOD_S, REFUSED_REST_S, RENEWAL_LEAD_S
from bidbrain.strategies.base import NO_REQUEST, ExchangingStrategy, PlacingStrategy, Strategy
from bidbrain.strategies.reliable_tier import MAX_FAILED_RESTARTS
from pricing_data.model.units import HOUR_S

FitSurvivals: TypeAlias = Callable[[Codes], SurvivalBatch]
"""Maps the moments at which n jobs last fitted their models to what they believe of evictions."""

REFIT_S: Final = HOUR_S
"""A running job fits its model every hour, from its start on."""
_NAMES: Final = 10**8
"""Exceeds any position in the order of names (``_by_name``)."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """Says what n jobs did."""

    begins: Codes
    """(n,): when the training could begin."""
    done_at: Codes
    """(n,): ``NEVER`` where the prices ended first."""
    ended: EndedAllocations
    evictions: Codes
    """(n,): allocations that the provider evicted."""
    renewals: Codes
    """(n,): hours that were renewed."""
    tier: EndedAllocations | None = None
    """The reliable machines, where the strategy places them; None: on demand throughout."""


def run_batch(
    strategy: Strategy,
    setting: MarketSetup,
    job: BacktestJob,
    tape: PriceTape,
    beliefs: FitSurvivals,
    starts: Codes,
) -> BatchResult:
    """Runs ``job`` from each of ``starts`` (n,), which lie in the tape's window, by ``strategy``."""
    if ((starts < tape.begin) | (starts >= tape.end)).any():
        raise ValueError(f"every start must lie within the prices, {tape.begin} to {tape.end}")
    batch = _Batch(strategy, setting, job, tape, beliefs, starts)
    while batch.step():
        pass
    return batch.collect_result()


class _Batch:
    """Holds the jobs that are not done yet, as columns; those that are done are written off."""

    def __init__(
        self,
        strategy: Strategy,
        setting: MarketSetup,
        job: BacktestJob,
        tape: PriceTape,
        beliefs: FitSurvivals,
        starts: Codes,
    ) -> None:
        self._strategy, self._setting, self._job, self._tape = strategy, setting, job, tape
        by_the_second = setting.rules.quantum_s < HOUR_S
        self._exchanges = strategy if isinstance(strategy, ExchangingStrategy) and by_the_second else None
        self._beliefs = beliefs
        self._join_s = math.ceil(setting.scaling.sigma_s)
        lead = job.boot_s + self._join_s if strategy.uses_reliable else 0
        placing = strategy if isinstance(strategy, PlacingStrategy) and job.restart is not None else None
        size = len(starts)
        self._starts = starts.astype(np.int64)
        self._begins = self._starts + lead
        self._placing = placing
        self._tier, self._tier_ends = TierTable.for_jobs(size), TierTerminationLog()
        self._done_at = np.full(size, NEVER)
        self._evictions = np.zeros(size, np.int64)
        self._renewals = np.zeros(size, np.int64)
        self._requests = np.zeros(size, np.int64)
        self._ends = TerminationLog()
        self._rests_until = np.zeros((size, len(setting.markets)), np.int64)
        # columns of the jobs under way
        self._jobs = np.arange(size)
        origin = self._begins if placing is None else self._starts
        self._progress = JobProgress(job, strategy.recovery, setting.scaling.lambda_s, origin)
        self._places = FootprintTable.for_jobs(size)
        if placing is None:
            self._tier.joins_at = self._begins.copy()
            self._decide_requests(np.arange(size))
        else:
            self._begins = np.full(size, NEVER)
            self._place_reliable(np.arange(size))

    # ---- time -----------------------------------------------------------------------------------

    def step(self) -> bool:
        """Moves every job to its next event and applies it; returns whether any job is left."""
        if not len(self._jobs):
            return False
        self._answer_refusals()
        rate = self._work_rates()
        finish = self._progress.finish_time(rate)
        renewal, event = self._next_events()
        until = np.minimum(finish, event)
        # Jobs that outlive the prices are cut at the tape's end and never count as done.
        over = until > self._tape.end
        self._progress.advance_to(rate, np.where(over, self._tape.end, until))
        done = over | (until == finish)
        self._done_at[self._jobs[done & ~over]] = until[done & ~over]
        self._clear_places()
        joined = self._begin_training(~done)
        training = ~done & ~self._tier.is_starting(self._progress.now)
        alarm = training & self._on_alarm(renewal)
        warned = self._warn_jobs(~done, alarm)
        self._decide_renewals(np.flatnonzero(alarm))
        self._decide_requests(np.flatnonzero(alarm | (warned & training) | joined))
        self._restart_jobs(~done)
        self._write_off_done(done)
        return True

    def _next_events(self) -> tuple[Codes, Codes]:
        """Returns, (n,), when an hour is next decided upon, and the next event but the job's end."""
        places, now = self._places, self._progress.now[:, None]
        staying = places.is_staying
        joins = np.where(staying & (places.works_from > now), places.works_from, NEVER)
        warnings = np.where(places.count > 0, places.warned_at, NEVER)
        renewals = np.where(staying, places.until - RENEWAL_LEAD_S, NEVER).min(axis=1)
        settled = self._strategy.needs_nothing(self._setting, self._held_counts(staying))
        periods = (self._progress.now - self._begins[self._jobs]) // DECISION_PERIOD_S + 1
        grid = self._begins[self._jobs] + periods * DECISION_PERIOD_S
        event = np.minimum(np.minimum(joins, warnings).min(axis=1), renewals)
        event = np.minimum(event, self._tier.next_events(self._progress.now))
        idle = settled | self._tier.is_starting(self._progress.now)
        return renewals, np.minimum(event, np.where(idle, NEVER, grid))

    def _on_alarm(self, renewal: Codes) -> Flags:
        """Returns whether now is a moment for decisions in any case."""
        periods = (self._progress.now - self._begins[self._jobs]) % DECISION_PERIOD_S
        alarm: Flags = (periods == 0) | (self._progress.now == renewal)
        return alarm

    # ---- work -----------------------------------------------------------------------------------

    def _work_rates(self) -> Floats:
        """Returns, (n,), core-seconds of work per second."""
        setting, places = self._setting, self._places
        working = np.where(
            places.is_staying & (places.works_from <= self._progress.now[:, None]), places.count, 0
        )
        instances = working.sum(axis=1).astype(np.float64)
        cores = (working * setting.cores[places.market]).sum(axis=1)
        if self._strategy.uses_reliable:
            there = ~self._tier.is_starting(self._progress.now)
            works = setting.scaling.reliable_work(instances, setting.reliable.count) & there
            on_spot = self._tier.market != NO_REQUEST
            each = np.where(on_spot, setting.cores[self._tier.market], setting.reliable.cores)
            instances = instances + works * setting.reliable.count
            cores = cores + works * setting.reliable.count * each
        return self._progress.work_rate(cores * setting.scaling.batch_efficiency(instances))

    # ---- the reliable machines ------------------------------------------------------------------------

    def _place_reliable(self, rows: Codes) -> None:
        """Requests the reliable machines of ``rows``, elsewhere after a refusal, until all are granted."""
        tier, boot_s = self._tier, self._job.boot_s
        while len(rows):
            market, bid, waits = self._wanted_placement(rows)
            self._wait_for_capacity(rows[waits])
            rows, market, bid = rows[~waits], market[~waits], bid[~waits]
            now, spot = self._progress.now[rows], market != NO_REQUEST
            code = np.maximum(market, 0)
            refused = spot & self._is_refused(code, now, bid)
            self._rests_until[self._jobs[rows[refused]], market[refused]] = now[refused] + REFUSED_REST_S
            warned = np.where(spot, self._warning_time(code, now, bid), NEVER)
            tier.market[rows], tier.bid[rows] = market, bid
            tier.runs_at[rows] = now + boot_s
            tier.joins_at[rows] = now + boot_s + self._join_s
            tier.asks_at[rows] = NEVER
            tier.warned_at[rows] = warned
            tier.ends_at[rows] = np.where(warned == NEVER, NEVER, warned + self._setting.rules.notice_s)
            rows = rows[refused]

    def _wait_for_capacity(self, rows: Codes) -> None:
        """Waits where no market has a machine: until one has rested, or a price has changed."""
        tier, now = self._tier, self._progress.now[rows][:, None]
        rests = self._rests_until[self._jobs[rows]]
        step = self._tape.step_at(np.arange(rests.shape[1]), now)
        asks = np.minimum(np.where(rests > now, rests, NEVER), self._tape.times[step + 1])
        tier.asks_at[rows] = asks.min(axis=1)
        for moments in (tier.joins_at, tier.runs_at, tier.warned_at, tier.ends_at):
            moments[rows] = NEVER

    def _wanted_placement(self, rows: Codes) -> tuple[Codes, Floats, Flags]:
        assert self._placing is not None
        assert self._job.restart is not None
        found = self._placing.place_reliable(self._setting, self._decision_batch(rows), self._job.restart)
        spot = self._tier.failed_restarts[rows] < MAX_FAILED_RESTARTS
        return np.where(spot, found.market, NO_REQUEST), np.where(spot, found.bid, np.inf), found.waits & spot

    def _begin_training(self, among: Flags) -> Flags:
        """Returns, (n,), jobs whose training begins now."""
        joined: Flags = among & (self._tier.joins_at == self._progress.now)
        if self._placing is None:
            return np.zeros(len(among), np.bool_)
        # Only the first join begins the training; later ones follow a loss.
        first = np.flatnonzero(joined & (self._begins[self._jobs] == NEVER))
        self._begins[self._jobs[first]] = self._progress.now[first]
        return joined

    def _restart_jobs(self, among: Flags) -> None:
        """Restarts jobs whose reliable machines end now from their checkpoints; they lose all others too."""
        tier, now = self._tier, self._progress.now
        self._place_reliable(np.flatnonzero(among & (tier.asks_at == now)))
        rows = np.flatnonzero(among & (tier.ends_at == now))
        if not len(rows):
            return
        self._tier_ends.add_ended(self._jobs[rows], tier, rows, now[rows], evicted=True)
        began = rows[tier.joins_at[rows] <= now[rows]]
        places = self._places
        held = np.zeros(places.count.shape, np.bool_)
        held[began] = (places.count[began] > 0) & ~places.refused[began]
        unwritten = (places.leaves_at == NEVER) | (places.warned_at != NEVER)
        at_rows, at = np.nonzero(held & unwritten)
        self._write_off(at_rows, at, now[at_rows], evicted=False)
        places.count[began] = 0
        places.refused[began] = False
        self._roll_back(began)
        self._place_reliable(rows)

    def _roll_back(self, rows: Codes) -> None:
        """Undoes work since the newest checkpoint."""
        assert self._job.restart is not None
        tier, every = self._tier, max(self._job.restart.clocks, 1)
        reached = np.maximum(self._progress.clocks_done(rows) - 1, 0) // every * every
        kept = np.maximum(tier.checkpoint_clock[rows], reached)
        tier.failed_restarts[rows] = np.where(
            kept <= tier.began_from[rows], tier.failed_restarts[rows] + 1, 0
        )
        tier.checkpoint_clock[rows], tier.began_from[rows] = kept, kept
        self._progress.restart_from(rows, kept)

    # ---- machines come and go ---------------------------------------------------------------------

    def _clear_places(self) -> None:
        """Empties places of machines that were given up and are gone."""
        self._places.count[self._places.leaves_at <= self._progress.now[:, None]] = 0

    def _warn_jobs(self, among: Flags, alarm: Flags) -> Flags:
        """Returns, (n,), whether the provider warns now that it evicts machines."""
        places = self._places
        reliable: Flags = among & (self._tier.warned_at == self._progress.now)
        self._tier.warned_at[reliable] = NEVER
        self._evictions[self._jobs[reliable]] += 1
        due = among[:, None] & (places.count > 0) & (places.warned_at == self._progress.now[:, None])
        due &= ~(reliable & ~alarm)[:, None]
        rank = _by_name(places.number)
        # Outside decision moments warnings are told one at a time, in the order of the allocations' names.
        first = np.where(due, rank, NEVER).min(axis=1)
        taken = due & (alarm[:, None] | (rank == first[:, None]))
        rows, at = np.nonzero(taken)
        if not len(rows):
            return reliable
        stayed = places.leaves_at[rows, at] == NEVER
        end = places.warned_at[rows, at] + self._setting.rules.notice_s
        self._write_off(rows, at, end, evicted=True)
        self._evictions += np.bincount(self._jobs[rows], minlength=len(self._evictions))
        lost = rows[stayed & (places.runs_at[rows, at] <= self._progress.now[rows])]
        self._progress.lose_unsaved(lost)
        places.count[rows, at] = 0
        reliable[rows] = True
        return reliable

    def _decide_renewals(self, rows: Codes) -> None:
        """Asks about every allocation of ``rows`` whose hour ends, the soonest first, one at a time."""
        while len(rows):
            places = self._places.select(rows)
            due = places.is_staying & (places.until - RENEWAL_LEAD_S <= self._progress.now[rows][:, None])
            order = np.where(due, places.until * _NAMES + _by_name(places.number), NEVER)
            place = order.argmin(axis=1)
            asked = due.any(axis=1)
            rows, place = rows[asked], place[asked]
            if not len(rows):
                return
            # Asked anew for every allocation: each answer changes the footprint that the next one sees.
            stays = self._strategy.choose_renewals(self._setting, self._decision_batch(rows), place)
            self._places.until[rows[stays], place[stays]] += HOUR_S
            self._renewals[self._jobs[rows[stays]]] += 1
            self._give_up(rows[~stays], place[~stays])

    def _give_up(self, rows: Codes, place: Codes) -> None:
        places, safe = self._places, self._progress.now[rows] + DRAIN_S
        places.leaves_at[rows, place] = safe
        self._progress.pause_jobs(rows)
        # A machine warned before it is safe to end is evicted, not released.
        released = places.warned_at[rows, place] >= safe
        rows, place = rows[released], place[released]
        places.warned_at[rows, place] = NEVER
        self._write_off(rows, place, safe[released], evicted=False)

    def _decide_requests(self, rows: Codes) -> None:
        """Asks what ``rows`` should let go and acquire now."""
        if not len(rows):
            return
        settled = self._strategy.needs_nothing(self._setting, self._held_counts(self._places.is_staying))
        rows = rows[~settled[rows]]
        while len(rows):
            self._give_up_dearer(rows)
            wanted = self._strategy.choose_requests(self._setting, self._decision_batch(rows))
            some = wanted.market != NO_REQUEST
            self._request_machines(rows[some], wanted.market[some], wanted.count[some], wanted.bid[some])
            # Rows whose request asked for a follow-up decide again at the same moment.
            rows = rows[some & wanted.again]

    def _give_up_dearer(self, rows: Codes) -> None:
        """Releases machines that others are to replace, one allocation after the other."""
        while self._exchanges is not None and len(rows):
            place = self._exchanges.give_up(self._setting, self._decision_batch(rows))
            goes = place != NO_REQUEST
            rows, place = rows[goes], place[goes]
            self._give_up(rows, place)

    def _request_machines(self, rows: Codes, market: Codes, count: Codes, bid: Floats) -> None:
        if not len(rows):
            return
        place = self._places.empty_place(rows)
        places, now = self._places, self._progress.now[rows]
        refused = self._is_refused(market, now, bid)
        self._requests[self._jobs[rows]] += 1
        places.market[rows, place] = market
        places.count[rows, place] = count
        places.bid[rows, place] = bid
        places.runs_at[rows, place] = now + self._job.boot_s
        places.works_from[rows, place] = np.where(refused, NEVER, now + self._job.boot_s + self._join_s)
        places.warned_at[rows, place] = np.where(refused, NEVER, self._warning_time(market, now, bid))
        places.until[rows, place] = now + self._job.boot_s + HOUR_S
        places.leaves_at[rows, place] = NEVER
        places.number[rows, place] = self._requests[self._jobs[rows]]
        places.refused[rows, place] = refused

    def _is_refused(self, market: Codes, now: Codes, bid: Floats) -> Flags:
        """Returns whether requests are refused.

        For lack of capacity, or because the bid is below the price.
        """
        refused = ~self._tape.capacity.has_capacity(market, now)
        if self._setting.rules.cleared_by_bid:
            refused |= self._tape.price_at(market, now) > bid
        return refused & np.isfinite(bid)

    def _answer_refusals(self) -> None:
        """Tells jobs of refusals, after all else of the moment, one by one; each decides anew at once."""
        while self._places.refused.any():
            places, now = self._places, self._progress.now
            warned = ((places.count > 0) & (places.warned_at == now[:, None])).any(axis=1)
            rows = np.flatnonzero(places.refused.any(axis=1) & ~warned)
            if not len(rows):
                return
            place = np.where(places.refused[rows], places.number[rows], NEVER).argmin(axis=1)
            places.count[rows, place] = 0
            places.refused[rows, place] = False
            market = places.market[rows, place]
            self._rests_until[self._jobs[rows], market] = now[rows] + REFUSED_REST_S
            self._decide_requests(rows)

    def _warning_time(self, market: Codes, now: Codes, bid: Floats) -> Codes:
        """Returns when a machine requested now will be warned: at a price above its bid, or for its age."""
        rules, spot = self._setting.rules, np.isfinite(bid)
        warned = self._tape.capacity.taken_at(market, now)
        if rules.cleared_by_bid:
            warned = np.minimum(warned, self._tape.first_above(market, now, bid))
        if rules.max_lifetime_s is not None:
            warned = np.minimum(warned, now + self._job.boot_s + rules.max_lifetime_s - rules.notice_s)
        return np.where(spot, warned, NEVER)

    # ---- what strategies are shown ------------------------------------------------------------------

    def _held_counts(self, staying: Flags) -> FootprintBatch:
        """Returns footprints for ``Strategy.needs_nothing``.

        Which machines they hold, and nothing that time changes.
        """
        places = self._places
        count, nothing = np.where(staying, places.count, 0), np.zeros(places.count.shape)
        return FootprintBatch(
            places.market, count, places.bid, nothing, nothing, nothing, np.isinf(places.bid)
        )

    def _decision_batch(self, rows: Codes) -> DecisionBatch:
        places, now = self._places.select(rows), self._progress.now[rows]
        # The last refit of each job: hourly, counted from its own start.
        fitted = now - (now - self._starts[self._jobs[rows]]) % REFIT_S
        prices = self._tape.price_at(np.arange(len(self._setting.markets)), now[:, None])
        return DecisionBatch(
            now=now,
            prices=prices,
            open=np.isfinite(prices) & (self._rests_until[self._jobs[rows]] <= now[:, None]),
            held=self._footprint_batch(places, now[:, None]),
            work_left=self._progress.work_left(rows),
            survivals=self._beliefs(fitted),
        )

    def _footprint_batch(self, places: FootprintTable, now: Codes) -> FootprintBatch:
        age = np.maximum(now - places.runs_at, 0)
        runs = places.runs_at <= now
        on_demand = np.isinf(places.bid)
        spot = self._tape.price_at(places.market, np.where(runs, now - age % HOUR_S, now))
        return FootprintBatch(
            market=places.market,
            count=np.where(places.is_staying, places.count, 0),
            bid=places.bid,
            price=np.where(on_demand, self._setting.on_demand[places.market], spot),
            left_s=np.where(runs, places.until - now, HOUR_S).astype(np.float64),
            age_s=age.astype(np.float64),
            on_demand=on_demand,
        )

    # ---- what is left ---------------------------------------------------------------------------

    def _write_off_done(self, done: Flags) -> None:
        """Writes off the jobs that are ``done``, and all that they still hold."""
        if not done.any():
            return
        places = self._places
        unwritten = (places.leaves_at == NEVER) | (places.warned_at != NEVER)
        rows, at = np.nonzero(done[:, None] & (places.count > 0) & unwritten & ~places.refused)
        self._write_off(rows, at, self._progress.now[rows], evicted=False)
        over = np.flatnonzero(done) if self._placing is not None else np.empty(0, np.int64)
        self._tier_ends.add_ended(self._jobs[over], self._tier, over, self._progress.now[over], evicted=False)
        stay = np.flatnonzero(~done)
        self._tier = self._tier.select(stay)
        self._jobs = self._jobs[stay]
        self._progress.keep_rows(stay)
        self._places = self._places.select(stay)

    def _write_off(self, rows: Codes, at: Codes, end: Codes, *, evicted: bool) -> None:
        """Writes machines off by ``end``, but no later than their reliable machines end.

        Nothing outlives the reliable machines. Their end may lie in the future, but is known here.
        """
        last = self._tier.ends_at[rows]
        # Two calls, because the log records one reason per call.
        for early in (True, False):
            some = (last < end) == early
            until = np.minimum(end, last)[some]
            self._ends.add_ended(
                self._jobs[rows[some]], self._places, (rows[some], at[some]), until, evicted and not early
            )

    def collect_result(self) -> BatchResult:
        """Returns everything after the last step, with ends no later than the job's."""
        finish = np.where(self._done_at == NEVER, self._tape.end, self._done_at)
        ended = self._ends.ended_allocations(finish, self._job.boot_s)
        tier = None
        if self._placing is not None:
            tier = self._tier_ends.ended_allocations(self._setting.reliable.count, self._job.boot_s)
        return BatchResult(self._begins, self._done_at, ended, self._evictions, self._renewals, tier)


def _by_name(number: Codes) -> Codes:
    """Returns the order of allocations as their names sort ("s10" before "s2"): by digits, then by length.

    For numbers of up to six digits: the digits as if there were six, then how many there are.
    """
    digits = np.floor(np.log10(np.maximum(number, 1))).astype(np.int64)
    return number * 10 ** (5 - digits) * 10 + digits
