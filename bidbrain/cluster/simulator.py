"""Simulates a cluster over a trace of jobs: the policies that run live, at the speed of arithmetic.

Time passes in rounds. The simulation knows a job from the next round after its arrival. It asks the policy
again when the set of jobs changes, after ``period_s``, and when a job reaches the rounds that are set aside
for its deadline (``deadline_admission.py``). A job that changes its type, or that did not run in the last
round, loses ``switch_s`` of this round to a checkpoint and a restart. A job that keeps its type loses
nothing. A worker is paid while a job runs on it.

``ideal`` leaves rounds out: between two events every job advances at thr(m, X), as if time could be cut as
finely as shares. The difference is the cost of rounds (Narayanan, Fig. 5.15).

Uses no clocks, clouds or chance: the trace says everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from bidbrain.cluster.deadline_admission import ActiveJobs, DeadlinePromises, TraceDemand
from bidbrain.cluster.policies.base import Policy
from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, Jobs, ShareProblem
from bidbrain.cluster.round_reservation import RoundClock
from bidbrain.cluster.rounds import FADE, ROUND_S, Combinations, Slot, choose_slots
from pricing_data.model.units import HOUR_S

_DONE: Final = 1e-9
"""Part of a job's steps that rounding may leave."""
_FORGOTTEN: Final = 100
"""Rounds after which the time that a pair ran together no longer counts."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Lists jobs in the order of their arrival; every array (n,).

    ``slo_s``: from arrival, infinite without.
    """

    arrival_s: Floats
    kind: Indices
    steps: Floats
    weight: Floats
    slo_s: Floats
    entity: Indices


@dataclass(frozen=True, slots=True, eq=False)
class SimulationSetup:
    """Holds what is the same for every policy.

    ``period_s``: seconds after which shares are computed anew even if no job came or went.
    """

    cluster: ClusterCapacity
    kinds: JobKinds
    entity_weight: tuple[float, ...] = (1.0,)
    round_s: float = ROUND_S
    switch_s: float = 5.0
    period_s: float = HOUR_S


@dataclass(frozen=True, slots=True, eq=False)
class SimulationResult:
    """Holds what became of the jobs, and what the run cost.

    ``end_s`` (n,): NaN for jobs that the simulation did not wait for. ``isolated_s`` (n,): seconds that the
    same work takes with 1/n of the cluster. ``switches``: (job, round) pairs that began with a restart.
    ``asked``: how often the policy's shares were used. ``promised`` (n,): jobs with a promised deadline.
    """

    end_s: Floats
    isolated_s: Floats
    dollars: float
    rounds: int
    switches: int
    asked: int
    promised: Flags


class Stuck(Exception):
    """Reports that no remaining job will ever run, and none is to come."""


def simulate_cluster(
    trace: Trace,
    setting: SimulationSetup,
    policy: Policy,
    *,
    ideal: bool = False,
    promises: bool = True,
    until: slice = slice(None),
) -> SimulationResult:
    """Runs the trace until its jobs ``until`` have ended. Raises Stuck, and what the policy raises.

    ``promises``: whether deadlines are promised; otherwise the policy does not see them.
    """
    return _Simulation(trace, setting, policy, ideal, promises).run(until)


@dataclass(slots=True, eq=False)
class _ReceivedTime:
    """Accounts for the seconds that jobs received on each type, older rounds for less; ``alone`` (n, k)."""

    alone: Floats
    rounds: int = 0
    """Rounds recorded so far."""
    # Pairs are many, so each fades only when it is read: by the rounds since its last entry.
    _together: dict[tuple[int, int], tuple[int, Floats]] = field(default_factory=dict)

    def record_round(self, active: Indices, running: list[tuple[int, int, int]], round_s: float) -> None:
        """Credits a round to the jobs and pairs that ran: (first, second or -1, type) each."""
        # The time of jobs that did not run fades too.
        self.alone[active] *= FADE
        for first, second, place in running:
            if second < 0:
                self.alone[first, place] += round_s
            else:
                had = self._of_pair((first, second)) * FADE
                had[place] += round_s
                self._together[first, second] = self.rounds + 1, had
        self.rounds += 1

    def of_combinations(self, active: Indices, combinations: Combinations) -> Floats:
        """Returns the time of every combination, shape (c, k)."""
        alone = self.alone[active]
        count = len(combinations.first) - len(alone)
        if not count:
            return alone
        # Single jobs come first among the combinations, then pairs.
        pairs = zip(
            active[combinations.first[-count:]].tolist(),
            active[combinations.second[-count:]].tolist(),
            strict=True,
        )
        return np.concatenate([alone, [self._of_pair(pair) for pair in pairs]])

    def forget_pairs(self, ended: Flags) -> None:
        """Forgets pairs with an ``ended`` job (n,), and those that have not run for long."""
        self._together = {
            pair: (at, had)
            for pair, (at, had) in self._together.items()
            if self.rounds - at < _FORGOTTEN and not ended[list(pair)].any()
        }

    def _of_pair(self, pair: tuple[int, int]) -> Floats:
        if pair not in self._together:
            return np.zeros(self.alone.shape[1])
        at, had = self._together[pair]
        return np.asarray(had * FADE ** (self.rounds - at))


