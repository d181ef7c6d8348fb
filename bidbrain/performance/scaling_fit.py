"""Fits phi, sigma, lambda and nu to what a running job shows, in place of the configured figures.

    v        speed         work per second, between two stamps of progress
    n        machines      of the footprint in force; k of them of one type
    nu       speeds        work per second of one machine of a type, working alone (``speed_fit.py``)
    phi      share of ideal speed per doubling: v = phi ** log2(n) x sum k nu
    sigma, lambda          seconds without progress after machines joined, or were lost

The paper sets all four by hand (Harlap 4.3.1). Here each change of the footprint opens a stretch. Its speed
is the median over the stretch's later stamps. The time it lost is how much longer its work took than it would
have at the old speed until the change and at the new one from then on. phi is the median slope of log(v / sum
k nu) over log2(n) between stretches of different size (Theil 1950, Sen 1968): a slope, so that rates which
are all wrong by one factor do no harm. All estimates are medians, each with its configured value as one more
observation: a late stamp moves nothing. Knows no clocks and no messages: computed from plain values.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import combinations, pairwise
from types import MappingProxyType
from typing import Final

from bidbrain.model import ScalingModel
from bidbrain.performance.speed_fit import Speed, Speeds, SpeedSpell
from pricing_data.model.units import Seconds

_KEPT: Final = 32
"""Observations kept of one quantity; older ones are dropped, so that a job that changes is followed."""
_SETTLED: Final = 4
"""Intervals between stamps that a stretch needs before it counts; half of them for its speed."""
_APART: Final = 0.5
"""Doublings between two stretches that are needed for their slope to count."""


@dataclass(frozen=True, slots=True)
class RobustEstimate:
    """Takes the median of the latest observations and of a prior that counts as ``weight`` observations."""

    prior: float
    weight: int = 1
    seen: tuple[float, ...] = ()

    @property
    def value(self) -> float:
        return statistics.median((*self.seen, *[self.prior] * self.weight))

    def with_seen(self, value: float) -> RobustEstimate:
        """Adds one observation; ignores it if it is not finite."""
        return replace(self, seen=(*self.seen, value)[-_KEPT:]) if math.isfinite(value) else self


class FootprintChange(StrEnum):
    """Says why work stood still: machines that join cost sigma, machines that are lost lambda."""

    JOINED = "joined"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Stamp:
    """Records work done by a moment: any unit, any origin, neither ever falling."""

    at_s: float
    work: float


@dataclass(frozen=True, slots=True)
class FootprintStretch:
    """Covers the time from one change of the footprint to the next."""

    machines: Mapping[str, int]
    """Those that compute, by type."""
    stamps: tuple[Stamp, ...] = ()
    """The first one is the last before the change."""
    change: FootprintChange | None = None
    changed_at_s: float = 0.0
    old_speed: float | None = None
    """Speed before the change; None where that stretch was too short to tell."""

    @property
    def machine_count(self) -> int:
        return sum(self.machines.values())

    @property
    def median_speed(self) -> float | None:
        """Returns the median work per second over the later half of the intervals.

        None while there are too few.
        """
        after = [stamp for stamp in self.stamps if stamp.at_s >= self.changed_at_s]
        pairs = [(a, b) for a, b in pairwise(after) if b.at_s > a.at_s]
        # Too few intervals for a median that a late stamp cannot move.
        if len(pairs) < _SETTLED:
            return None
        return statistics.median((b.work - a.work) / (b.at_s - a.at_s) for a, b in pairs[len(pairs) // 2 :])

    def as_spell(self, speed: float) -> SpeedSpell:
        """Returns what it says of its types: ``speed`` is as if none of its machines waited for another."""
        seconds = self.stamps[-1].at_s - self.changed_at_s if self.stamps else 0.0
        machines = tuple(sorted((name, count) for name, count in self.machines.items() if count))
        return SpeedSpell(machines, speed, max(seconds, 0.0))

    @property
    def lost_s(self) -> Seconds | None:
        """Returns seconds without progress that the change cost; None where that cannot be determined."""
        speed = self.median_speed
        if self.change is None or speed is None or self.old_speed is None or speed <= 0:
            return None
        first, last = self.stamps[0], self.stamps[-1]
        before_s = max(self.changed_at_s - first.at_s, 0.0)
        rest = last.work - first.work - self.old_speed * before_s
        return Seconds(max(last.at_s - first.at_s - before_s - rest / speed, 0.0))


@dataclass(frozen=True, slots=True)
class MeasuredScaling:
    """Holds what is believed of a job so far. An immutable value: a stamp or a change gives a new one."""

    log_phi: RobustEstimate
    sigma_s: RobustEstimate
    lambda_s: RobustEstimate
    speeds: Speeds
    """nu by type."""
    sizes: tuple[tuple[float, float], ...] = ()
    """(log2 n, log(v / sum k nu)) of the stretches that were long enough."""
    now: FootprintStretch = field(default_factory=lambda: FootprintStretch(MappingProxyType({})))

    @classmethod
    def from_configured(
        cls, scaling: ScalingModel, rates: Mapping[str, float], machines: Mapping[str, int]
    ) -> MeasuredScaling:
        """Takes configured figures, believed until something is seen.

        ``rates`` must name every type to come.
        """
        return cls(
            log_phi=RobustEstimate(math.log(scaling.phi)),
            sigma_s=RobustEstimate(scaling.sigma_s),
            lambda_s=RobustEstimate(scaling.lambda_s),
            speeds=Speeds(tuple(sorted(rates.items()))),
            now=FootprintStretch(machines),
        )

    def add_stamp(self, stamp: Stamp) -> MeasuredScaling:
        """Adds a report of work; drops the oldest stamps of a long stretch."""
        stamps = (*self.now.stamps, stamp)
        if len(stamps) > 2 * _KEPT:
            # The first stamp stays: the time lost by the change is measured from it.
            stamps = (stamps[0], *stamps[2:])
        return replace(self, now=replace(self.now, stamps=stamps))

    def change_footprint(
        self, at_s: float, change: FootprintChange, machines: Mapping[str, int]
    ) -> MeasuredScaling:
        """Changes the footprint to ``machines``, and learns from the stretch before it.

        Raises KeyError where ``machines`` has a type without a rate.
        """
        known = dict(self.speeds.nominal)
        for name in machines:
            if name not in known:
                raise KeyError(f"no rate for {name}: give Measured.begin one for every type of the job")
        closed = self._learn_from_stretch()
        opened = FootprintStretch(machines, self.now.stamps[-1:], change, at_s, self.now.median_speed)
        return replace(closed, now=opened)

    def fit_scaling(self, configured: ScalingModel) -> ScalingModel:
        """Returns ``configured`` with what was measured, the current stretch included."""
        seen = self._learn_from_stretch()
        return replace(
            configured,
            phi=min(math.exp(seen.log_phi.value), 1.0),
            sigma_s=Seconds(seen.sigma_s.value),
            lambda_s=Seconds(seen.lambda_s.value),
        )

    def fit_speeds(self) -> dict[str, Speed]:
        """Returns nu of every type, with intervals, the current stretch included."""
        return self._learn_from_stretch().speeds.fit_speeds()

    def types_seen(self) -> frozenset[str]:
        """Returns the types whose machines took part in what ``fit_speeds`` is based on."""
        return frozenset(
            name for spell in self._learn_from_stretch().speeds.spells for name, _ in spell.machines
        )

    def safe_speeds(self) -> dict[str, float]:
        """Returns nu that a promise may count on.

        A type not seen yet reaches no more of its nominal speed than the slowest that was. What it shares
        with them lowers its mean by less, because types that were never seen are believed to be as fast as
        their cores.
        """
        speeds = self._learn_from_stretch().speeds
        nominal = dict(speeds.nominal)
        values = {name: speed.value for name, speed in speeds.fit_speeds().items()}
        seen = {name for spell in speeds.spells for name, _ in spell.machines}
        least = min((values[name] / nominal[name] for name in seen), default=math.inf)
        return {name: v if name in seen else min(v, least * nominal[name]) for name, v in values.items()}

    def _learn_from_stretch(self) -> MeasuredScaling:
        """Adds what the current stretch shows, where it is long enough for anything."""
        speed, lost_s = self.now.median_speed, self.now.lost_s
        if (
            speed is None or speed <= 0 or not self.now.machine_count
        ):  # its work is that of machines already gone
            return self
        nominal = dict(self.speeds.nominal)
        ideal = sum(count * nominal[name] for name, count in self.now.machines.items())
        sizes = (*self.sizes, (math.log2(max(self.now.machine_count, 1)), math.log(speed / ideal)))[-_KEPT:]
        # Theil-Sen: the median of all slopes between stretches of sufficiently different size.
        slopes = tuple((b - a) / (y - x) for (x, a), (y, b) in combinations(sizes, 2) if abs(y - x) >= _APART)
        measured = replace(self, sizes=sizes, log_phi=replace(self.log_phi, seen=slopes))
        spell = self.now.as_spell(speed / measured._efficiency(self.now.machine_count))
        measured = replace(measured, speeds=self.speeds.with_spell(spell))
        if lost_s is None:
            return measured
        if self.now.change is FootprintChange.JOINED:
            return replace(measured, sigma_s=self.sigma_s.with_seen(lost_s))
        return replace(measured, lambda_s=self.lambda_s.with_seen(lost_s))

    def _efficiency(self, machines: int) -> float:
        return float(math.exp(min(self.log_phi.value, 0.0) * math.log2(max(machines, 1))))
