"""Implements baselines for Gavel's policies: blind to types, isolated, matching, packing by trial.

Source: Narayanan 5.4.1 (isolated) and 5.7; AlloX: Le et al., EuroSys 2020; Gandiva: Xiao et al., OSDI 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from bidbrain.cluster.policies.base import Answer, Policy, list_unrunnable
from bidbrain.cluster.policies.problem import ShareProblem, Shares
from bidbrain.cluster.solver import LinearProgram, solve


@dataclass(frozen=True, slots=True)
class Agnostic:
    """Applies ``policy`` as if all workers were of type ``reference``: the blind twin of every policy.

    The policy says how much time each job has. A scheduler that cannot tell types apart gives it on whichever
    are free, so the time is spread over the types that can hold the job in proportion to their workers.
    """

    policy: Policy
    reference: int

    def compute_shares(self, problem: ShareProblem) -> Answer:
        answer = self.policy.compute_shares(problem.without_types(self.reference))
        allowed = problem.allowed_types[problem.jobs.kind]
        return replace(answer, shares=Shares(_spread_time(problem, answer.shares.alone.sum(axis=1), allowed)))


def _spread_time(problem: ShareProblem, time: Floats, allowed: Flags) -> Floats:
    """Spreads ``time`` (n,) in proportion to workers where ``allowed``.

    Cuts down a type that this overfills.
    """
    part = np.where(allowed, problem.cluster.workers, 0.0)
    whole = part.sum(axis=1, keepdims=True)
    # Jobs that no type can hold get nothing instead of 0 / 0.
    share = time[:, None] * np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0)
    used = problem.scale @ share
    return np.asarray(
        share
        * np.divide(
            problem.cluster.workers, used, out=np.ones(len(used)), where=used > problem.cluster.workers
        )
    )


@dataclass(frozen=True, slots=True)
class Packing:
    """Implements Gandiva's packing.

    Pairs are tried at random and kept where they do more together than in turns. Jobs and pairs then share
    the cluster equally by worker time, blind to types. Pairs are tried on the mean over the types, weighted
    by workers. ``draw``: the source of randomness.
    """

    draw: np.random.Generator

    def compute_shares(self, problem: ShareProblem) -> Answer:
        first, second = self._try_pairs(problem)
        alone = np.setdiff1d(np.arange(len(problem.jobs.kind)), np.concatenate([first, second]))
        who = np.concatenate([alone, first])
        scale = problem.scale[who].astype(np.float64)
        time = np.minimum(_equal_part(scale, problem.cluster.workers.sum()) / scale, 1.0)
        every = np.zeros(len(problem.jobs.kind))
        every[who] = time
        shares = _spread_time(problem, every, problem.allowed_types[problem.jobs.kind])
        paired = shares[first].copy()
        shares[first] = 0.0
        return Answer(
            Shares(shares, first, second, paired), float(time.min(initial=1.0)), list_unrunnable(problem)
        )

    def _try_pairs(self, problem: ShareProblem) -> tuple[Indices, Indices]:
        """Tries each job beside one other of its scale at most."""
        together, kind, scale = problem.kinds.together, problem.jobs.kind, problem.scale
        if together is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        order = self.draw.permutation(len(kind))
        # Random within a scale: only neighbours in this order are tried.
        order = order[np.argsort(scale[order], kind="stable")]
        first, second = order[:-1:2], order[1::2]
        ours, theirs = together[kind[first], kind[second]], together[kind[second], kind[first]]
        both = (ours > 0) & (theirs > 0)
        # Types that cannot run a job alone would divide by zero; ``both`` excludes them.
        rates = np.maximum(problem.rates, 1e-300)
        gain = np.where(both, ours / rates[first] + theirs / rates[second], 0.0) @ problem.cluster.workers
        same = problem.allowed_types[kind[first]] == (both & problem.allowed_types[kind[first]])
        keep = (scale[first] == scale[second]) & same.all(axis=1) & (gain > problem.cluster.workers.sum())
        return np.asarray(first[keep]), np.asarray(second[keep])


def _equal_part(scale: Floats, workers: float) -> float:
    """Returns t with sum_m min(s[m], t) = workers; all of the demand where there are as many workers."""
    sizes = np.sort(scale)
    below = np.concatenate([[0.0], np.cumsum(sizes)[:-1]])
    parts = (workers - below) / np.arange(len(sizes), 0, -1)
    enough = np.flatnonzero(parts <= sizes)
    return float(parts[enough[0]]) if len(enough) else float(sizes[-1])


@dataclass(frozen=True, slots=True)
class Isolated:
    """Gives X_iso: 1/n of every type to every job, at most all of its time.

    Value: the least thr / thr_equal.
    """

    def compute_shares(self, problem: ShareProblem) -> Answer:
        kinds, workers = problem.kinds, problem.cluster.workers
        share = workers / (len(problem.jobs.kind) * kinds.scale[:, None])
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
        shares = Shares(np.asarray(np.where(problem.allowed_types, share, 0.0)[problem.jobs.kind]))
        reached, equal = problem.throughput(shares), problem.equal_throughput()
        normalized = np.divide(reached, equal, out=np.full(len(equal), np.inf), where=equal > 0)
        return Answer(shares, float(normalized.min(initial=np.inf)), list_unrunnable(problem))


@dataclass(frozen=True, slots=True)
class AlloX:
    """Minimises average completion time by matching jobs to workers and positions in their queues.

    Positions count from the end. A job that is i-th from last on a worker delays i jobs by the time it takes
    there (itself among them), so the sum of completion times is that of the matched edges. Jobs of several
    workers count as of one, as in the paper. The first in a queue gets all of that worker until the next
    answer. The matching is a linear program, whose vertices are matchings; jobs of one kind and as many steps
    are not merged.
    """

    def compute_shares(self, problem: ShareProblem) -> Answer:
        took_s, workers = self._took_s(problem), problem.cluster.workers.astype(np.int64)
        # Even with all jobs on one type, no queue of its workers is longer.
        places = -(-len(took_s) // np.maximum(workers, 1))
        job, type_, place = self._list_edges(took_s, places, workers)
        delays_s = place * took_s[job, type_]
        longest_s = delays_s.max(initial=1.0)
        best = solve(
            self._matching_program(
                delays_s / longest_s,
                job,
                np.cumsum(np.append(0, places))[type_] + place - 1,
                np.asarray(np.isfinite(took_s).any(axis=1)),
                np.repeat(workers.astype(float), places),
            )
        )
        # Vertices of a matching are 0 or 1; rounding leaves a little around them.
        used = best.x > 0.5
        last = np.zeros(took_s.shape, np.int64)
        last[job[used], type_[used]] = place[used]
        return Answer(
            Shares(self._serve_first(problem, last)), -best.value * longest_s, list_unrunnable(problem)
        )

    @staticmethod
    def _took_s(problem: ShareProblem) -> Floats:
        """Returns seconds of each job's steps on each type, (jobs, types); infinite where it cannot run."""
        took_s: Floats = np.divide(
            problem.jobs.steps[:, None],
            problem.rates,
            out=np.full(problem.rates.shape, np.inf),
            where=problem.allowed_types[problem.jobs.kind],
        )
        return took_s

    @staticmethod
    def _list_edges(took_s: Floats, places: Indices, workers: Indices) -> tuple[Indices, Indices, Indices]:
        """Returns job, type and position from the end, from 1, of every possible pair, each (edges,)."""
        job, type_ = np.nonzero(np.isfinite(took_s) & (workers > 0))
        repeats = places[type_]
        ends = np.cumsum(repeats)
        place = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - repeats, repeats) + 1
        return np.repeat(job, repeats), np.repeat(type_, repeats), place

    @staticmethod
    def _matching_program(
        delays: Floats, job: Indices, slot: Indices, runs: Flags, room: Floats
    ) -> LinearProgram:
        """Minimises the sum of ``delays`` (edges,), where each job that ``runs`` (jobs,) is matched once.

        ``slot`` (edges,) is a place in the queues of a type, which as many jobs can have as it has workers,
        its ``room`` (slots,).
        """
        edges = np.arange(len(delays))
        return LinearProgram(
            gain=-delays,
            low=np.zeros(len(delays)),
            high=np.full(len(delays), np.inf),
            rows=np.concatenate([job, len(runs) + slot]),
            columns=np.concatenate([edges, edges]),
            values=np.ones(2 * len(delays)),
            row_low=np.concatenate([runs.astype(float), np.zeros(len(room))]),
            row_high=np.concatenate([np.ones(len(runs)), room]),
        )

    @staticmethod
    def _serve_first(problem: ShareProblem, last: np.ndarray) -> Floats:
        """Gives all of a worker to the job that most others wait behind, as far as workers and scales go."""
        share = np.zeros(last.shape)
        for j, free in enumerate(problem.cluster.workers):
            left = float(free)
            for job in sorted(np.flatnonzero(last[:, j]), key=lambda m: (-last[m, j], m)):
                if problem.scale[job] <= left:
                    share[job, j], left = 1.0, left - problem.scale[job]
        return share