class _Simulation:
    def __init__(
        self, trace: Trace, setting: SimulationSetup, policy: Policy, ideal: bool, promises: bool
    ) -> None:
        self._trace, self._setting, self._policy, self._ideal = trace, setting, policy, ideal
        count, types = len(trace.kind), len(setting.cluster.types)
        self._left = trace.steps.astype(np.float64)
        self._isolated, self._end = np.zeros(count), np.full(count, np.nan)
        self._received = _ReceivedTime(np.zeros((count, types)))
        rounds = None if ideal else RoundClock(setting.round_s, setting.switch_s)
        self._promises = DeadlinePromises(
            _trace_demand(trace, setting, promises), setting.cluster.workers, rounds
        )
        self._seen, self._known_pressed, self._pressed = 0, frozenset[int](), np.empty((0, 0), np.bool_)
        self._active = np.empty(0, np.int64)
        self._arrived, self._asked_at = 0, -np.inf
        self._dollars, self._switches, self._asked = 0.0, 0, 0
        self._ran: frozenset[tuple[int, int, int]] = frozenset()

    def run(self, until: slice) -> SimulationResult:
        now = 0.0
        while np.isnan(self._end[until]).any():
            changed = self._update_active(now)
            if not len(self._active):
                now, self._ran = self._known_from(float(self._trace.arrival_s[self._arrived])), frozenset()
                continue
            # A job newly pressed changes what the others can get, so it counts as an event.
            if self._update_pressed(now) or changed or now >= self._asked_at + self._setting.period_s:
                self._ask_policy(now)
                self._update_pressed(now)
            now = self._flow_to_event(now) if self._ideal else self._run_round(now)
        return SimulationResult(
            self._end,
            self._isolated,
            self._dollars,
            self._received.rounds,
            self._switches,
            self._asked,
            self._promises.given,
        )

    # ---- active jobs, and what they are promised -------------------------------------------------

    def _known_from(self, at: float) -> float:
        """Returns when a job that arrives ``at`` is first known."""
        return at if self._ideal else float(np.ceil(at / self._setting.round_s) * self._setting.round_s)

    def _update_active(self, now: float) -> bool:
        """Adds jobs that have arrived and drops those that are done; returns whether there were any."""
        known = int(np.searchsorted(self._trace.arrival_s, now, side="right"))
        stays = self._active[np.isnan(self._end[self._active])]
        changed = known > self._arrived or len(stays) < len(self._active)
        self._active = np.concatenate([stays, np.arange(self._arrived, known)])
        self._arrived = known
        return changed

    def _update_pressed(self, now: float) -> bool:
        """Finds the jobs that must run in the round that begins now; returns whether any is new."""
        self._pressed = self._promises.must_run_now(self._active_jobs(now))
        pressed = frozenset(self._active[self._pressed.any(axis=1)].tolist())
        known, self._known_pressed = self._known_pressed, pressed
        return not pressed <= known

    def _ask_policy(self, now: float) -> None:
        """Promises newcomers' deadlines as far as there is room, then computes new shares."""

        def ask(slo_s: Floats) -> frozenset[int]:
            self._problem = self._build_problem(now, slo_s)
            self._answer = self._policy.compute_shares(self._problem)
            number = dict(zip(self._problem.jobs.names, self._active.tolist(), strict=True))
            return frozenset(number[one.job] for one in self._answer.short)

        self._promises.admit_newcomers(self._active_jobs(now), np.arange(self._seen, self._arrived), ask)
        self._seen = self._arrived
        self._shares = self._answer.shares
        # Fixed until the next answer: 1/n of the cluster, n being the jobs there now.
        self._rate_alone = self._problem.isolated_throughput()
        self._combinations = Combinations.from_shares(self._shares)
        self._asked_at = now
        self._asked += 1
        self._received.forget_pairs(~np.isnan(self._end))

    def _active_jobs(self, now: float) -> ActiveJobs:
        return ActiveJobs(now, self._active, self._left[self._active])

    def _build_problem(self, now: float, slo_s: Floats) -> ShareProblem:
        """Returns the problem that the policy sees, with these deadlines."""
        trace, active = self._trace, self._active
        return ShareProblem(
            self._setting.cluster,
            self._setting.kinds,
            Jobs(
                tuple(f"job{job}" for job in active),
                trace.kind[active],
                trace.weight[active],
                self._left[active],
                now - trace.arrival_s[active],
                self._isolated[active],
                slo_s,
                trace.entity[active],
            ),
            np.asarray(self._setting.entity_weight),
        )

    # ---- time passes ---------------------------------------------------------------------------

    def _flow_to_event(self, now: float) -> float:
        """Advances all jobs to the next event, at the speed of their shares; returns when that is."""
        speed = self._problem.throughput(self._shares)
        left = self._left[self._active]
        ends = np.divide(left, speed, out=np.full(len(left), np.inf), where=speed > 0)
        arrivals = self._trace.arrival_s[self._arrived : self._arrived + 1]
        # No job moves and none is to come: the simulation would never end.
        if not np.isfinite(ends).any() and not len(arrivals):
            raise Stuck(f"{len(left)} jobs are left, and the policy gives time to none of them")
        until = min(now + ends.min(), self._asked_at + self._setting.period_s, *arrivals)
        self._advance_jobs(np.arange(len(left)), speed, np.full(len(left), until - now), now)
        self._dollars += self._problem.cost_per_hour(self._shares) * (until - now) / HOUR_S
        return float(until)

    def _run_round(self, now: float) -> float:
        """Runs one round, by Algorithm 2."""
        received = self._received.of_combinations(self._active, self._combinations)
        chosen = choose_slots(self._problem, self._combinations, received, self._pressed)
        if not chosen and self._arrived == len(self._trace.kind):
            raise Stuck(f"{len(self._active)} jobs are left, and the policy gives time to none of them")
        running = self._running_jobs(chosen)
        fresh = np.array([who not in self._ran for who in running], np.bool_)
        self._run_slots(now, chosen, fresh)
        self._received.record_round(self._active, running, self._setting.round_s)
        self._ran = frozenset(running)
        self._switches += int(fresh.sum())
        return now + self._setting.round_s

    def _run_slots(self, now: float, chosen: tuple[Slot, ...], fresh: Flags) -> None:
        """Applies a round to the jobs that run. A pair's rates are those of the pair until the round ends."""
        kinds, combinations = self._problem.kinds, self._combinations
        place = np.array([slot.type for slot in chosen], np.int64)
        slots = np.array([slot.chosen for slot in chosen], np.int64)
        lost = np.where(fresh, self._setting.switch_s, 0.0)
        busy = np.zeros(len(chosen))
        for mine, other in (
            (combinations.first[slots], combinations.second[slots]),
            (combinations.second[slots], combinations.first[slots]),
        ):
            runs = mine >= 0
            kind = self._problem.jobs.kind[mine[runs]]
            rate = kinds.rates[kind, place[runs]]
            if kinds.together is not None:
                beside = self._problem.jobs.kind[other[runs]]
                rate = np.where(other[runs] >= 0, kinds.together[kind, beside, place[runs]], rate)
            took = self._advance_jobs(mine[runs], rate, self._setting.round_s - lost[runs], now + lost[runs])
            # A pair's workers are paid until the later of the two ends.
            busy[runs] = np.maximum(busy[runs], took + lost[runs])
        workers = np.array([slot.workers for slot in chosen], np.float64)
        self._dollars += float(busy * workers @ self._setting.cluster.cost[place]) / HOUR_S

    def _advance_jobs(self, who: Indices, rate: Floats, seconds: Floats, since: Floats | float) -> Floats:
        """Moves jobs ``who`` (positions among the active) on for at most ``seconds``.

        Returns how long, (w,).
        """
        jobs = self._active[who]
        needed = np.divide(self._left[jobs], rate, out=np.full(len(jobs), np.inf), where=rate > 0)
        # A job that finishes within the round gives its workers back only when the round ends.
        took = np.minimum(seconds, needed)
        steps = took * rate
        self._left[jobs] = np.maximum(self._left[jobs] - steps, 0.0)
        # Time that the same steps would have taken with 1/n of the cluster.
        self._isolated[jobs] += steps / self._rate_alone[who]
        done = self._left[jobs] <= _DONE * self._trace.steps[jobs]
        self._end[jobs[done]] = (since + took)[done]
        return np.asarray(took)

    def _running_jobs(self, chosen: tuple[Slot, ...]) -> list[tuple[int, int, int]]:
        """Returns the first job, the second (-1: none) and the type of each slot, jobs by trace number."""
        slots = np.array([slot.chosen for slot in chosen], np.int64)
        second = self._combinations.second[slots]
        beside = np.where(second >= 0, self._active[second], -1)
        first = self._active[self._combinations.first[slots]]
        return list(zip(first.tolist(), beside.tolist(), [slot.type for slot in chosen], strict=True))


def _trace_demand(trace: Trace, setting: SimulationSetup, promises: bool) -> TraceDemand:
    """Returns what promises are made from."""
    kinds = setting.kinds
    rates = np.where(kinds.fitting_types(setting.cluster.workers), kinds.rates, 0.0)
    due_s = trace.arrival_s + (trace.slo_s if promises else np.inf)
    return TraceDemand(due_s, kinds.scale[trace.kind], rates[trace.kind])


def completion_s(trace: Trace, finished: SimulationResult) -> Floats:
    """Returns how long each job took from its arrival, (n,)."""
    return finished.end_s - trace.arrival_s


def finish_time_fairness(trace: Trace, finished: SimulationResult) -> Floats:
    """Returns rho of each job, (n,): its time over what 1/n of the cluster would have taken (5.4.2)."""
    return completion_s(trace, finished) / finished.isolated_s


def late_jobs(trace: Trace, finished: SimulationResult) -> Flags:
    """Returns which jobs ended after their deadlines, (n,)."""
    return np.asarray(completion_s(trace, finished) > trace.slo_s)
