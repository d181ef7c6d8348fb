"""What a decision is made from and what it looks like: values, and questions about them.

Everything a decision may depend on is a field of ``Observation``; there is no other way in. Holdings
and offers are facts and prices as the caller knows them at ``now``: this package asks no cloud and
reads no clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from bidbrain.eviction.base import FittedMarkets
from bidbrain.relocation.egress import Carried
from pricing_data.model.market import Market, MarketRules
from pricing_data.model.units import Instant, Seconds, Usd, UsdPerHour

BID_DELTAS: Final = tuple(round(float(delta), 6) for delta in np.geomspace(0.0001, 0.4, 20))
"""Dollars per hour above the price: the range of Harlap 4.3.1, spaced evenly in the logarithm."""


UNBOUNDED: Final = UsdPerHour(math.inf)
"""The bid of a machine that no price takes away."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One allocation of the footprint, requested or running: one market, one moment, one bid."""

    id: str
    market: Market
    count: int
    cores: float
    """Per instance: nu, the work it does per second; its virtual cores unless that was measured."""
    bid: UsdPerHour
    price: UsdPerHour
    """Locked at the start of its billing hour; the current price while it is pending."""
    hour_ends: Instant
    """End of the hour it is held for, counted from its start even where seconds are billed; the next hour's
    as soon as it is renewed. An hour from now while it is pending."""
    counts_for: int
    """How many of its instances still live and are not warned."""
    started: Instant | None = None
    """When it began to run; None while it is pending."""
    on_demand: bool = False
    """Not revocable: it costs ``price`` of the list, and its bid means nothing."""

    def age_s(self, now: Instant) -> Seconds:
        return Seconds(0.0 if self.started is None else float(now - self.started))


@dataclass(frozen=True, slots=True)
class Offer:
    """A market as it stands now. ``cores`` (nu, as in ``Holding``) and prices are per instance."""

    market: Market
    price: UsdPerHour
    on_demand: UsdPerHour
    cores: float
    open: bool = True
    """False where nothing more may be requested now (quota, no capacity); its price still counts."""
    rentable: bool = True
    """False where no promise may rest on machines on demand: their quota is kept for others."""
    surely: float = math.inf
    """What a promise may take for ``cores``, where that is less: nobody has seen the type at work yet."""


@dataclass(frozen=True, slots=True)
class Reliable:
    """The machines that are never revoked and never dropped (Harlap 4.3.2), if only for the model's sake."""

    count: int
    price: UsdPerHour
    cores: float


@dataclass(frozen=True, slots=True)
class Limits:
    """How far the footprint may grow. ``max_instances`` counts transient instances that live, unwarned."""

    max_instances: int
    max_per_allocation: int
    bid_deltas: tuple[float, ...] = BID_DELTAS
    """The bids tried, in dollars per hour above the price; increasing, none negative."""
    max_cores: float = math.inf
    """Cores of transient instances that live, unwarned, where machines of several sizes are to be held."""

    def __post_init__(self) -> None:
        if self.max_instances < 0 or self.max_per_allocation < 1:
            raise ValueError("max_instances must be at least 0 and max_per_allocation at least 1")
        if not self.bid_deltas or self.bid_deltas[0] < 0 or list(self.bid_deltas) != sorted(self.bid_deltas):
            raise ValueError("bid_deltas must be increasing, none negative, and at least one")


