"""Defines what a policy is, and its building blocks: terms that add and scale, and constraints.

``Maximize(LeastThroughput(...) + 0.1 * TotalThroughput(...), SpendAtMost(20.0))`` is a policy. Named ones are
in the modules beside this one, each with its equation. Knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.cluster.policies.linear_program import ShareProgram
from bidbrain.cluster.policies.problem import ShareProblem, Shares
from bidbrain.cluster.solver import Method

_ROUNDING: Final = 1e-9
"""Part of a just reached floor that the solver's tolerance may lose."""

OfJobs: TypeAlias = Callable[[ShareProblem], Floats]
"""Computes some quantity of every job, shape (n,)."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Describes a job that does not get what it needs: ``given`` of ``needed`` steps per second, and why."""

    job: str
    needed: float
    given: float
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Holds shares, the objective's value, and the jobs that fall short of what was promised."""

    shares: Shares
    value: float
    short: tuple[Shortfall, ...] = ()


class Policy(Protocol):
    """Computes shares: one frozen problem in, shares out."""

    def compute_shares(self, problem: ShareProblem) -> Answer:
        """Returns the policy's shares.

        Raises ``Infeasible`` where giving up all that it can would not help.
        """


class Infeasible(Exception):
    """Reports that the request cannot be met; the message says what would have to give, and by how much."""


class ProgramPart(Protocol):
    """Describes a term or a constraint: what it asks about jobs, and what it adds to a program."""

    def job_features(self, problem: ShareProblem) -> Iterable[Floats]:
        """Returns what it asks about each job; jobs that agree in all of it may be merged."""

    def add_to(self, program: ShareProgram, weight: float) -> None:
        """Adds variables, rows and gains. ``weight`` is a term's; constraints have none."""


class Term:
    """Describes something to maximise; terms add, and scale by numbers.

    ``is_linear``: worth as much wherever a kind's time on a type goes, so that jobs with floors may be
    merged.
    """

    @property
    def is_linear(self) -> bool:
        return True

    def job_features(self, problem: ShareProblem) -> Iterable[Floats]:
        raise NotImplementedError

    def add_to(self, program: ShareProgram, weight: float) -> None:
        raise NotImplementedError

    def __add__(self, other: Term) -> Term:
        return _Sum(((1.0, self), (1.0, other)))

    def __rmul__(self, factor: float) -> Term:
        return _Sum(((factor, self),))


@dataclass(frozen=True, slots=True)
class _Sum(Term):
    parts: tuple[tuple[float, Term], ...]

    @property
    def is_linear(self) -> bool:
        return all(part.is_linear for _, part in self.parts)

    def job_features(self, problem: ShareProblem) -> Iterable[Floats]:
        return (values for _, part in self.parts for values in part.job_features(problem))

    def add_to(self, program: ShareProgram, weight: float) -> None:
        for factor, part in self.parts:
            part.add_to(program, weight * factor)


@dataclass(frozen=True, slots=True)
class LeastThroughput(Term):
    """Maximises min_m thr(m, X) / per(m), over the jobs that can run at all; 0 if none can."""

    per: OfJobs

    @property
    def is_linear(self) -> bool:
        return False

    def job_features(self, problem: ShareProblem) -> Iterable[Floats]:
        return (self.per(problem),)

    def add_to(self, program: ShareProgram, weight: float) -> None:
        # No bound of its own: with one, HiGHS pivots ten times as often.
        most = np.inf if len(program.throughput[0]) else 0.0
        (least,) = program.add_variables(1, weight, -np.inf, most)
        raise_least(
            program, int(least), invert_rates(program.classes.common_values(self.per(program.problem)))
        )


def raise_least(program: ShareProgram, least: int, factor: Floats) -> None:
    """Adds rows factor[c] thr(c) - least >= 0, for the classes that can run at all."""
    rows, columns, values = program.throughput
    runs = np.unique(rows)
    place = np.searchsorted(runs, rows)
    entries = (
        np.concatenate([place, np.arange(len(runs))]),
        np.concatenate([columns, np.full(len(runs), least)]),
        np.concatenate([values * factor[rows], np.full(len(runs), -1.0)]),
    )
    program.add_rows(entries, np.zeros(len(runs)), np.inf)


@dataclass(frozen=True, slots=True)
class TotalThroughput(Term):
    """Maximises sum_m worth(m) thr(m, X)."""

    worth: OfJobs

    def job_features(self, problem: ShareProblem) -> Iterable[Floats]:
        return (self.worth(problem),)

    def add_to(self, program: ShareProgram, weight: float) -> None:
        worth = program.classes.common_values(self.worth(program.problem)) * program.classes.size
        program.add_gain(weight * program.weighted_gains(worth))


