"""Implements policies for cheap work: throughput per dollar, at speeds that deadlines need.

Costs are expected dollars per worker-hour of a market (charge, refunds, work lost to evictions), not list
prices. "Minimize cost" is written down in three ways that differ; each is a policy of its own:

    PerDollar   max sum_mj T[m, j] X[m, j] / (s[m] c[j])     the published code, which leaves s[m] out
    PerJob      max sum_m thr(m, X) / cost(m, X)             Narayanan 6.4.2
    Total       max (sum_m thr(m, X) / steps[m]) / cost(X)   part of all work per dollar

cost(m, X) = s[m] sum_j c[j] X[m, j], in dollars per hour. The second and third are ratios that small shares
make as large as large ones, so they need floors: without any, the best is next to nothing of the cheapest.
Every one keeps deadlines, thr(m, X) >= steps[m] / slo[m] (6.4.3). Where not all can be kept, the answer says
which jobs fall short and by how much, and the others are kept: none is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.cluster.policies.base import (
    Answer,
    Floors,
    Infeasible,
    Maximize,
    OfJobs,
    Shortfall,
    Term,
    TotalThroughput,
    empty_answer,
    list_unrunnable,
    runnable_jobs,
)
from bidbrain.cluster.policies.bisection import most_throughput, raise_floors
from bidbrain.cluster.policies.job_weights import most_worth
from bidbrain.cluster.policies.linear_program import ShareProgram
from bidbrain.cluster.policies.ordered import fastest_throughput
from bidbrain.cluster.policies.problem import ShareProblem
from bidbrain.cluster.solver import Method, Solver, Unsolvable, solve
from pricing_data.model.units import HOUR_S

_EXACT: Final = 1e-9
_MOST_STEPS: Final = 100


def deadline_speed(problem: ShareProblem) -> Floats:
    """Returns steps[m] / slo[m], shape (n,): 0 without a deadline."""
    jobs = problem.jobs
    return np.divide(jobs.steps, jobs.slo_s, out=np.zeros(len(jobs.steps)), where=jobs.slo_s > 0) + np.where(
        (jobs.slo_s == 0) & (jobs.steps > 0), np.inf, 0.0
    )


@dataclass(frozen=True, slots=True)
class MaxThroughput:
    """Maximises sum_m thr(m, X), in steps per second: the baseline that ignores money (6.4.1)."""

    def compute_shares(self, problem: ShareProblem) -> Answer:
        return Maximize(TotalThroughput(lambda seen: np.ones(len(seen.jobs.kind)))).compute_shares(problem)


@dataclass(frozen=True, slots=True)
class PerDollar:
    """Maximises sum_mj T[m, j] X[m, j] / (s[m] c[j]): steps per dollar of every share, added up.

    ``per_worker``: without s[m], as in the published code, which divides a job's steps by one worker's price.
    """

    slos: bool = True
    per_worker: bool = False

    def compute_shares(self, problem: ShareProblem) -> Answer:
        return _keeping_deadlines(_StepsPerDollar(self.per_worker), problem, self.slos)


@dataclass(frozen=True, slots=True)
class _StepsPerDollar(Term):
    per_worker: bool

    def job_features(self, problem: ShareProblem) -> tuple[Floats, ...]:
        return ()

    def add_to(self, program: ShareProgram, weight: float) -> None:
        uses = program.uses
        price = program.problem.cluster.cost[uses.type] if self.per_worker else program.cost
        program.add_gain(weight * (uses.my_rate + uses.their_rate) / price)


def _keeping_deadlines(term: Term, problem: ShareProblem, slos: bool) -> Answer:
    if not slos:
        return Maximize(term).compute_shares(problem)
    return _with_floors(
        problem,
        deadline_speed(problem),
        lambda floor: Maximize(term, (Floors(lambda _: floor),)).compute_shares(problem),
    )


def _with_floors(problem: ShareProblem, floor: Floats, best: Callable[[Floats], Answer]) -> Answer:
    """Returns ``best`` of these floors where they can be met together, else of as much of them as can be."""
    # A floor above the fastest type is infeasible without asking a solver.
    if np.all(floor <= fastest_throughput(problem)):
        try:
            return best(floor)
        except Unsolvable:
            pass  # Not together: what follows finds who has to give.
    # Deadlines come before the floors that jobs without one were given.
    kept, short = reachable_floors(problem, floor, np.isfinite(problem.jobs.slo_s))
    answer = best(kept)
    return replace(answer, short=answer.short + short)


def reachable_floors(
    problem: ShareProblem, floor: Floats, first: Flags | None = None
) -> tuple[Floats, tuple[Shortfall, ...]]:
    """Returns floors that shares can meet together, and what was taken off the given ones.

    Minimises the sum over jobs of the part of its floor that a job goes without; floors that can all be met
    are left as they are. Nothing is taken off the floors of jobs that come ``first`` (n,) for the others'.
    """
    reachable = fastest_throughput(problem)
    asked, firm = np.minimum(floor, reachable), np.zeros(len(floor), np.bool_)
    if first is not None and (first & (floor > 0)).any() and (~first & (floor > 0)).any():
        # Those that come first are settled alone; what they reach is then fixed for the others.
        firm = first
        asked = np.where(firm, reachable_floors(problem, np.where(firm, floor, 0.0))[0], asked)
    program = ShareProgram(problem, asked, firm.astype(np.float64))
    each = program.classes.common_values(asked)
    wanted = np.flatnonzero(each > 0)
    given = program.add_variables(len(wanted), 1.0, 0.0, 1.0)
    rows, columns, values = program.throughput
    mine = np.isin(rows, wanted)
    entries = (
        np.concatenate([np.searchsorted(wanted, rows[mine]), np.arange(len(wanted))]),
        np.concatenate([columns[mine], given]),
        np.concatenate([values[mine] / each[rows[mine]], np.full(len(wanted), -1.0)]),
    )
    program.add_rows(entries, np.zeros(len(wanted)), np.inf)
    part = np.ones(len(each))
    if len(wanted):
        # A class counts as many times as it has jobs.
        linear = program.build_program()
        gain = linear.gain.copy()
        gain[given] = program.classes.size[wanted]
        low = linear.low.copy()
        low[given] = program.classes.common_values(firm.astype(np.float64))[wanted]
        part[wanted] = solve(replace(linear, gain=gain, low=low)).x[given]
    # Nearly all of a floor is all of it: no shortfall is reported for rounding.
    part = np.where(part > 1 - _EXACT, 1.0, part)[program.classes.of]
    # A little less than the optimum: exactly it, the next program may be infeasible by rounding.
    kept = asked * part * (1 - _EXACT)
    missed = np.flatnonzero(kept < floor * (1 - 4 * _EXACT))
    return kept, tuple(
        _explain_shortfall(problem, int(job), float(floor[job]), float(kept[job]), reachable)
        for job in missed
    )


def _explain_shortfall(
    problem: ShareProblem, job: int, needed: float, given: float, reachable: Floats
) -> Shortfall:
    if needed > reachable[job]:
        why = f"its deadline needs {needed:.6g} steps/s, and no type gives more than {reachable[job]:.6g}"
    else:
        why = (
            f"its deadline needs {needed:.6g} steps/s, of which {given:.6g} are left beside the others'; "
            f"with as many workers it takes {problem.jobs.steps[job] / max(given, 1e-300):.6g} s"
        )
    return Shortfall(problem.jobs.names[job], needed, given, why)


@dataclass(frozen=True, slots=True)
class Total:
    """Maximises (sum_m worth[m] thr(m, X)) / cost(X): all work over all dollars.

    A linear-fractional program, solved as the linear program of Charnes and Cooper (1962): times are measured
    in multiples of what a dollar per hour pays for. ``worth`` defaults to 1 / steps[m], the part of a job's
    work. A job without a deadline is promised ``least_share`` of what 1/n of the cluster would give it.
    """

    least_share: float = 0.1
    worth: OfJobs = lambda problem: 1.0 / problem.jobs.steps

    def compute_shares(self, problem: ShareProblem) -> Answer:
        if not runnable_jobs(problem).any():
            return empty_answer(problem, 0.0)
        promised = np.where(
            np.isinf(problem.jobs.slo_s), self.least_share * problem.isolated_throughput(), 0.0
        )
        return _with_floors(
            problem, deadline_speed(problem) + promised, lambda floor: self._best_for_floor(problem, floor)
        )

    def _best_for_floor(self, problem: ShareProblem, floor: Floats) -> Answer:
        best = most_worth(problem, self.worth(problem), floor, per_dollar=True)
        return Answer(best.shares, best.value, list_unrunnable(problem))


@dataclass(frozen=True, slots=True)
class PerJob:
    """Maximises sum_m thr(m, X) / cost(m, X): steps per dollar, job by job, each at the speed it is promised.

    A job's ratio does not change when all its shares shrink, so nobody gains by more than the promise: every
    job gets exactly its floor, on the types that do it for least while others have theirs. What is left is to
    maximise sum_m floor[m] / cost(m, X), which is convex; it is raised step by step through the linear
    program whose weights are its slope, from the cheapest plan in dollars. That ends where no small change
    helps, which need not be the best: ``value`` is what was reached, ``upper_bound`` what no X can exceed.
    """

    least_share: float = 0.1

    def compute_shares(self, problem: ShareProblem) -> Answer:
        # The cost of a pair belongs to two jobs at once, so the ratio of each would not be defined.
        alone = problem.without_pairs()
        promised = np.where(np.isinf(alone.jobs.slo_s), self.least_share * alone.isolated_throughput(), 0.0)
        floor, short = reachable_floors(
            alone, deadline_speed(alone) + promised, np.isfinite(alone.jobs.slo_s)
        )
        # Every job is a class of its own: an average of two jobs may be worse than both.
        program = ShareProgram(alone, np.arange(len(floor), dtype=np.float64))
        each = program.classes.common_values(floor)
        rows, columns, values = program.throughput
        program.add_rows((rows, columns, values), each, np.inf)
        solver, slope, reached = Solver(program.build_program(), Method.DUAL), np.ones(len(each)), -np.inf
        # The result may depend on a tie, which the unit of prices must not break.
        price = np.round(program.cost / program.cost.max(initial=1e-300), 12)
        for _ in range(_MOST_STEPS):
            solver.change_gains(columns, -slope[program.uses.mine] * price)
            x = solver.solve().x[columns]
            spent = np.bincount(program.uses.mine, weights=x * program.cost, minlength=len(each))
            ratio = np.divide(each, spent, out=np.zeros(len(each)), where=spent > 0)
            if ratio.sum() <= reached * (1 + _EXACT):
                break
            best, reached = x, float(ratio.sum())
            # The derivative of floor / cost is - floor / cost^2, which weighs the next program.
            slope = np.divide(ratio, spent, out=np.zeros(len(each)), where=spent > 0)
            # Only the proportions matter; the solver wants gains near 1.
            slope /= slope.max(initial=1e-300)
        return Answer(program.read_shares(best), reached, list_unrunnable(alone) + short)

    @staticmethod
    def upper_bound(problem: ShareProblem) -> float:
        """Returns sum_m max_j T[m, j] / (s[m] c[j]).

        Every job on its best type for money, with room for all.
        """
        price = problem.kinds.scale[:, None] * problem.cluster.cost
        ratio = np.where(problem.allowed_types, problem.kinds.rates / price, 0.0)
        return float(ratio.max(axis=1)[problem.jobs.kind].sum())


@dataclass(frozen=True, slots=True)
class MakespanWithin:
    """Minimises M with thr(m, X) >= steps[m] / M for every job and M cost(X) <= ``budget`` dollars (6.4.3).

    Solved for 1 / M, with which floors and what may be spent per hour rise (``bisection.py``), instead of a
    search over M. The value is M in seconds. Raises Infeasible with the least budget that all work can be
    done for.
    """

    budget: float

    def compute_shares(self, problem: ShareProblem) -> Answer:
        if not runnable_jobs(problem).any():
            return empty_answer(problem, np.inf)
        steps = np.where(runnable_jobs(problem), problem.jobs.steps, 0.0)
        least = _least_dollars(problem, steps)
        # Told with the least that works, since no time limit makes the work cheaper.
        if least > self.budget * (1 + _EXACT):
            raise Infeasible(
                f"all work costs at least ${least:.6f} on these types; the budget is ${self.budget:.6f}"
            )
        most = np.divide(
            most_throughput(problem), steps, out=np.full(len(steps), np.inf), where=steps > 0
        ).min()
        if np.isinf(most):
            return empty_answer(problem, 0.0)
        raised = raise_floors(
            problem,
            lambda t: (steps * t, steps),
            (steps,),
            most,
            most,
            dollars_per_hour=max(self.budget, least) * HOUR_S,
        )
        return Answer(raised.shares, 1.0 / raised.t, list_unrunnable(problem))


def _least_dollars(problem: ShareProblem, steps: Floats) -> float:
    """Returns what all work costs without time limit: every job, or pair, where a step costs least."""
    if problem.kinds.together is None:
        price = problem.kinds.scale[:, None] * problem.cluster.cost
        per_step = np.divide(
            price, problem.kinds.rates, out=np.full(price.shape, np.inf), where=problem.allowed_types
        ).min(axis=1)[problem.jobs.kind]
        return float(steps[steps > 0] @ per_step[steps > 0]) / HOUR_S
    program = ShareProgram(problem, steps)
    program.add_rows(program.throughput, program.classes.common_values(steps), np.inf, scaled=False)
    (span,) = program.add_variables(1, 0.0, 0.0, np.inf)
    scaled = program.scaled_by(int(span))
    spent = np.zeros(len(scaled.gain))
    spent[: len(program.cost)] = program.cost / HOUR_S
    return -solve(replace(scaled, gain=-spent)).value