class Curve(StrEnum):
    """How ``Scaling.phi`` is read."""

    PER_DOUBLING = "per doubling"
    """Doubling the instances multiplies the speed by 2 phi."""
    CONSTANT = "constant"
    """Equation 4.3 to the letter: phi whatever the footprint. It scales every E alike and decides nothing."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How the job takes to more machines (phi), to changes (sigma) and to evictions (lambda)."""

    phi: float
    sigma_s: Seconds
    """Without progress whenever a decision changes the footprint."""
    lambda_s: Seconds
    """Without progress when something is evicted."""
    stage2_above: float
    stage3_above: float
    """Transient instances per reliable one above which stages 2 and 3 of the elastic trainer hold."""
    curve: Curve = Curve.PER_DOUBLING

    def __post_init__(self) -> None:
        if not 0 < self.phi <= 1:
            raise ValueError(f"phi is a share of ideal speed, above 0 and up to 1, not {self.phi}")

    def efficiency(self, instances: float) -> float:
        """Speed of ``instances`` working together as a share of ``instances`` times one alone.

        phi ** log2(instances): the paper's coefficient (Harlap 4.3.1), paid once per doubling. A declared
        deviation: its constant would let any footprint scale without end.
        """
        if self.curve is Curve.CONSTANT:
            return self.phi
        return float(self.phi ** math.log2(max(instances, 1.0)))

    def efficiencies(self, instances: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """``efficiency`` of many footprints, any shape."""
        if self.curve is Curve.CONSTANT:
            return np.full(instances.shape, self.phi)
        found: npt.NDArray[np.float64] = self.phi ** np.log2(np.maximum(instances, 1.0))
        return found

    def stage(self, transient: int, reliable: int) -> int:
        """1, 2 or 3 (Harlap 4.2.2); in stage 3 the reliable machines do no work."""
        if transient > self.stage3_above * reliable:
            return 3
        return 2 if transient > self.stage2_above * reliable else 1

    def reliable_work(self, transient: npt.NDArray[np.float64], reliable: int) -> npt.NDArray[np.bool_]:
        """Whether the reliable machines work beside ``transient`` instances, any shape: not in stage 3."""
        works: npt.NDArray[np.bool_] = transient <= self.stage3_above * reliable
        return works

    def at_work(self, reliable: Reliable, transient: int) -> int:
        """How many of the reliable machines work beside ``transient`` instances: none in stage 3."""
        return reliable.count if self.stage(transient, reliable.count) < 3 else 0

    def speed(self, transient: Sequence[tuple[int, float]], reliable: Reliable) -> float:
        """Core-seconds per second of ``transient``, (instances, nu of one), and the reliable machines."""
        instances = sum(count for count, _ in transient)
        beside = self.at_work(reliable, instances)
        cores = sum(count * cores for count, cores in transient) + beside * reliable.cores
        return cores * self.efficiency(instances + beside)


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a decision sees. ``evictions`` must have been fitted to nothing later than ``now``."""

    now: Instant
    rules: MarketRules
    reliable: Reliable
    footprint: tuple[Holding, ...]
    offers: tuple[Offer, ...]
    limits: Limits
    scaling: Scaling
    evictions: FittedMarkets
    work_left: float = math.inf
    """Core-seconds the job still has to do, where that is known: near its end more machines are no use."""
    carried: Carried | None = None
    """What going on in another region costs; None where a job's checkpoints are nobody's concern."""

    def __post_init__(self) -> None:
        revocable = {holding.market for holding in self.footprint if not holding.on_demand}
        missing = revocable - {offer.market for offer in self.offers}
        if missing:
            raise ValueError(f"no current price is given for markets of the footprint: {sorted(missing)}")

    def offer(self, market: Market) -> Offer:
        """The offer of ``market``; raises KeyError where it has none."""
        for offer in self.offers:
            if offer.market == market:
                return offer
        raise KeyError(market)

    def holding(self, holding_id: str) -> Holding:
        """The holding of that id; raises KeyError where the footprint has none."""
        for holding in self.footprint:
            if holding.id == holding_id:
                return holding
        raise KeyError(holding_id)

    @property
    def live(self) -> int:
        """Transient instances that live and are not warned, requested ones included."""
        return sum(holding.counts_for for holding in self.footprint)


class Action(StrEnum):
    """What a decision does to the footprint."""

    ACQUIRE = "acquire"
    """Ask for one more allocation."""
    RENEW = "renew"
    """Keep an allocation for another billing quantum."""
    TERMINATE = "terminate"
    """Let an allocation go before its next billing quantum."""
    HOLD = "hold"
    """Nothing: no alternative is better than what there is."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """One alternative that was looked at; charge, work and their ratio are the whole footprint's with it."""

    action: Action
    market: Market | None
    count: int
    bid_delta: float | None
    beta: float
    """Of the allocation in question; of "anything at all is evicted" where there is none (hold)."""
    expected_charge: Usd
    expected_work: float
    """Core-seconds."""
    cost_per_work: float
    """E: dollars per core-second; infinite where no work is expected."""
    chosen: bool
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now, what else was weighed, and why, in one sentence for a person."""

    at: Instant
    action: Action
    cost_per_work_now: float
    """E of the footprint as it stands; infinite where it does no work."""
    why: str
    weighed: tuple[Weighed, ...]
    """The footprint as it is, and the best bid per market and count."""
    considered: int
    """How many alternatives were compared in all."""
    holding: str | None = None
    """For renew and terminate."""
    market: Market | None = None
    count: int = 0
    bid: UsdPerHour | None = None
    """For acquire: ``count`` instances of ``market`` at ``bid``; on demand where there is none."""
    again: bool = False
    """For acquire: another decision follows at the same moment, as a request may ask for no more together."""