@dataclass(frozen=True, slots=True)
class TotalSpending(Term):
    """Counts expected dollars per hour; subtract it."""

    def job_features(self, problem: ShareProblem) -> Iterable[Floats]:
        return ()

    def add_to(self, program: ShareProgram, weight: float) -> None:
        program.add_gain(weight * program.cost)


@dataclass(frozen=True, slots=True)
class Floors:
    """Demands thr(m, X) >= floor(m): a share that is promised, or the speed that a deadline needs."""

    floor: OfJobs


@dataclass(frozen=True, slots=True)
class SpendAtMost:
    """Limits expected dollars per hour."""

    dollars_per_hour: float

    def job_features(self, problem: ShareProblem) -> Iterable[Floats]:
        return ()

    def add_to(self, program: ShareProgram, weight: float) -> None:
        columns = np.arange(len(program.cost))
        entries = (np.zeros(len(columns), np.int64), columns, program.cost)
        program.add_rows(entries, -np.inf, self.dollars_per_hour)


@dataclass(frozen=True, slots=True)
class Maximize:
    """Solves one linear program. ``near``: shares that keep the constraints, if some are known."""

    term: Term
    constraints: tuple[Floors | SpendAtMost, ...] = ()
    method: Method = Method.PRIMAL
    near: Shares | None = None

    def compute_shares(self, problem: ShareProblem) -> Answer:
        """Returns the optimum; raises ``solver.Unsolvable`` where the constraints contradict each other."""
        spending = tuple(part for part in self.constraints if isinstance(part, SpendAtMost))
        parts: tuple[ProgramPart, ...] = (self.term, *spending)
        keys = tuple(values for part in parts for values in part.job_features(problem))
        promised = [part.floor(problem) for part in self.constraints if isinstance(part, Floors)]
        floor = np.maximum.reduce(promised) if promised else None
        # Jobs with different floors share a class only where the objective is linear in their time.
        if floor is not None and not self.term.is_linear:
            keys += (floor,)
        program = ShareProgram(problem, *keys, floor=floor)
        for part in parts:
            part.add_to(program, 1.0)
        if floor is not None:
            program.add_floor_rows(program.classes.means(floor))
        best = program.solve_program(self.method, self.near)
        return Answer(program.read_shares(best.x), best.value, list_unrunnable(problem))


@dataclass(frozen=True, slots=True)
class FillUnused:
    """Gives what ``policy`` leaves unused to the jobs that make most of it: no job loses.

    A policy that considers only the worst off may leave workers idle that could help the others. Maximises
    the sum of normalized throughputs, everybody's throughput under ``policy`` as a floor, and keeps its
    value.
    """

    policy: Policy

    def compute_shares(self, problem: ShareProblem) -> Answer:
        answer = self.policy.compute_shares(problem)
        # A floor exactly at what was reached may be infeasible by the solver's tolerance.
        floor = problem.throughput(answer.shares) * (1 - _ROUNDING)
        worth = invert_rates(problem.equal_throughput())
        most = Maximize(TotalThroughput(lambda _: worth), (Floors(lambda _: floor),), near=answer.shares)
        return replace(answer, shares=most.compute_shares(problem).shares)


def invert_rates(values: Floats) -> Floats:
    """Returns 1 / ``values``, and 0 for 0: what a job that cannot run is worth."""
    found: Floats = np.divide(1.0, values, out=np.zeros(len(values)), where=values > 0)
    return found


def runnable_jobs(problem: ShareProblem) -> Flags:
    """Returns which jobs some type can hold, shape (n,)."""
    somewhere: Flags = np.any(problem.allowed_types, axis=1)
    return somewhere[problem.jobs.kind]


def empty_answer(problem: ShareProblem, value: float) -> Answer:
    """Returns the answer where no type can hold any job."""
    return Answer(
        Shares(np.zeros((len(problem.jobs.kind), len(problem.cluster.types)))),
        value,
        list_unrunnable(problem),
    )


def list_unrunnable(problem: ShareProblem) -> tuple[Shortfall, ...]:
    """Returns the jobs that no type can hold."""
    return tuple(
        Shortfall(
            problem.jobs.names[job],
            0.0,
            0.0,
            f"needs {problem.scale[job]} workers of one type at once; no type that can run it has as many",
        )
        for job in np.flatnonzero(~runnable_jobs(problem))
    )
