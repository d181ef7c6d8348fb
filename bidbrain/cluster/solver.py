"""Solves linear programs, and is the only module that calls a solver: HiGHS, through highspy.

    maximize  gain x   subject to   row_low <= A x <= row_high,  low <= x <= high

A ``Solver`` keeps its program alive: what changes between two solves changes in place, and the second starts
from the basis where the first ended. Knows no jobs.

Source: Huangfu and Hall, 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import highspy
import numpy as np

from bidbrain.arrays import Flags, Floats, Indices

_TOLERANCE: Final = 1e-9
"""Tolerance of rows, bounds and prices.

HiGHS' own 1e-7 is lost a hundredfold where a little of one job's rate is worth much of another's.
"""
_NO_OPTIMUM: Final = (
    highspy.HighsModelStatus.kInfeasible,
    highspy.HighsModelStatus.kUnbounded,
    highspy.HighsModelStatus.kUnboundedOrInfeasible,
)


class Unsolvable(Exception):
    """Reports that no point meets the constraints, or that no point is best."""


class Method(StrEnum):
    """Names a method; all end on a vertex.

    Which is fastest depends on the program, up to tenfold: measure.
    """

    PRIMAL = "primal simplex"
    DUAL = "dual simplex"
    IPM = "interior points"


_SECOND_OPINIONS: Final = (
    (Method.PRIMAL, _TOLERANCE),
    (Method.DUAL, _TOLERANCE),
    (Method.IPM, _TOLERANCE),
    (Method.DUAL, 1e-7),
)
"""Methods to try from scratch, in this order, where rounding ended a run without an optimum."""
_SIFTED: Final = 0.5
"""Most columns to add at once, per column or row that is in."""
_OPTIONS: Final[Mapping[Method, Mapping[str, str | int]]] = {
    Method.PRIMAL: {"solver": "simplex", "simplex_strategy": 4},
    Method.DUAL: {"solver": "simplex", "simplex_strategy": 1},
    Method.IPM: {"solver": "ipm"},
}
_AS_GIVEN: Final = {"presolve": "off"}
"""Presolving takes a fifth of the time of class programs, and removes nothing from them."""
_PRESOLVED: Final = {"presolve": "choose"}


@dataclass(frozen=True, slots=True, eq=False)
class LinearProgram:
    """Holds a program; A is given by entries: ``values`` at ``rows`` and ``columns``, no place twice."""

    gain: Floats
    low: Floats
    high: Floats
    rows: Indices
    columns: Indices
    values: Floats
    row_low: Floats
    row_high: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """Holds the best ``x`` (columns,) and its ``value``.

    ``duals`` (rows,): what one more of a row's bound would gain. ``reduced`` (columns,): what one more of a
    variable would gain; not 0 only where its bound holds it.
    """

    x: Floats
    value: float
    duals: Floats
    reduced: Floats


class Solver:
    """Holds one program, and the changes made to it since."""

    def __init__(self, program: LinearProgram, method: Method = Method.PRIMAL) -> None:
        make: Callable[[], highspy.Highs] = highspy.Highs  # which is not typed itself
        self._highs = make()
        self._method = method
        self._set_options({"output_flag": False, "threads": 1, **_AS_GIVEN})
        self._use_method(method, _TOLERANCE)
        self._highs.passModel(_build_model(program))
        self._empty = program if not len(program.gain) else None

    def solve(self) -> Optimum:
        """Returns the optimum; raises Unsolvable with what HiGHS says of the program.

        A run from where the last one ended, or one that is thrown by its own rounding, may end without an
        optimum where there is one. That verdict counts only when a second run, from scratch, agrees.
        """
        if self._empty:
            return _without_variables(self._empty)
        said = [self._run_once()]
        for method, tolerance in _SECOND_OPINIONS:
            # One "infeasible" may be rounding; two independent ones are believed.
            if said[-1] == highspy.HighsModelStatus.kOptimal or _two_agree(said):
                break
            # Forgets the basis: a second opinion must not start from where the first went wrong.
            self._highs.clearSolver()
            self._use_method(method, tolerance)
            self._set_options(_PRESOLVED)
            said.append(self._run_once())
            self._use_method(self._method, _TOLERANCE)
            self._set_options(_AS_GIVEN)
        if said[-1] != highspy.HighsModelStatus.kOptimal:
            raise Unsolvable(", ".join(self._highs.modelStatusToString(status).lower() for status in said))
        solution = self._highs.getSolution()
        return Optimum(
            np.asarray(solution.col_value, np.float64),
            float(self._highs.getInfo().objective_function_value),
            np.asarray(solution.row_dual, np.float64),
            np.asarray(solution.col_dual, np.float64),
        )

    def _run_once(self) -> highspy.HighsModelStatus:
        self._highs.run()
        return self._highs.getModelStatus()

    def _use_method(self, method: Method, tolerance: float) -> None:
        feasibility = {f"{side}_feasibility_tolerance": tolerance for side in ("primal", "dual")}
        self._set_options({**_OPTIONS[method], **feasibility})

    def _set_options(self, options: Mapping[str, str | int | float]) -> None:
        for option, value in options.items():
            self._highs.setOptionValue(option, value)

    def change_gains(self, columns: Indices, gain: Floats) -> None:
        """Replaces the gains of these columns."""
        self._highs.changeColsCost(len(columns), columns.astype(np.int32), gain)


def _without_variables(program: LinearProgram) -> Optimum:
    """Solves a program without variables; HiGHS calls such a program neither solved nor infeasible."""
    if np.any(program.row_low > 0) or np.any(program.row_high < 0):
        raise Unsolvable("infeasible")
    return Optimum(np.empty(0), 0.0, np.zeros(len(program.row_low)), np.empty(0))


def _two_agree(said: Sequence[highspy.HighsModelStatus]) -> bool:
    """Returns whether two runs found that there is no best point."""
    return sum(status in _NO_OPTIMUM for status in said) >= 2


def solve(program: LinearProgram, method: Method = Method.PRIMAL) -> Optimum:
    """Returns the best point of a program that is solved once. Raises Unsolvable."""
    return Solver(program, method).solve()


def solve_by_sifting(program: LinearProgram, first: Flags, method: Method = Method.PRIMAL) -> Optimum:
    """Solves as ``solve`` does, for programs with many columns of which few are used.

    Begins with the columns ``first`` (columns,); those that would gain at the prices of the last optimum come
    in until there are none. Columns left out are at 0, so 0 has to be their lower bound. Where the first
    alone can do nothing, all come in at once. Raises Unsolvable.

    Source: Bixby et al., Operations Research 40, 1992.
    """
    inside = first.copy()
    # Gains below the solver's own tolerance would let columns in for ever.
    enough = _TOLERANCE * max(np.abs(program.gain).max(initial=0.0), 1.0)
    while True:
        try:
            best = solve(_keep_columns(program, inside), method)
        except Unsolvable:
            return solve(program, method)
        paid = np.bincount(
            program.columns, weights=best.duals[program.rows] * program.values, minlength=len(inside)
        )
        reduced = np.where(inside, -np.inf, program.gain - paid)
        better = np.flatnonzero(reduced > enough)
        if not len(better):
            x, prices = np.zeros(len(inside)), program.gain - paid
            x[inside], prices[inside] = best.x, best.reduced
            return Optimum(x, best.value, best.duals, prices)
        most = int(_SIFTED * max(inside.sum(), len(best.duals))) + 1
        # Only the best columns come in, so the program stays small.
        inside[better[np.argsort(-reduced[better], kind="stable")[:most]]] = True


def _keep_columns(program: LinearProgram, inside: Flags) -> LinearProgram:
    """Returns the program with some of its columns."""
    kept = inside[program.columns]
    number = np.cumsum(inside) - 1
    return LinearProgram(
        program.gain[inside],
        program.low[inside],
        program.high[inside],
        program.rows[kept],
        number[program.columns[kept]],
        program.values[kept],
        program.row_low,
        program.row_high,
    )


def _build_model(program: LinearProgram) -> highspy.HighsLp:
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.gain), len(program.row_low)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_, model.col_lower_, model.col_upper_ = program.gain, program.low, program.high
    model.row_lower_, model.row_upper_ = program.row_low, program.row_high
    # HiGHS takes matrices by column.
    order = np.lexsort((program.rows, program.columns))
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kColwise
    counts = np.bincount(program.columns, minlength=len(program.gain))
    matrix.start_ = np.append(0, np.cumsum(counts)).astype(np.int32)
    matrix.index_ = program.rows[order].astype(np.int32)
    matrix.value_ = program.values[order]
    return model
