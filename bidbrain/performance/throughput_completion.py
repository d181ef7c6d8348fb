"""Estimates throughputs that nobody has measured: of jobs on types, and of jobs that share workers.

It uses three sources, the first that knows:

1. Measured: a mean, more certain with every measurement.
2. Completed, for pairs. What two jobs do together, over what each does alone, depends on few things (how much
   of the memory, of the bandwidth, of the processor each takes), so the matrix of such parts among reference
   jobs has a low rank. A new job is tried beside a few of them; alternating least squares (Koren, Bell and
   Volinsky, 2009) completes its row; the reference whose row is nearest stands for it (5.6, Fig. 5.8).
3. The catalogue's relative speed nu of a type, times what the job does on a type where it was measured.

Every estimate says how certain it is, as a relative standard error. Knows nothing of how jobs are profiled.

Source: Narayanan 5.3.3 and 5.6; Quasar: Delimitrou and Kozyrakis, ASPLOS 2014.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from bidbrain.arrays import Flags, Floats

_RIDGE: Final = 0.03
"""Penalty on the factors, per entry: parts lie in [0, 1] and are measured to a few hundredths."""
_SWEEPS: Final = 40
_ONE_MEASUREMENT: Final = 0.1
"""Relative standard error of a single measurement of a minute or so, until repeats improve on it."""
_FROM_CATALOGUE: Final = 0.5
"""Relative standard error of a ratio of two types' catalogue speeds.

Models differ as much (K80 to V100: 2 to 10 in the published table).
"""


class Source(StrEnum):
    """Names where an estimate comes from."""

    MEASURED = "measured"
    COMPLETED = "completed"
    CATALOGUE = "catalogue"


@dataclass(frozen=True, slots=True)
class ThroughputEstimate:
    """Estimates steps per second; ``error`` is the relative standard error."""

    steps_per_s: float
    error: float
    source: Source

    def __str__(self) -> str:
        return f"{self.steps_per_s:.4g} steps/s ± {self.error:.0%} ({self.source})"


class UnknownThroughput(LookupError):
    """Reports a rate that was neither measured nor can be derived; the message says what to measure."""


@dataclass(frozen=True, slots=True)
class MeasuredThroughput:
    """Sums up measurements of one rate: count, mean, and the sum of squares around it (Welford, 1962)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def with_measurement(self, steps_per_s: float) -> MeasuredThroughput:
        """Adds one measurement. Raises ValueError for a rate that is negative or not finite."""
        if not 0.0 <= steps_per_s < np.inf:
            raise ValueError(f"a measured rate is {steps_per_s}, expected a number of steps per second")
        count, away = self.count + 1, steps_per_s - self.mean
        mean = self.mean + away / count
        return MeasuredThroughput(count, mean, self.squares + away * (steps_per_s - mean))

    @property
    def estimate(self) -> ThroughputEstimate:
        """Returns the mean.

        Until the third measurement it assumes the usual error; then it uses the observed one.
        """
        if self.count >= 3 and self.mean > 0:
            each = float(np.sqrt(self.squares / (self.count - 1))) / self.mean
        else:
            each = _ONE_MEASUREMENT
        return ThroughputEstimate(self.mean, each / float(np.sqrt(self.count)), Source.MEASURED)


def estimate_alone(
    measured: Mapping[str, MeasuredThroughput], speed: Mapping[str, float], type_: str
) -> ThroughputEstimate:
    """Estimates what a job does on ``type_``. ``speed``: the catalogue's nu of each type, in any one unit.

    From the catalogue by the geometric mean over the types where the job was measured. Raises
    UnknownThroughput where it was measured nowhere, or a type's nu is not known.
    """
    if type_ in measured and measured[type_].count:
        return measured[type_].estimate
    known = [name for name, seen in measured.items() if seen.count and seen.mean > 0 and name in speed]
    if not known or type_ not in speed:
        raise UnknownThroughput(
            f"nothing is known of this job on {type_}: run it there for a few minutes, or on any of "
            f"{', '.join(sorted(speed)) or 'the types of the catalogue'}"
        )
    # Each measured type gives an estimate; their geometric mean favours none.
    scaled = [measured[name].mean * speed[type_] / speed[name] for name in known]
    error = _FROM_CATALOGUE / float(np.sqrt(len(known)))
    return ThroughputEstimate(float(np.exp(np.mean(np.log(scaled)))), error, Source.CATALOGUE)


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """Holds jobs that were profiled together in advance, on one type.

    ``part[a, b]``: rate of a beside b over its rate alone; 0 where the two cannot share.
    """

    part: Floats

    def find_nearest(self, tried: Mapping[int, float], rank: int = 3) -> Match:
        """Returns the reference that a new job is most like, from its own parts beside a few references.

        Raises UnknownThroughput where nothing was tried.
        """
        if not tried:
            raise UnknownThroughput("a pair's throughput needs a trial beside one reference job or more")
        beside = np.fromiter(tried, np.int64)
        row = np.zeros(len(self.part))
        row[beside] = list(tried.values())
        known = np.ones((len(self.part) + 1, len(self.part)), np.bool_)
        known[-1] = False
        # The new job is the last row: only its trials are known.
        known[-1, beside] = True
        completed = complete_table(np.vstack([self.part, row]), known, rank)[-1]
        completed[beside] = row[beside]
        away = np.sqrt(np.mean((self.part - completed) ** 2, axis=1))
        nearest = int(np.argmin(away))
        return Match(nearest, self.part[nearest], float(away[nearest]))


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Says which ``reference`` stands for a new job.

    Its ``part`` beside every other job, (r,), is off by about ``error``.
    """

    reference: int
    part: Floats
    error: float

    def estimate_beside(self, other: int, own: ThroughputEstimate) -> ThroughputEstimate:
        """Estimates the new job's rate beside reference ``other``, from its own rate alone."""
        part = float(self.part[other])
        if part == 0.0:
            return ThroughputEstimate(0.0, 0.0, Source.COMPLETED)
        error = float(np.hypot(own.error, self.error / part))
        return ThroughputEstimate(own.steps_per_s * part, error, Source.COMPLETED)


def complete_table(table: Floats, known: Flags, rank: int) -> Floats:
    """Fills ``table`` (n, m), given where ``known``, by a matrix of ``rank`` around the columns' means.

    Alternating ridge regressions start from the leading singular vectors of what is known: nothing is random.
    """
    weight = known.astype(np.float64)
    seen = np.where(known, table, 0.0)
    mean = seen.sum(axis=0) / np.maximum(weight.sum(axis=0), 1.0)
    rest = np.where(known, table - mean, 0.0)
    _, scale, across = np.linalg.svd(rest, full_matrices=False)
    rank = min(rank, len(scale))
    right = across[:rank].T * np.sqrt(scale[:rank])
    left = np.zeros((len(table), rank))
    for _ in range(_SWEEPS):
        left = _regress_factors(rest, weight, right)
        right = _regress_factors(rest.T, weight.T, left)
    return np.asarray(np.where(known, table, np.clip(mean + left @ right.T, 0.0, None)))


def _regress_factors(rest: Floats, weight: Floats, other: Floats) -> Floats:
    """Returns one side's factors given the other's: a small ridge regression per row, all at once."""
    gram = np.einsum("nm,mr,ms->nrs", weight, other, other)
    gram += _RIDGE * np.maximum(weight.sum(axis=1), 1.0)[:, None, None] * np.eye(other.shape[1])
    return np.asarray(np.linalg.solve(gram, (rest @ other)[:, :, None])[:, :, 0])
