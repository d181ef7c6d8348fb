"""Defines what a sharing policy may know, and what it answers.

Many jobs, few types of workers, shares of time.

    m, n        job m of n, in the order of their arrival
    j, k        type j of k types of workers
    T[m, j]     ``rates``: steps per second of the whole job on type j; 0: it cannot run there
    T[m, j, m'] ``together``: the same while it shares its workers with m' (space sharing)
    s[m]        ``scale``: workers that the job needs at once
    N[j]        ``workers``: how many there are, or can be bought
    c[j]        ``cost``: expected dollars per worker-hour: charge, refunds, work lost to evictions
    X[m, j]     share of wall-clock time that job m spends on type j until the next answer
    thr(m, X)   effective throughput: sum of T[m, j] X[m, j], over pairs too (Narayanan 5.3.1)

Many jobs are alike. So what a job is (its rates, alone and with others, and its scale) is stated once per
*kind*, and what it wants (weight, steps left, ...) per job. An allocation is valid when no job has more than
all of its time and no type more work than workers: sum_j X[m, j] <= 1 and sum_m s[m] X[m, j] <= N[j], where a
pair counts for both its jobs in the first sum and once in the second.

Does not know how shares become rounds (``rounds.py``) or where rates and costs come from.

Source: Narayanan, dissertation, 5.3.1 and 5.4.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Flags, Floats, Indices


class InvalidProblem(ValueError):
    """Reports that the problem contradicts itself; the message says where, and what was expected."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterCapacity:
    """Lists types of workers. ``cost``: dollars per worker-hour (k,)."""

    types: tuple[str, ...]
    workers: Floats
    cost: Floats

    def __post_init__(self) -> None:
        _check_array("workers", self.workers, (len(self.types),), least=0.0)
        _check_array("cost", self.cost, (len(self.types),), least=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class JobKinds:
    """Says what jobs are. ``rates`` (kinds, k) in steps per second, ``scale`` (kinds,) workers.

    ``together[a, b, j]``, if given: rate of kind a on type j while kind b runs on the same workers. Only
    kinds of one scale can; where either's rate is 0 the two never share.
    """

    rates: Floats
    scale: Indices
    together: Floats | None = None

    def __post_init__(self) -> None:
        _check_array("rates", self.rates, (len(self.scale), self.rates.shape[-1]), least=0.0)
        _check_array("scale", self.scale, (len(self.scale),), least=1)
        if self.together is not None:
            shape = (len(self.scale), *self.rates.shape)
            _check_array("together", self.together, shape, least=0.0)

    def fitting_types(self, workers: Floats) -> Flags:
        """Returns where a job of each kind can run with all its workers at once, shape (kinds, k)."""
        return (self.rates > 0) & (self.scale[:, None] <= workers)


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """Says what jobs want, in the order of their arrival; every array has shape (n,).

    ``kind``: index into ``JobKinds``. ``steps``: left to do. ``age_s``: since it arrived. ``isolated_s``:
    what its work so far would have taken with 1/n of the cluster. ``slo_s``: seconds from now by which it
    should be done, infinite where it need not. ``entity``: index of its owner.
    """

    names: tuple[str, ...]
    kind: Indices
    weight: Floats
    steps: Floats
    age_s: Floats
    isolated_s: Floats
    slo_s: Floats
    entity: Indices

    def __post_init__(self) -> None:
        shape = (len(self.names),)
        for name in ("weight", "steps", "age_s", "isolated_s", "slo_s"):
            _check_array(name, getattr(self, name), shape, least=0.0)
        for name in ("kind", "entity"):
            _check_array(name, getattr(self, name), shape, least=0)
        if not bool(np.all(self.weight > 0)):
            raise InvalidProblem(
                f"weight: found 0 for {self.names[int(np.argmin(self.weight))]}, expected more"
            )

    @classmethod
    def from_kinds(
        cls,
        kind: npt.ArrayLike,
        *,
        names: tuple[str, ...] = (),
        weight: npt.ArrayLike = 1.0,
        steps: npt.ArrayLike = 1.0,
        age_s: npt.ArrayLike = 0.0,
        isolated_s: npt.ArrayLike = 0.0,
        slo_s: npt.ArrayLike = np.inf,
        entity: npt.ArrayLike = 0,
    ) -> Self:
        """Makes jobs of these kinds; a single number holds for all."""
        kinds = np.asarray(kind, np.int64)

        def for_each(value: npt.ArrayLike) -> Floats:
            return np.broadcast_to(np.asarray(value, np.float64), kinds.shape).copy()

        return cls(
            names or tuple(f"job{number}" for number in range(len(kinds))),
            kinds,
            for_each(weight),
            for_each(steps),
            for_each(age_s),
            for_each(isolated_s),
            for_each(slo_s),
            np.broadcast_to(np.asarray(entity, np.int64), kinds.shape).copy(),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """Holds X. ``alone`` (n, k); pairs of jobs ``first`` and ``second`` (p,) share for ``paired`` (p, k)."""

    alone: Floats
    first: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    second: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    paired: Floats | None = None

    @property
    def per_job(self) -> Floats:
        """Returns the time of each job on each type, alone or not, shape (n, k)."""
        times = self.alone.copy()
        if self.paired is not None:
            # np.add.at, because a job may be in several pairs.
            np.add.at(times, self.first, self.paired)
            np.add.at(times, self.second, self.paired)
        return times


@dataclass(frozen=True, slots=True, eq=False)
class ShareProblem:
    """Holds all that a policy may ask.

    ``entity_weight`` (entities,): what hierarchical policies share by. ``any_size``: a job may get a share of
    a type that has fewer workers than it needs, as the code published with the paper allows; such a share
    could never be scheduled.
    """

    cluster: ClusterCapacity
    kinds: JobKinds
    jobs: Jobs
    entity_weight: Floats = field(default_factory=lambda: np.ones(1))
    any_size: bool = False

    def __post_init__(self) -> None:
        if self.kinds.rates.shape[1] != len(self.cluster.types):
            raise InvalidProblem(
                f"rates: found {self.kinds.rates.shape[1]} columns, expected {len(self.cluster.types)} types"
            )
        for name, limit in (("kind", len(self.kinds.scale)), ("entity", len(self.entity_weight))):
            found = getattr(self.jobs, name)
            if len(found) and found.max() >= limit:
                raise InvalidProblem(f"{name}: found {found.max()}, expected less than {limit}")

    @property
    def rates(self) -> Floats:
        """Returns T, shape (n, k)."""
        return np.asarray(self.kinds.rates[self.jobs.kind])

    @property
    def scale(self) -> Indices:
        """Returns s, shape (n,)."""
        return np.asarray(self.kinds.scale[self.jobs.kind])

    @property
    def allowed_types(self) -> Flags:
        """Returns where jobs of each kind may get a share, shape (kinds, k)."""
        return self.kinds.rates > 0 if self.any_size else self.kinds.fitting_types(self.cluster.workers)

    def equal_throughput(self) -> Floats:
        """Returns thr(m, X_equal), shape (n,).

        The job's time spread evenly over all workers (5.4.1), if any.
        """
        workers = self.cluster.workers
        part = workers / (workers.sum() or 1.0)
        return np.asarray((self.kinds.rates @ part)[self.jobs.kind])

    def isolated_throughput(self) -> Floats:
        """Returns thr(m, X_iso), shape (n,): 1/n of every type, cut down to all of the job's time."""
        share = self.cluster.workers / (len(self.jobs.kind) * self.kinds.scale[:, None])
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
        return np.asarray(np.sum(self.kinds.rates * share, axis=1)[self.jobs.kind])

    def throughput(self, shares: Shares) -> Floats:
        """Returns thr(m, X) of these shares, shape (n,)."""
        total = np.asarray(np.sum(self.rates * shares.alone, axis=1))
        if shares.paired is not None and self.kinds.together is not None:
            ours, theirs = self.jobs.kind[shares.first], self.jobs.kind[shares.second]
            np.add.at(total, shares.first, np.sum(self.kinds.together[ours, theirs] * shares.paired, axis=1))
            np.add.at(total, shares.second, np.sum(self.kinds.together[theirs, ours] * shares.paired, axis=1))
        return total

    def cost_per_hour(self, shares: Shares) -> float:
        """Returns expected dollars per hour of these shares; a pair is paid once."""
        used = self.scale @ shares.alone
        if shares.paired is not None:
            used = used + self.scale[shares.first] @ shares.paired
        return float(used @ self.cluster.cost)

    def without_pairs(self) -> ShareProblem:
        """Returns the same problem without space sharing."""
        return replace(self, kinds=replace(self.kinds, together=None))

    def without_types(self, reference: int) -> ShareProblem:
        """Returns what a policy sees that takes all workers for type ``reference``: every policy's baseline.

        Rates become the reference's wherever a share is allowed at all, or the best rate for jobs that cannot
        run on the reference; nothing is known of sharing.
        """
        told = self.kinds.rates[:, [reference]]
        told = np.where(told > 0, told, self.kinds.rates.max(axis=1, keepdims=True))
        flat = np.broadcast_to(told, self.kinds.rates.shape)
        seen = flat if self.any_size else np.where(self.allowed_types, flat, 0.0)
        return replace(self, kinds=replace(self.kinds, rates=np.array(seen), together=None))


def _check_array(name: str, found: npt.NDArray[np.generic], shape: tuple[int, ...], least: float) -> None:
    if found.shape != shape:
        raise InvalidProblem(f"{name}: found shape {found.shape}, expected {shape}")
    if found.size and not bool(np.all(np.asarray(found, np.float64) >= least)):
        raise InvalidProblem(
            f"{name}: found {np.nanmin(np.asarray(found, np.float64))}, expected at least {least:g}"
        )
