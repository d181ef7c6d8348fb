"""Builds the linear program under every policy: who may have which time, with like jobs in classes.

Jobs that nothing in the problem tells apart (one kind, and one value of everything the policy asks about)
form a class, and the program has one variable per class and type: the time of all its jobs together. That
loses nothing: giving each job of a class the class's average keeps every constraint and every concave
objective (the program does not change when they swap places). A cluster of thousands of jobs of two dozen
models is then a program of a few dozen rows.

    y[c, j]     time of class c alone on type j, of all its jobs together
    y[c, d, j]  time that jobs of c spend beside jobs of d, c <= d
    n[c]        jobs of the class

    own time    sum_j y[c, j] + sum_d sum_j y[c, d, j] (1 + [c = d]) <= n[c]
    workers     sum_c s[c] y[c, j] + sum_{c <= d} s[c] y[c, d, j] <= N[j]
    thr(c)      (sum_j T[c, j] y[c, j] + ...) / n[c], of each of its jobs

Jobs with floors of their own are merged too (``throughput_floors.py``): then thr(c) is their mean, and each
of them gets what its own floor asks for.

Knows nothing of what is maximised.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from bidbrain.cluster.policies.job_classes import JobClasses, TimeVariables
from bidbrain.cluster.policies.problem import ShareProblem, Shares
from bidbrain.cluster.policies.throughput_floors import count_slow_types, exchange_rates
from bidbrain.cluster.solver import LinearProgram, Method, Optimum, solve, solve_by_sifting

Entries: TypeAlias = tuple[Indices, Indices, Floats]
"""Rows, columns and values."""
_MANY_PAIRS: Final = 2000


class ShareProgram:
    """Holds a linear program over y that grows by variables and rows until it is solved.

    ``values`` given per job are read off the first job of each class. ``open_to`` (n, k), if given: where
    each job may have a share alone, instead of all that the problem allows. ``floor`` (n,), if given: what
    every job's throughput must reach; without pairs, jobs whose floors differ are merged. Then what is
    maximised has to be linear. ``rises`` (n,): whose floors are about to rise. ``beside`` floors, jobs with
    pairs are told apart by these.
    """

    def __init__(
        self,
        problem: ShareProblem,
        *told_apart_by: Floats,
        floor: Floats | None = None,
        rises: Flags | None = None,
        beside: tuple[Floats, ...] = (),
        open_to: Flags | None = None,
    ) -> None:
        self.problem, self.floor, self._open_to = problem, floor, open_to
        masks = () if open_to is None else tuple(open_to.T.astype(np.int64))
        self._keys: tuple[Floats | Indices, ...] = (
            *told_apart_by,
            *masks,
            *(beside if problem.kinds.together is not None else ()),
        )
        self.classes = self.merge_jobs(floor, rises)
        self.uses = uses = TimeVariables.from_classes(problem, self.classes, open_to)
        count = len(uses.mine)
        self._gain = [np.zeros(count)]
        self._bounds = [(np.zeros(count), np.full(count, np.inf))]
        self._columns = count
        self._entries: list[Entries] = []
        self._row_bounds: list[tuple[Floats, Floats]] = []
        self._scaled: list[Flags] = []
        self._rows = 0
        # y comes first: its columns are the numbers of ``uses``.
        variables = np.arange(count)
        ones = np.ones(count)
        time = (
            np.concatenate([uses.mine, uses.other[uses.paired]]),
            np.concatenate([variables, variables[uses.paired]]),
            np.concatenate([ones, ones[uses.paired]]),
        )
        self.add_rows(_sum_entries(*time, count), -np.inf, self.classes.size)
        workers = (uses.type, variables, self.scale[uses.mine].astype(np.float64))
        self.add_rows(workers, -np.inf, problem.cluster.workers)

    def merge_jobs(self, floor: Floats | None, rises: Flags | None) -> JobClasses:
        """Returns the classes for this floor."""
        if floor is None:
            return JobClasses.merge_alike(self.problem, *self._keys)
        paired = self.problem.kinds.together is not None
        # Without pairs only the number of slow types matters, so jobs with different floors merge.
        key = floor if paired else count_slow_types(_open_rates(self.problem, self._open_to), floor, rises)
        return JobClasses.merge_alike(self.problem, *self._keys, key)

    # ---- parts of rows --------------------------------------------------------------------------

    @cached_property
    def scale(self) -> Indices:
        """Returns s of each class."""
        return self.problem.scale[self.classes.first]

    @cached_property
    def throughput(self) -> Entries:
        """Returns entries of thr: a row for each class, and the variables of its jobs' mean throughput."""
        uses, size = self.uses, self.classes.size
        variables = np.arange(len(uses.mine))
        rows = np.concatenate([uses.mine, uses.other[uses.paired]])
        columns = np.concatenate([variables, variables[uses.paired]])
        rates = np.concatenate([uses.my_rate, uses.their_rate[uses.paired]])
        return _sum_entries(rows, columns, rates / size[rows], len(variables))

    def weighted_gains(self, weights: Floats) -> Floats:
        """Returns sum_c weights[c] thr(c) as gains of y."""
        rows, columns, values = self.throughput
        gains = np.bincount(columns, weights=weights[rows] * values, minlength=len(self.uses.mine))
        return gains.astype(np.float64)

    @cached_property
    def cost(self) -> Floats:
        """Returns dollars per hour of each y."""
        return np.asarray(self.scale[self.uses.mine] * self.problem.cluster.cost[self.uses.type])

    def add_floor_rows(self, floor: Floats) -> None:
        """Adds rows thr(c) >= ``floor`` (classes,), for those that ask for anything."""
        rows, columns, values = self.throughput
        asks = np.flatnonzero(floor > 0)
        mine = floor[rows] > 0
        entries = (np.searchsorted(asks, rows[mine]), columns[mine], values[mine])
        self.add_rows(entries, floor[asks], np.inf)

    # ---- growing -------------------------------------------------------------------------------

    def add_rows(
        self, entries: Entries, low: Floats | float, high: Floats | float, *, scaled: bool = True
    ) -> Indices:
        """Adds rows ``low <= entries <= high``, numbered from 0 in ``entries``.

        Returns their numbers here.
        """
        row, column, value = entries
        bounds = np.broadcast_arrays(np.atleast_1d(low), np.atleast_1d(high))
        count = len(bounds[0])
        self._entries.append((row + self._rows, column, value))
        self._row_bounds.append((bounds[0].astype(np.float64), bounds[1].astype(np.float64)))
        self._scaled.append(np.full(count, scaled))
        self._rows += count
        return np.arange(self._rows - count, self._rows)

    def add_variables(self, count: int, gain: float, low: float, high: float) -> Indices:
        """Adds variables beside y; returns their columns."""
        self._gain.append(np.full(count, gain))
        self._bounds.append((np.full(count, low), np.full(count, high)))
        self._columns += count
        return np.arange(self._columns - count, self._columns)

    def add_gain(self, gain: Floats) -> None:
        """Adds to what y gains."""
        self._gain[0] = self._gain[0] + gain

    def build_program(self) -> LinearProgram:
        """Returns the program as it is now."""
        rows, columns, values = (np.concatenate(parts) for parts in zip(*self._entries, strict=True))
        low, high = (np.concatenate(parts) for parts in zip(*self._bounds, strict=True))
        row_low, row_high = (np.concatenate(parts) for parts in zip(*self._row_bounds, strict=True))
        return LinearProgram(np.concatenate(self._gain), low, high, rows, columns, values, row_low, row_high)

    def solve_program(self, method: Method, near: Shares | None = None) -> Optimum:
        """Returns the optimum of ``build_program``.

        Pairs come in as they are worth it, where there are many.

        ``near``: shares that keep all rows, if some are known; their pairs come first.
        """
        program, paired = self.build_program(), self.uses.paired
        if paired.sum() <= _MANY_PAIRS:
            return solve(program, method)
        first = np.ones(self._columns, np.bool_)
        first[: len(paired)] = ~paired
        if near is not None:
            first[: len(paired)] |= self.uses.pairs_in(near, self.classes)
        return solve_by_sifting(program, first, method)

    def scaled_by(self, size: int) -> LinearProgram:
        """Returns the program as it is now with every bound of a row times the variable ``size``: a cone.

        Bounds added with ``scaled=False`` stay. No row may have two bounds that differ and are not 0.
        """
        program, scaled = self.build_program(), np.concatenate(self._scaled)
        bound = np.where(np.isfinite(program.row_high), program.row_high, program.row_low)
        # A bound of 0 stays 0 under any scale.
        moved = np.flatnonzero(scaled & (bound != 0))
        return replace(
            program,
            rows=np.concatenate([program.rows, moved]),
            columns=np.concatenate([program.columns, np.full(len(moved), size)]),
            values=np.concatenate([program.values, -bound[moved]]),
            row_low=np.where(scaled & np.isfinite(program.row_low), 0.0, program.row_low),
            row_high=np.where(scaled & np.isfinite(program.row_high), 0.0, program.row_high),
        )

    # ---- back to jobs --------------------------------------------------------------------------

    def read_shares(self, x: Floats) -> Shares:
        """Returns every job's share of its class's time, from the variables of a solution."""
        uses, classes = self.uses, self.classes
        # The solver may leave a variable slightly negative.
        y = np.maximum(x[: len(uses.mine)], 0.0)
        single = ~uses.paired
        per_class = np.zeros((len(classes.size), len(self.problem.cluster.types)))
        per_class[uses.mine[single], uses.type[single]] = y[single] / classes.size[uses.mine[single]]
        alone = per_class[classes.of]
        if self.floor is not None and self.problem.kinds.together is None:
            alone = np.maximum(alone + self._own_deviation(self.floor, per_class), 0.0)
        if self.problem.kinds.together is None:
            return Shares(alone)
        return Shares(alone, *uses.deal_pairs(y, classes, len(self.problem.cluster.types)))

    def _own_deviation(self, floor: Floats, time: Floats) -> Floats:
        """Returns what each job has more or less of every type than its class's mean, for its own floor."""
        uses, mean = self.uses, self.classes.means(floor)
        rates = np.zeros(time.shape)
        rates[uses.mine, uses.type] = uses.my_rate
        return np.asarray(
            (floor - mean[self.classes.of])[:, None] * exchange_rates(rates, mean, time)[self.classes.of]
        )


def _open_rates(problem: ShareProblem, open_to: Flags | None) -> Floats:
    """Returns rates, (n, k), 0 where closed."""
    allowed = problem.allowed_types[problem.jobs.kind] if open_to is None else open_to
    return np.asarray(np.where(allowed, problem.rates, 0.0))


def _sum_entries(rows: Indices, columns: Indices, values: Floats, count: int) -> Entries:
    """Returns entries without repeated places: a class beside itself counts in one row twice."""
    places, where = np.unique(rows * count + columns, return_inverse=True)
    return places // count, places % count, np.bincount(where, weights=values).astype(np.float64)
