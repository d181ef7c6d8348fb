"""Maximises throughput weighted per job, and still merges jobs into classes.

    maximize    sum_m w[m] thr(m, X)                 or that per dollar of cost(X)
    subject to  thr(m, X) >= f[m], and who may have what

At the prices of the optimum every job picks for itself, a mix of two types at most (Dantzig and Wolfe, 1960).
So jobs of one kind that pick alike need not be told apart, however their worths differ. As one class they
gain their mean worth times their throughput, where that is all they can have; where it is just their floors,
sum_m w[m] f[m], which is another constant. An iteration finds who picks what. All jobs of a kind are one
class first; prices of that program split it by what its members would pick, until all members of every class
agree. What they agree on is best for each at these prices, so it is best for all. A class that wavers between
two picks has one worth, or worths do not matter there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from bidbrain.cluster.policies.linear_program import ShareProgram
from bidbrain.cluster.policies.problem import ShareProblem, Shares
from bidbrain.cluster.solver import Method, solve

_EQUAL: Final = 1e-10
"""Part of a job's best worth within which picks count as equal."""

_MOST_STEPS: Final = 40
_LOST: Final = 1e-7
"""Part of the value that rounding may lose.

After ``_MOST_STEPS`` programs, or if more is lost, every job is a class of its own.
"""


@dataclass(frozen=True, slots=True, eq=False)
class WeightedOptimum:
    """Holds ``shares``, and what they are worth: together, or per dollar."""

    shares: Shares
    value: float


def most_worth(
    problem: ShareProblem, worth: Floats, floor: Floats, *, per_dollar: bool = False
) -> WeightedOptimum:
    """Returns the shares that are worth most.

    ``worth`` and ``floor`` (n,). Raises Unsolvable for floors too high.

    ``per_dollar``: a linear-fractional program, as the linear one of Charnes and Cooper (1962): times are in
    multiples of what a dollar per hour pays for.
    """
    group, promised = np.zeros(len(worth)), np.zeros(len(worth), np.bool_)
    # With pairs a job's pick depends on its partner, so every worth is a class of its own.
    if problem.kinds.together is not None:
        return _solve_merged(problem, worth, floor, worth, promised, per_dollar)[0]
    for _ in range(_MOST_STEPS):
        best, of, prices = _solve_merged(problem, worth, floor, group, promised, per_dollar)
        picked, just = pick_mixes(problem, worth, floor, prices)
        # Packed bits make the comparison of all picks of all jobs cheap.
        told = np.column_stack([of, np.packbits(picked, axis=1)])
        split = np.unique(told, axis=0, return_inverse=True)[1].reshape(-1)
        # No class was split: all members of every class agree, so the optimum stands.
        if split.max() == of.max() and np.array_equal(just, promised):
            if _worth_of_shares(problem, worth, best.shares, per_dollar) >= best.value - _LOST * abs(
                best.value
            ):
                return best
            break
        group, promised = split.astype(np.float64), just
    every = np.arange(len(worth), dtype=np.float64)
    return _solve_merged(problem, worth, floor, every, promised, per_dollar)[0]


def _worth_of_shares(problem: ShareProblem, worth: Floats, shares: Shares, per_dollar: bool) -> float:
    """Returns what the shares are worth, job by job."""
    total = float(worth @ problem.throughput(shares))
    return total / max(problem.cost_per_hour(shares), 1e-300) if per_dollar else total


def _solve_merged(
    problem: ShareProblem,
    worth: Floats,
    floor: Floats,
    group: Floats,
    promised: Flags,
    per_dollar: bool,
) -> tuple[WeightedOptimum, Indices, Floats]:
    """Solves with classes of mean worth.

    Returns the optimum, the class of each job, and what a worker of each type costs then, (k,). ``promised``
    (n,): who picks just their floor.
    """
    program = ShareProgram(problem, group, floor=floor)
    mean = program.classes.means(worth)
    program.add_gain(program.weighted_gains(mean * program.classes.size))
    program.add_floor_rows(program.classes.means(floor))
    apart = float((worth - mean[program.classes.of]) @ np.where(promised, floor, 0.0))
    of, count, types = program.classes.of, len(program.classes.size), len(problem.cluster.types)
    if not per_dollar:
        best = program.solve_program(Method.DUAL)
        return (
            WeightedOptimum(program.read_shares(best.x), best.value + apart),
            of,
            best.duals[count : count + types],
        )
    columns = np.arange(len(program.cost))
    entries = (np.zeros(len(columns), np.int64), columns, program.cost)
    (paid,) = program.add_rows(entries, 1.0, 1.0, scaled=False)
    (size,) = program.add_variables(1, apart, 0.0, np.inf)
    best = solve(program.scaled_by(int(size)), Method.DUAL)
    prices = best.duals[count : count + types] + best.duals[paid] * problem.cluster.cost
    return WeightedOptimum(program.read_shares(best.x / best.x[size]), best.value), of, prices


def pick_mixes(problem: ShareProblem, worth: Floats, floor: Floats, prices: Floats) -> tuple[Flags, Flags]:
    """Returns which mixes of a faster and a slower type are worth most to each job at ``prices`` (k,).

    Prices are those of workers. Shape (n, (k + 1)^2), by types and idle time; twice the same is all of the
    time on one. All that are worth as much are marked: an indifferent job is told apart from one that is not.
    Also returns whose best is to reach just the floor, (n,).
    """
    allowed = problem.allowed_types[problem.jobs.kind]
    rates = np.column_stack([np.where(allowed, problem.rates, 0.0), np.zeros(len(floor))])
    open_to = np.column_stack([allowed, np.ones(len(floor), np.bool_)])
    value = worth[:, None] * rates - np.append(prices, 0.0) * problem.scale[:, None]
    value[:, -1] = 0.0
    asked = floor[:, None, None]
    faster, slower = rates[:, :, None], rates[:, None, :]
    # A job that must run all the time on the only fast enough type also just reaches its floor.
    exact = (slower < asked) & (asked * (1 - _EQUAL) <= faster) & open_to[:, None, :] & (slower < faster)
    part = np.divide(asked - slower, faster - slower, out=np.zeros(exact.shape), where=exact)
    mixed = value[:, None, :] + part * (value[:, :, None] - value[:, None, :])
    alone = np.where(open_to & (rates >= floor[:, None] * (1 - _EQUAL)), value, -np.inf)
    total = np.where(exact & open_to[:, :, None], mixed, -np.inf)
    types = np.arange(rates.shape[1])
    total[:, types, types] = alone
    total = total.reshape(len(floor), -1)
    size = np.abs(value).max(axis=1)
    picked = total >= (total.max(axis=1) - _EQUAL * size)[:, None]
    first = np.argmax(picked, axis=1)
    return picked, np.asarray(first // len(types) != first % len(types))
