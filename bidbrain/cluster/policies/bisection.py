"""Finds the highest t at which all floors f[m](t) can be met at once, for floors that rise with t.

    makespan                    t = 1 / seconds    f[m] = steps[m] t
    finish-time fairness        t = -rho           f[m] = steps[m] / (-t D[m] - age[m])
    a round of water filling    t = distance       f[m] = equal[m] (level[m] + step[m] t)

f is convex and rises, so its tangent at any t asks for no more than f does. Newton's method: the largest t
for which tangents can be reached is a linear program, and is never less than the answer; from there on t
falls, and comes to rest where floors themselves can be reached. Between two programs jobs are merged anew, by
which types are too slow for them now (``throughput_floors.py``). A mean asks for no more than its members, so
this keeps the bound; at rest all members of a class can be given their own. A floor that rises counts as just
above where it is: else a class could be promised at rest what its members cannot have an instant later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from bidbrain.cluster.policies.linear_program import ShareProgram
from bidbrain.cluster.policies.problem import ShareProblem, Shares
from bidbrain.cluster.solver import Method, Optimum, Unsolvable

RisingFloors: TypeAlias = Callable[[float], tuple[Floats, Floats]]
"""Maps t to everybody's floor (n,) and its slope."""

_DUST: Final = 1e-12
"""A floor below this share of what its class can have at most is none: the solver's tolerance is 1e-9."""
_CLOSE: Final = 1e-12
_MOST_STEPS: Final = 60


@dataclass(frozen=True, slots=True, eq=False)
class RaisedFloors:
    """Holds ``t``, and the last ``program`` with its optimum.

    Its rows ``rows`` are the floors of classes ``asks``, per ``unit`` of throughput each. ``slope`` (n,): of
    the floors at t.
    """

    t: float
    program: ShareProgram
    best: Optimum
    rows: Indices
    asks: Indices
    unit: Floats
    slope: Floats

    @property
    def shares(self) -> Shares:
        return self.program.read_shares(self.best.x)

    def price_limit(self) -> tuple[Floats, float]:
        """Returns ``price`` (n,) and ``most``, with price f <= most for all floors f that can be met.

        By duality, and in whichever classes jobs were merged: a price holds for every member.
        """
        classes, duals = self.program.classes, self.best.duals
        price = np.zeros(len(classes.size))
        price[self.asks] = np.maximum(-duals[self.rows], 0.0) / self.unit
        time, workers = len(classes.size), self.program.problem.cluster.workers
        most = duals[:time] @ classes.size + duals[time : time + len(workers)] @ workers
        return (price / classes.size)[classes.of], float(most)


def most_throughput(problem: ShareProblem, open_to: Flags | None = None) -> Floats:
    """Returns the most that each job can have of any type, (n,), also when sharing with another job."""
    rates = problem.rates
    if problem.kinds.together is not None:
        rates = np.maximum(rates, problem.kinds.together.max(axis=1)[problem.jobs.kind])
    allowed = problem.allowed_types[problem.jobs.kind] if open_to is None else open_to
    return np.asarray(np.where(allowed, rates, 0.0).max(axis=1))


def raise_floors(
    problem: ShareProblem,
    rising: RisingFloors,
    told_apart_by: tuple[Floats, ...],
    start: float,
    most: float,
    *,
    open_to: Flags | None = None,
    dollars_per_hour: float = np.inf,
    enough: float = -np.inf,
    coarse: bool = False,
) -> RaisedFloors:
    """Raises floors to the highest t <= ``most``, from ``start``: the nearer, the fewer programs.

    ``told_apart_by``: what floors are made of, for jobs with pairs. ``dollars_per_hour``: the most that may
    be spent, per unit of t. ``enough``: any t below is as good as another, and need not be reached by the
    shares. ``coarse``: floors may be so steep that t is at rest where rounding would make it rise again to
    where it was. Raises Unsolvable where no t will do.
    """
    # ``seen`` finds cycles: rounding may bring t back to where it was.
    t, seen = min(start, most), set[float]()
    for _ in range(_MOST_STEPS):
        floor, slope = rising(t)
        program = ShareProgram(problem, floor=floor, rises=slope > 0, beside=told_apart_by, open_to=open_to)
        # In units of t itself the program's numbers are near 1, whatever t measures.
        scale = abs(t) or (abs(most) if np.isfinite(most) else 1.0)
        raised = _solve_tangent(program, t, scale, most, slope, dollars_per_hour)
        if raised.t < enough:
            return raised
        if coarse and raised.t > t and raised.t in seen:
            return replace(raised, t=t)  # what can be had beyond t is more than the floors at t
        there, onward = rising(raised.t)
        settled = np.all(there <= (floor + slope * (raised.t - t)) * (1 + _CLOSE))
        if settled and np.array_equal(program.merge_jobs(there, onward > 0).of, program.classes.of):
            program.floor = there
            return raised
        seen.add(t)
        t = raised.t
    raise Unsolvable(f"no rest after {_MOST_STEPS} programs")


def _solve_tangent(
    program: ShareProgram,
    t: float,
    scale: float,
    most: float,
    slope: Floats,
    dollars_per_hour: float,
) -> RaisedFloors:
    """Returns the highest t' = t + ``scale`` u for floors + slope (t' - t)."""
    assert program.floor is not None
    floor, rise = program.classes.means(program.floor), program.classes.means(slope)
    (u,) = program.add_variables(1, 1.0, -np.inf, (most - t) / scale)
    rows, columns, values = program.throughput
    # Classes without a floor that never get one need no row. Nor do floors that rounding left: scaled by
    # their own size, their entries would be larger than HiGHS takes.
    most_of_class = np.zeros(len(floor))
    np.maximum.at(most_of_class, rows, values)
    # While t is near 0 a rise is small only by its scale: it is taken at 1.
    asks = np.flatnonzero(np.maximum(floor, rise * max(scale, 1.0)) > _DUST * most_of_class)
    # Every row is scaled by its own size: tolerances are absolute.
    unit = np.maximum(floor, rise * scale)[asks]
    mine = np.isin(rows, asks)
    place = np.searchsorted(asks, rows[mine])
    entries = (
        np.concatenate([place, np.arange(len(asks))]),
        np.concatenate([columns[mine], np.full(len(asks), u)]),
        np.concatenate([values[mine] / unit[place], -rise[asks] * scale / unit]),
    )
    numbers = program.add_rows(entries, floor[asks] / unit, np.inf)
    if np.isfinite(dollars_per_hour):
        cost = program.cost
        entries = (
            np.zeros(len(cost) + 1, np.int64),
            np.append(np.arange(len(cost)), u),
            np.append(cost, -dollars_per_hour * scale),
        )
        program.add_rows(entries, -np.inf, dollars_per_hour * t)
    best = program.solve_program(Method.DUAL)
    return RaisedFloors(min(t + scale * float(best.x[u]), most), program, best, numbers, asks, unit, slope)
