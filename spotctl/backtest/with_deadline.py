"""Runs strategies kept within a job's deadline as they run live: on the control core, in virtual time.

Keeping a deadline rests on what a job has learned of its market, which the batches of ``bidbrain.backtest``
do not carry along. So these jobs run one by one, by the very code that runs a live job, from fewer starts
than the batches, and are settled by the ledger's accounting.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from multiprocessing import get_context
from typing import Final, TypeAlias

import numpy as np

from bidbrain.backtest.statistics import Outcomes
from bidbrain.bidding.decision_batch import Codes
from bidbrain.eviction.price.crossing_index import CrossingIndex
from bidbrain.eviction.price.price_crossing import PriceCrossing
from pricing_data.model.units import Instant
from spotctl.backtest.prepare import PreparedBacktest
from spotctl.control import entries as e
from spotctl.control.bidding import deadline_promise
from spotctl.control.billing import MICROS_PER_USD, instance_bills
from spotctl.control.drive import drive, start_run
from spotctl.control.evolve import initial_state
from spotctl.control.state import State
from spotctl.job.resolve import ResolvedJob
from spotctl.worlds.replay import replay_world

MOST_STARTS: Final = 80
"""Most starts of a backtest that run here, evenly chosen."""
_WORKERS: Final = 2
_SHARE: Final = 10
"""Jobs that a worker gets at once. As few jobs in all run in this process: starting another takes a
second.
"""

ProgressListener: TypeAlias = Callable[[int, int], None]
"""Receives how many jobs have been run, of how many."""


@dataclass(frozen=True, slots=True)
class _Share:
    """Groups jobs of one strategy."""

    strategy: str
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    """Describes the result of one job."""

    start: int
    micros: int
    finish_s: float
    """Infinite where the window, or the money, ended first."""
    on_demand_s: int
    spot_s: int
    free_s: int
    evictions: int


def starts_of(starts: Codes) -> Codes:
    """Returns at most ``MOST_STARTS`` of the sorted ``starts``, evenly chosen, as positions."""
    return np.unique(np.linspace(0, len(starts) - 1, min(len(starts), MOST_STARTS)).astype(np.int64))


def why_refused(prepared: PreparedBacktest) -> str:
    """Returns why a launch would refuse the job, and what would help; empty where it would not."""
    resolved = prepared.resolved
    promise = deadline_promise(
        initial_state(e.JobStarted(resolved.terms.start, resolved.terms), resolved.trace)
    )
    return "" if promise is None else promise.why_not


def run_with_deadline(
    prepared: PreparedBacktest, names: Sequence[str], told: ProgressListener
) -> dict[str, Outcomes]:
    """Runs the strategies ``names`` (of ``bidbrain.strategies.registry.LIVE``) from ``starts_of`` the starts.

    The job must have a deadline. ``told`` is called in this process as jobs are done.
    """
    starts = tuple(prepared.starts[starts_of(prepared.starts)].tolist())
    shares = [_Share(name, starts[n : n + _SHARE]) for name in names for n in range(0, len(starts), _SHARE)]
    run_share = partial(_run_share, prepared.resolved, Instant(prepared.tape.end))
    found: dict[str, list[_Job]] = {name: [] for name in names}
    done, total = 0, len(names) * len(starts)
    told(done, total)
    with closing(_map_shares(run_share, shares, alone=total <= _SHARE)) as results:
        for share, jobs in zip(shares, results, strict=True):
            found[share.strategy] += jobs
            done += len(jobs)
            told(done, total)
    return {name: _to_outcomes(jobs, prepared.job.deadline_s) for name, jobs in found.items()}


def _map_shares(
    run_share: Callable[[_Share], list[_Job]], shares: Sequence[_Share], *, alone: bool
) -> Generator[list[_Job], None, None]:
    """Yields results in order, as soon as each is known."""
    if alone:
        yield from map(run_share, shares)
        return
    with ProcessPoolExecutor(_WORKERS, get_context("spawn"), _end_when_interrupted) as pool:
        yield from pool.map(run_share, shares)


def _end_when_interrupted() -> None:
    """Ends a worker at once and silently: the parent, which Ctrl-C reaches too, reports the interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run_share(resolved: ResolvedJob, end: Instant, share: _Share) -> list[_Job]:
    terms, model = (
        replace(resolved.terms, objective=replace(resolved.terms.objective, strategy=share.strategy)),
        index_crossings(resolved),
    )
    jobs = []
    for begins in share.starts:
        state = run_job(replace(resolved, terms=replace(terms, start=Instant(begins))), model)
        jobs.append(_sum_job(state, end))
    return jobs


def index_crossings(resolved: ResolvedJob) -> PriceCrossing:
    """Builds the eviction model for all jobs over one trace: each uses the beginnings of the same series."""
    series = {tradable.market: resolved.trace.series(tradable.market) for tradable in resolved.terms.spot}
    return PriceCrossing(
        recorded={m: CrossingIndex.from_series(known) for m, known in series.items() if len(known)}
    )


def run_job(resolved: ResolvedJob, model: PriceCrossing) -> State:
    """Runs the job from its start until it is closed; returns its last state."""
    built = replay_world(resolved, asks=lambda: ())
    begun = e.JobStarted(resolved.terms.start, resolved.terms)
    state = start_run(begun, resolved.trace, _NoObserver(), _NoObserver(), resolved.capacity, model)
    return drive(state, built.world, _NoObserver(), _NoObserver())


class _NoObserver:
    """Watches and records nothing: the last state has a job's result."""

    def on_entry(self, state: State, entry: e.Entry) -> None:
        pass

    def append(self, entry: e.Entry) -> int:
        return 0

    def commit(self) -> None:
        pass


def _sum_job(state: State, end: Instant) -> _Job:
    start, over = state.terms.start, state.training.training_over_at
    done = over is not None and over <= end and state.work_left == 0
    micros, on_demand_s, spot_s, free_s = 0, 0, 0, 0
    for bill in instance_bills(state):
        ended = state.now if bill.instance.ended_at is None else bill.instance.ended_at
        for charge in bill.charges:
            ran_s = max(min(charge.end, ended) - charge.start, 0)
            micros += charge.amount
            if charge.refunded:
                free_s += ran_s
            elif bill.on_demand:
                on_demand_s += ran_s
            else:
                spot_s += ran_s
    finish_s = float(over - start) if done and over is not None else inf
    return _Job(start, micros, finish_s, on_demand_s, spot_s, free_s, state.recovery.evicted_allocations)


def _to_outcomes(jobs: Sequence[_Job], deadline_s: float | None) -> Outcomes:
    finish_s = np.array([job.finish_s for job in jobs])
    return Outcomes(
        start=np.array([job.start for job in jobs], dtype=np.int64),
        cost=np.array([job.micros / MICROS_PER_USD for job in jobs]),
        finish_s=finish_s,
        on_demand_s=np.array([float(job.on_demand_s) for job in jobs]),
        spot_s=np.array([float(job.spot_s) for job in jobs]),
        free_s=np.array([float(job.free_s) for job in jobs]),
        evictions=np.array([job.evictions for job in jobs], dtype=np.int64),
        late=finish_s > (inf if deadline_s is None else deadline_s),
    )
