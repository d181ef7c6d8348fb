"""Merges jobs that are alike, and lists what a program decides about them.

That is the time of a class alone, or beside another. Knows no constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Flags, Floats, Indices
from bidbrain.cluster.policies.problem import ShareProblem, Shares


@dataclass(frozen=True, slots=True, eq=False)
class JobClasses:
    """Groups jobs.

    ``of`` (n,): class of each job. ``first`` (classes,): a job of each. ``size`` (classes,).
    """

    of: Indices
    first: Indices
    size: Floats

    @classmethod
    def merge_alike(cls, problem: ShareProblem, *told_apart_by: Floats | Indices) -> JobClasses:
        """Merges jobs of one kind for which every one of ``told_apart_by``, each (n,), is equal."""
        keys = (problem.jobs.kind, *told_apart_by)
        # Sorting puts like jobs side by side; a class begins wherever any key changes.
        order = np.lexsort(keys)
        begins = np.zeros(len(order), np.bool_)
        begins[:1] = True
        for key in keys:
            begins[1:] |= key[order[1:]] != key[order[:-1]]
        of = np.empty(len(order), np.int64)
        of[order] = np.cumsum(begins) - 1
        return cls(of, order[begins], np.bincount(of).astype(np.float64))

    def common_values(self, values: Floats) -> Floats:
        """Returns the value (classes,) that the jobs of each class share, from ``values`` (n,)."""
        return values[self.first]

    def means(self, values: Floats) -> Floats:
        """Returns the mean (classes,) of ``values`` (n,) over the jobs of each class."""
        return np.asarray(np.bincount(self.of, weights=values, minlength=len(self.size)) / self.size)


@dataclass(frozen=True, slots=True, eq=False)
class TimeVariables:
    """Lists the variables y: one per class, or pair of classes, and type on which it may run.

    All arrays have shape (v,). ``other`` is ``mine`` where the class is alone; then ``their_rate`` is 0.
    """

    mine: Indices
    other: Indices
    paired: Flags
    type: Indices
    my_rate: Floats
    their_rate: Floats

    @classmethod
    def from_classes(cls, problem: ShareProblem, classes: JobClasses, open_to: Flags | None) -> TimeVariables:
        kind = problem.jobs.kind[classes.first]
        mine, place = np.nonzero(problem.allowed_types[kind] if open_to is None else open_to[classes.first])
        rates = problem.kinds.rates[kind[mine], place]
        alone = (mine, mine, np.zeros(len(mine), np.bool_), place, rates, np.zeros(len(mine)))
        if problem.kinds.together is None:
            return cls(*alone)
        pairs = cls._pair_classes(problem, classes, kind)
        return cls(*(np.concatenate(both) for both in zip(alone, pairs, strict=True)))

    @staticmethod
    def _pair_classes(problem: ShareProblem, classes: JobClasses, kind: Indices) -> Sequence[np.ndarray]:
        """Pairs classes whose jobs can share.

        One scale, both run, and two jobs where a class meets itself.
        """
        together, scale = problem.kinds.together, problem.kinds.scale[kind]
        assert together is not None
        first, second = np.triu_indices(len(kind))
        # A pair shares the same workers, so both need as many.
        fit = (scale[first] == scale[second]) & ((first != second) | (classes.size[first] >= 2))
        first, second = first[fit], second[fit]
        ours, theirs = together[kind[first], kind[second]], together[kind[second], kind[first]]
        allowed = problem.allowed_types[kind]
        runs = (ours > 0) & (theirs > 0) & allowed[first] & allowed[second]
        pair, place = np.nonzero(runs & (_pairing_gain(problem, kind, first, second, ours, theirs) > 0))
        flags = np.ones(len(pair), np.bool_)
        return first[pair], second[pair], flags, place, ours[pair, place], theirs[pair, place]

    def pairs_in(self, shares: Shares, classes: JobClasses) -> Flags:
        """Returns which variables (v,) of pairs have time in ``shares``."""
        if shares.paired is None:
            return np.zeros(len(self.mine), np.bool_)
        count, types = len(classes.size), shares.paired.shape[1]
        pair, type_ = np.nonzero(shares.paired)
        one, two = classes.of[shares.first[pair]], classes.of[shares.second[pair]]
        # One number per (c, d, j) with c <= d, as the variables have it.
        used = (np.minimum(one, two) * count + np.maximum(one, two)) * types + type_
        own = (self.mine * count + self.other) * types + self.type
        return np.asarray(self.paired & np.isin(own, used))

    def deal_pairs(self, y: Floats, classes: JobClasses, types: int) -> tuple[Indices, Indices, Floats]:
        """Deals the time ``y`` (v,) of class pairs out to job pairs; returns both jobs and their time (p, k).

        Every job of a class gets the same, by few partners. Jobs of c and d lie side by side on a line of
        length 1, each taking 1/n[c] or 1/n[d] of it; two are partners as far as they overlap. Within a class
        each job's partners are its neighbours in a ring.
        """
        members = np.split(
            np.argsort(classes.of, kind="stable"), np.cumsum(classes.size.astype(np.int64))[:-1]
        )
        parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, types)))]
        used = self.paired & (y > 0)
        for c, d in {(int(a), int(b)) for a, b in zip(self.mine[used], self.other[used], strict=True)}:
            here = used & (self.mine == c) & (self.other == d)
            time = np.zeros(types)
            time[self.type[here]] = y[here]
            first, second, part = (
                _ring_neighbours(len(members[c]))
                if c == d
                else _overlap_pieces(len(members[c]), len(members[d]))
            )
            parts.append((members[c][first], members[d][second], part[:, None] * time))
        one, two, paired = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return one, two, paired


def _pairing_gain(
    problem: ShareProblem, kind: Indices, first: Indices, second: Indices, ours: Floats, theirs: Floats
) -> Floats:
    """Returns what a pair's time is worth above the two taking turns, in shares of each one's rate alone.

    A pair that taking turns equals in both rates can be left out: replacing it costs no throughput.
    """
    alone = np.maximum(problem.kinds.rates, 1e-300)
    return np.asarray(ours / alone[kind[first]] + theirs / alone[kind[second]] - 1.0)


def _ring_neighbours(count: int) -> tuple[Indices, Indices, Floats]:
    """Returns neighbours in a ring of ``count`` >= 2, and their part of the class's paired time."""
    first = np.arange(count if count > 2 else 1)
    return first, (first + 1) % count, np.full(len(first), 1.0 / len(first))


def _overlap_pieces(left: int, right: int) -> tuple[Indices, Indices, Floats]:
    """Cuts 1 into ``left`` and into ``right`` equal pieces; returns which overlap, and how far."""
    cuts = np.unique(np.concatenate([np.arange(left + 1) * right, np.arange(right + 1) * left]))
    middle = (cuts[1:] + cuts[:-1]) / 2
    return (
        (middle // right).astype(np.int64),
        (middle // left).astype(np.int64),
        np.diff(cuts) / (left * right),
    )
