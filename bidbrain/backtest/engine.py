"""Runs many jobs over one history in lockstep: each array operation moves every job to its own next event.

    n         jobs, each from a start of its own
    W         work, core-seconds; a job is done when W reaches ``job.work``

It does in arrays what the control core does one job at a time. Tests compare the two: the same decisions at
the same seconds, the same bill to the micro-dollar. It mirrors a run over a recorded trace
(``spotctl.control``, ``spotctl.worlds.world``, ``spotctl.engines``):

- decisions every two minutes from the training's start, three minutes before an hour ends, and at every
  warning: at one moment warnings come one allocation after the other, each with a decision of its own,
  unless the moment was one for decisions anyway;
- machines run ``boot_s`` after the request, join sigma later, stop working when warned or given up; each
  such loss costs everybody lambda; reliable machines idle in stage 3;
- a warning comes at the first price above the bid, the end ``notice_s`` later; a planned end is safe after
  ``DRAIN_S``, and a job that is done releases all it has.

The engine knows the future, as the market does; strategies see only a ``DecisionBatch``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.job import DRAIN_S, BacktestJob
from bidbrain.backtest.price_tape import NEVER, PriceTape
from bidbrain.backtest.progress import JobProgress
from bidbrain.backtest.reliable_tier import TierTerminationLog
from bidbrain.backtest.running_jobs import DecisionView, FitSurvivals, RunningJobs
from bidbrain.backtest.spot_provider import SpotProvider
from bidbrain.backtest.terminations import EndedAllocations, TerminationLog
from bidbrain.backtest.tier_requests import TierRequests
from bidbrain.bidding.decision_batch import Codes, MarketSetup
from bidbrain.bidding.decision_times import DECISION_PERIOD_S, RENEWAL_LEAD_S
from bidbrain.strategies.base import NO_REQUEST, ExchangingStrategy, PlacingStrategy, Strategy
from pricing_data.model.units import HOUR_S

_NAMES: Final = 10**8
"""Exceeds any position in the order of names (``_by_name``)."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """Holds what happened to n jobs."""

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
    """Runs ``job`` by ``strategy`` from each of ``starts`` (n,).

    Raises ValueError for a start outside of the tape's window.
    """
    if ((starts < tape.begin) | (starts >= tape.end)).any():
        raise ValueError(f"every start must lie within the prices, {tape.begin} to {tape.end}")
    batch = _Batch(strategy, setting, job, tape, beliefs, starts)
    while batch.step():
        pass
    return batch.collect_result()


class _Batch:
    """Runs the jobs that are not done yet; those that are done are written off."""

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
        self._join_s = math.ceil(setting.scaling.sigma_s)
        lead = job.boot_s + self._join_s if strategy.uses_reliable else 0
        size, starts = len(starts), starts.astype(np.int64)
        self._begins = starts + lead
        self._done_at = np.full(size, NEVER)
        self._evictions = np.zeros(size, np.int64)
        self._renewals = np.zeros(size, np.int64)
        self._requests = np.zeros(size, np.int64)
        self._ends, self._tier_ends = TerminationLog(), TierTerminationLog()
        self._provider = SpotProvider(tape, setting.rules, job.boot_s, size, len(setting.markets))
        placing = strategy if isinstance(strategy, PlacingStrategy) else None
        # Without placement the training begins at a known moment; the wait until then has no events.
        origin = self._begins if placing is None or job.restart is None else starts
        progress = JobProgress(job, strategy.recovery, setting.scaling.lambda_s, origin)
        self._jobs = RunningJobs(setting, strategy, progress)
        self._view = DecisionView(self._jobs, setting, tape, self._provider, beliefs, starts)
        self._placement: TierRequests | None = None
        if placing is not None and job.restart is not None:
            self._begins = np.full(size, NEVER)
            self._placement = TierRequests(
                placing,
                setting,
                job.restart,
                self._jobs,
                self._view,
                self._provider,
                job.boot_s,
                self._join_s,
            )
            self._placement.request_machines(np.arange(size))
        else:
            self._jobs.tier.joins_at = self._begins.copy()
            self._decide_requests(np.arange(size))

    # ---- time -----------------------------------------------------------------------------------

    def step(self) -> bool:
        """Moves every job to its next event and applies it; returns whether any job is left."""
        if not len(self._jobs):
            return False
        self._answer_refusals()
        rate = self._jobs.work_rates()
        finish = self._jobs.progress.finish_time(rate)
        renewal, event = self._next_events()
        until = np.minimum(finish, event)
        # Jobs that outlive the prices are cut at the tape's end and never count as done.
        over = until > self._tape.end
        self._jobs.progress.advance_to(rate, np.where(over, self._tape.end, until))
        done = over | (until == finish)
        self._done_at[self._jobs.number[done & ~over]] = until[done & ~over]
        self._jobs.places.clear_gone(self._jobs.now)
        # The order below is that of the control core: joins, warnings, renewals, requests, restarts.
        joined = self._begin_training(~done)
        training = ~done & ~self._jobs.tier.is_starting(self._jobs.now)
        alarm = training & self._on_alarm(renewal)
        warned = self._warn_jobs(~done, alarm)
        self._decide_renewals(np.flatnonzero(alarm))
        self._decide_requests(np.flatnonzero(alarm | (warned & training) | joined))
        self._restart_jobs(~done)
        self._write_off_done(done)
        return True

    def _next_events(self) -> tuple[Codes, Codes]:
        """Returns, (n,), when an hour is next decided upon, and the next event but the job's end."""
        places, now = self._jobs.places, self._jobs.now[:, None]
        staying = places.is_staying
        joins = np.where(staying & (places.works_from > now), places.works_from, NEVER)
        warnings = np.where(places.count > 0, places.warned_at, NEVER)
        renewals = np.where(staying, places.until - RENEWAL_LEAD_S, NEVER).min(axis=1)
        settled = self._jobs.are_settled(staying)
        periods = (self._jobs.now - self._begins[self._jobs.number]) // DECISION_PERIOD_S + 1
        grid = self._begins[self._jobs.number] + periods * DECISION_PERIOD_S
        event = np.minimum(np.minimum(joins, warnings).min(axis=1), renewals)
        event = np.minimum(event, self._jobs.tier.next_events(self._jobs.now))
        idle = settled | self._jobs.tier.is_starting(self._jobs.now)
        return renewals, np.minimum(event, np.where(idle, NEVER, grid))

    def _on_alarm(self, renewal: Codes) -> Flags:
        """Returns whether now is a moment for decisions in any case."""
        periods = (self._jobs.now - self._begins[self._jobs.number]) % DECISION_PERIOD_S
        alarm: Flags = (periods == 0) | (self._jobs.now == renewal)
        return alarm

    # ---- the reliable machines ------------------------------------------------------------------------

    def _begin_training(self, among: Flags) -> Flags:
        """Returns, (n,), jobs whose training begins now."""
        joined: Flags = among & (self._jobs.tier.joins_at == self._jobs.now)
        if self._placement is None:
            return np.zeros(len(among), np.bool_)
        # Only the first join begins the training; later ones follow a loss.
        first = np.flatnonzero(joined & (self._begins[self._jobs.number] == NEVER))
        self._begins[self._jobs.number[first]] = self._jobs.now[first]
        return joined

    def _restart_jobs(self, among: Flags) -> None:
        """Restarts jobs whose reliable machines end now from their checkpoints; they lose all others too."""
        if self._placement is None:
            return
        tier, now = self._jobs.tier, self._jobs.now
        self._placement.request_machines(np.flatnonzero(among & (tier.asks_at == now)))
        rows = np.flatnonzero(among & (tier.ends_at == now))
        if not len(rows):
            return
        self._tier_ends.add_ended(self._jobs.number[rows], tier, rows, now[rows], evicted=True)
        began = rows[tier.joins_at[rows] <= now[rows]]
        places = self._jobs.places
        held = np.zeros(places.count.shape, np.bool_)
        held[began] = (places.count[began] > 0) & ~places.refused[began]
        # Machines given up are already in the log, unless their eviction came first.
        unwritten = (places.leaves_at == NEVER) | (places.warned_at != NEVER)
        at_rows, at = np.nonzero(held & unwritten)
        self._write_off(at_rows, at, now[at_rows], evicted=False)
        places.count[began] = 0
        places.refused[began] = False
        self._placement.roll_back(began)
        self._placement.request_machines(rows)

    # ---- machines come and go ---------------------------------------------------------------------

    def _warn_jobs(self, among: Flags, alarm: Flags) -> Flags:
        """Returns, (n,), whether the provider warns now that it evicts machines."""
        places = self._jobs.places
        reliable: Flags = among & (self._jobs.tier.warned_at == self._jobs.now)
        self._jobs.tier.warned_at[reliable] = NEVER
        self._evictions[self._jobs.number[reliable]] += 1
        due = among[:, None] & (places.count > 0) & (places.warned_at == self._jobs.now[:, None])
        due &= ~(reliable & ~alarm)[:, None]
        rank = _by_name(places.number)
        # Between decision moments each warning is a fact of its own, in the order of the allocations' names.
        first = np.where(due, rank, NEVER).min(axis=1)
        taken = due & (alarm[:, None] | (rank == first[:, None]))
        rows, at = np.nonzero(taken)
        if not len(rows):
            return reliable
        stayed = places.leaves_at[rows, at] == NEVER
        end = places.warned_at[rows, at] + self._setting.rules.notice_s
        self._write_off(rows, at, end, evicted=True)
        self._evictions += np.bincount(self._jobs.number[rows], minlength=len(self._evictions))
        lost = rows[stayed & (places.runs_at[rows, at] <= self._jobs.now[rows])]
        self._jobs.progress.lose_unsaved(lost)
        places.count[rows, at] = 0
        reliable[rows] = True
        return reliable

    def _decide_renewals(self, rows: Codes) -> None:
        """Renews or gives up every allocation of ``rows`` whose hour ends, the soonest first."""
        while len(rows):
            places = self._jobs.places.select(rows)
            due = places.is_staying & (places.until - RENEWAL_LEAD_S <= self._jobs.now[rows][:, None])
            order = np.where(due, places.until * _NAMES + _by_name(places.number), NEVER)
            place = order.argmin(axis=1)
            asked = due.any(axis=1)
            rows, place = rows[asked], place[asked]
            if not len(rows):
                return
            # One allocation at a time: each answer changes the footprint that the next one sees.
            stays = self._strategy.choose_renewals(self._setting, self._view.decision_batch(rows), place)
            self._jobs.places.until[rows[stays], place[stays]] += HOUR_S
            self._renewals[self._jobs.number[rows[stays]]] += 1
            self._give_up(rows[~stays], place[~stays])

    def _give_up(self, rows: Codes, place: Codes) -> None:
        places, safe = self._jobs.places, self._jobs.now[rows] + DRAIN_S
        places.leaves_at[rows, place] = safe
        self._jobs.progress.pause_jobs(rows)
        # A machine warned before it is safe to end is evicted, not released.
        released = places.warned_at[rows, place] >= safe
        rows, place = rows[released], place[released]
        places.warned_at[rows, place] = NEVER
        self._write_off(rows, place, safe[released], evicted=False)

    def _decide_requests(self, rows: Codes) -> None:
        """Releases and requests what the strategy wants of ``rows`` now."""
        if not len(rows):
            return
        settled = self._jobs.are_settled(self._jobs.places.is_staying)
        rows = rows[~settled[rows]]
        while len(rows):
            self._give_up_dearer(rows)
            wanted = self._strategy.choose_requests(self._setting, self._view.decision_batch(rows))
            some = wanted.market != NO_REQUEST
            self._request_machines(rows[some], wanted.market[some], wanted.count[some], wanted.bid[some])
            # Rows whose request asked for a follow-up decide again at the same moment.
            rows = rows[some & wanted.again]

    def _give_up_dearer(self, rows: Codes) -> None:
        """Releases machines that others are to replace, one allocation after the other."""
        while self._exchanges is not None and len(rows):
            place = self._exchanges.give_up(self._setting, self._view.decision_batch(rows))
            goes = place != NO_REQUEST
            rows, place = rows[goes], place[goes]
            self._give_up(rows, place)

    def _request_machines(self, rows: Codes, market: Codes, count: Codes, bid: Floats) -> None:
        if not len(rows):
            return
        place = self._jobs.places.empty_place(rows)
        places, now = self._jobs.places, self._jobs.now[rows]
        refused = self._provider.is_refused(market, now, bid)
        self._requests[self._jobs.number[rows]] += 1
        places.market[rows, place] = market
        places.count[rows, place] = count
        places.bid[rows, place] = bid
        places.runs_at[rows, place] = now + self._job.boot_s
        places.works_from[rows, place] = np.where(refused, NEVER, now + self._job.boot_s + self._join_s)
        places.warned_at[rows, place] = np.where(
            refused, NEVER, self._provider.warning_time(market, now, bid)
        )
        places.until[rows, place] = now + self._job.boot_s + HOUR_S
        places.leaves_at[rows, place] = NEVER
        places.number[rows, place] = self._requests[self._jobs.number[rows]]
        places.refused[rows, place] = refused

    def _answer_refusals(self) -> None:
        """Reports refusals to jobs, one by one; each job decides anew at once."""
        # After all else of the moment, as in the control core: the provider answers later than it warns.
        while self._jobs.places.refused.any():
            places, now = self._jobs.places, self._jobs.now
            warned = ((places.count > 0) & (places.warned_at == now[:, None])).any(axis=1)
            rows = np.flatnonzero(places.refused.any(axis=1) & ~warned)
            if not len(rows):
                return
            place = np.where(places.refused[rows], places.number[rows], NEVER).argmin(axis=1)
            places.count[rows, place] = 0
            places.refused[rows, place] = False
            market = places.market[rows, place]
            self._provider.rest_market(self._jobs.number[rows], market, now[rows])
            self._decide_requests(rows)

    # ---- what is left ---------------------------------------------------------------------------

    def _write_off_done(self, done: Flags) -> None:
        """Writes off the jobs that are ``done``, and all that they still hold."""
        if not done.any():
            return
        places = self._jobs.places
        unwritten = (places.leaves_at == NEVER) | (places.warned_at != NEVER)
        rows, at = np.nonzero(done[:, None] & (places.count > 0) & unwritten & ~places.refused)
        self._write_off(rows, at, self._jobs.now[rows], evicted=False)
        if self._placement is not None:
            over = np.flatnonzero(done)
            number, now = self._jobs.number[over], self._jobs.now[over]
            self._tier_ends.add_ended(number, self._jobs.tier, over, now, evicted=False)
        self._jobs.keep_rows(np.flatnonzero(~done))

    def _write_off(self, rows: Codes, at: Codes, end: Codes, *, evicted: bool) -> None:
        """Logs that machines end at ``end``, or with their reliable machines if these end before."""
        # The end of the reliable machines may lie in the future; it is known from their request on.
        last = self._jobs.tier.ends_at[rows]
        # Two calls, because the log records one reason per call.
        for early in (True, False):
            some = (last < end) == early
            until = np.minimum(end, last)[some]
            number, where = self._jobs.number[rows[some]], (rows[some], at[some])
            self._ends.add_ended(number, self._jobs.places, where, until, evicted and not early)

    def collect_result(self) -> BatchResult:
        """Returns everything after the last step, with ends no later than the job's."""
        finish = np.where(self._done_at == NEVER, self._tape.end, self._done_at)
        ended = self._ends.ended_allocations(finish, self._job.boot_s)
        tier = None
        if self._placement is not None:
            tier = self._tier_ends.ended_allocations(self._setting.reliable.count, self._job.boot_s)
        return BatchResult(self._begins, self._done_at, ended, self._evictions, self._renewals, tier)


def _by_name(number: Codes) -> Codes:
    """Returns the order of allocations as their names sort ("s10" before "s2"): by digits, then by length.

    For numbers of up to six digits: the digits as if there were six, then how many there are.
    """
    digits = np.floor(np.log10(np.maximum(number, 1))).astype(np.int64)
    return number * 10 ** (5 - digits) * 10 + digits
