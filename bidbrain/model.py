"""Defines what a decision is made from and what it looks like.

Everything a decision may depend on is a field of ``Observation``; there is no other way in. Holdings and
offers are facts and prices as the caller knows them at ``now``: this package queries no cloud and reads no
clock.
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
from bidbrain.relocation.egress import CarriedCheckpoint
from pricing_data.model.market import Market, MarketRules
from pricing_data.model.units import Instant, Seconds, Usd, UsdPerHour

BID_DELTAS: Final = tuple(round(float(delta), 6) for delta in np.geomspace(0.0001, 0.4, 20))
"""Bid deltas tried by default, in dollars per hour above the price.

They cover the range of Harlap 4.3.1, evenly spaced in the logarithm.
"""


UNBOUNDED: Final = UsdPerHour(math.inf)
"""The bid of a machine that no price evicts."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Holds one allocation of the footprint, requested or running: one market, one moment, one bid."""

    id: str
    market: Market
    count: int
    cores: float
    """nu of one instance: the work it does per second. Its virtual cores, unless a job measured it."""
    bid: UsdPerHour
    price: UsdPerHour
    """Locked at the start of its billing hour; while it is pending, the current price."""
    hour_ends: Instant
    """The end of its current hour.

    Hours count from its start, even where seconds are billed. A renewal moves this to the end of the next
    hour at once. While it is pending: an hour from now.
    """
    counts_for: int
    """Number of its instances that are alive and have no eviction warning."""
    started: Instant | None = None
    """The moment at which it began to run; None while it is pending."""
    on_demand: bool = False
    """Whether it is not revocable: it then costs the list price ``price``, and its bid means nothing."""

    def age_s(self, now: Instant) -> Seconds:
        """Returns for how long it has run, in seconds; 0 while it is pending."""
        return Seconds(0.0 if self.started is None else float(now - self.started))


@dataclass(frozen=True, slots=True)
class Offer:
    """Describes a market as it stands now. ``cores`` (nu, as in ``Holding``) and prices are per instance."""

    market: Market
    price: UsdPerHour
    on_demand: UsdPerHour
    cores: float
    open: bool = True
    """False where nothing more can be requested now (quota, no capacity); its price still counts."""
    rentable: bool = True
    """False where no promise may rest on on-demand machines, because their quota is reserved for others."""
    safe_cores: float = math.inf
    """The ``cores`` that a promise may count on.

    Less than ``cores`` where no job has run on this type yet.
    """


@dataclass(frozen=True, slots=True)
class ReliableMachines:
    """Counts the machines that are never revoked and never dropped (Harlap 4.3.2).

    They keep the model, even where they do no work.
    """

    count: int
    price: UsdPerHour
    cores: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds the footprint's growth.

    ``max_instances`` counts transient instances that are alive and unwarned.
    """

    max_instances: int
    max_per_allocation: int
    bid_deltas: tuple[float, ...] = BID_DELTAS
    """The bids to try, in dollars per hour above the price; increasing, none negative."""
    max_cores: float = math.inf
    """Most cores of live, unwarned transient instances, where machines of several sizes may be held."""

    def __post_init__(self) -> None:
        if self.max_instances < 0 or self.max_per_allocation < 1:
            raise ValueError("max_instances must be at least 0 and max_per_allocation at least 1")
        # The last delta counts as the highest where prices do not evict, so the order matters.
        if not self.bid_deltas or self.bid_deltas[0] < 0 or list(self.bid_deltas) != sorted(self.bid_deltas):
            raise ValueError("bid_deltas must be increasing, none negative, and at least one")


class ScalingCurve(StrEnum):
    """Says how ``ScalingModel.phi`` is read."""

    PER_DOUBLING = "per doubling"
    """Doubling the instances multiplies the speed by 2 phi."""
    CONSTANT = "constant"
    """Equation 4.3 to the letter: phi whatever the footprint.

    It scales every E alike and changes no decision.
    """


@dataclass(frozen=True, slots=True)
class ScalingModel:
    """Says how the job responds to more machines (phi), to changes (sigma) and to evictions (lambda)."""

    phi: float
    sigma_s: Seconds
    """Seconds without progress whenever a decision changes the footprint."""
    lambda_s: Seconds
    """Seconds without progress when anything is evicted."""
    stage2_above: float
    stage3_above: float
    """Transient instances per reliable one above which stages 2 and 3 of the elastic trainer hold."""
    curve: ScalingCurve = ScalingCurve.PER_DOUBLING

    def __post_init__(self) -> None:
        if not 0 < self.phi <= 1:
            raise ValueError(f"phi is a share of ideal speed, above 0 and up to 1, not {self.phi}")

    def efficiency(self, instances: float) -> float:
        """Returns the speed of ``instances`` working together, as a share of ``instances`` times one alone.

        It is phi ** log2(instances): the paper's coefficient (Harlap 4.3.1), paid once per doubling. This
        deviates from the paper on purpose: its constant would let any footprint scale without end.
        """
        if self.curve is ScalingCurve.CONSTANT:
            return self.phi
        return float(self.phi ** math.log2(max(instances, 1.0)))

    def batch_efficiency(self, instances: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns ``efficiency`` for many footprints, in an array of any shape."""
        if self.curve is ScalingCurve.CONSTANT:
            return np.full(instances.shape, self.phi)
        found: npt.NDArray[np.float64] = self.phi ** np.log2(np.maximum(instances, 1.0))
        return found

    def stage(self, transient: int, reliable: int) -> int:
        """Returns 1, 2 or 3 (Harlap 4.2.2); in stage 3 the reliable machines do no work."""
        if transient > self.stage3_above * reliable:
            return 3
        return 2 if transient > self.stage2_above * reliable else 1

    def reliable_work(self, transient: npt.NDArray[np.float64], reliable: int) -> npt.NDArray[np.bool_]:
        """Returns whether the reliable machines work beside ``transient`` instances, any shape.

        They do not in stage 3.
        """
        works: npt.NDArray[np.bool_] = transient <= self.stage3_above * reliable
        return works

    def reliable_at_work(self, reliable: ReliableMachines, transient: int) -> int:
        """Returns how many reliable machines work beside ``transient`` instances: none in stage 3."""
        return reliable.count if self.stage(transient, reliable.count) < 3 else 0

    def speed(self, transient: Sequence[tuple[int, float]], reliable: ReliableMachines) -> float:
        """Returns core-seconds per second of ``transient``, (instances, nu of one), and reliable machines."""
        instances = sum(count for count, _ in transient)
        beside = self.reliable_at_work(reliable, instances)
        cores = sum(count * cores for count, cores in transient) + beside * reliable.cores
        return cores * self.efficiency(instances + beside)


@dataclass(frozen=True, slots=True)
class Observation:
    """Holds all that a decision sees. ``evictions`` must have been fitted to nothing later than ``now``."""

    now: Instant
    rules: MarketRules
    reliable: ReliableMachines
    footprint: tuple[Holding, ...]
    offers: tuple[Offer, ...]
    limits: Limits
    scaling: ScalingModel
    evictions: FittedMarkets
    work_left: float = math.inf
    """Core-seconds the job still has to do, where known: near its end more machines are of no use."""
    carried: CarriedCheckpoint | None = None
    """Cost of continuing in another region; None where a job's checkpoints do not matter."""

    def __post_init__(self) -> None:
        # On-demand holdings need no offer: they cost their list price and no price evicts them.
        revocable = {holding.market for holding in self.footprint if not holding.on_demand}
        missing = revocable - {offer.market for offer in self.offers}
        if missing:
            raise ValueError(f"no current price is given for markets of the footprint: {sorted(missing)}")

    def find_offer(self, market: Market) -> Offer:
        """Returns the offer of ``market``; raises KeyError where it has none."""
        for offer in self.offers:
            if offer.market == market:
                return offer
        raise KeyError(market)

    def find_holding(self, holding_id: str) -> Holding:
        """Returns the holding with that id; raises KeyError where the footprint has none."""
        for holding in self.footprint:
            if holding.id == holding_id:
                return holding
        raise KeyError(holding_id)

    @property
    def live_count(self) -> int:
        """Counts transient instances that are alive and unwarned, requested ones included."""
        return sum(holding.counts_for for holding in self.footprint)


class Action(StrEnum):
    """Names what a decision does to the footprint."""

    ACQUIRE = "acquire"
    """Requests one more allocation."""
    RENEW = "renew"
    """Keeps an allocation for another billing quantum."""
    TERMINATE = "terminate"
    """Lets an allocation go before its next billing quantum."""
    HOLD = "hold"
    """Changes nothing: no alternative is better than the current footprint."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Describes one alternative that a decision compared.

    Charge, work and their ratio are those of the whole footprint with it.
    """

    action: Action
    market: Market | None
    count: int
    bid_delta: float | None
    beta: float
    """Eviction probability of the allocation in question; for hold, that of anything at all."""
    expected_charge: Usd
    expected_work: float
    """Core-seconds."""
    cost_per_work: float
    """E: dollars per core-second; infinite where no work is expected."""
    chosen: bool
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Says what to do now, which alternatives were compared, and why, in one sentence for people."""

    at: Instant
    action: Action
    cost_per_work_now: float
    """E of the footprint as it stands; infinite where it does no work."""
    why: str
    weighed: tuple[Candidate, ...]
    """The footprint as it is, and the best bid for each market and count."""
    considered: int
    """Number of alternatives compared in all."""
    holding: str | None = None
    """Set for renew and terminate."""
    market: Market | None = None
    count: int = 0
    bid: UsdPerHour | None = None
    """Set for acquire: ``count`` instances of ``market`` at ``bid``; None means on demand."""
    again: bool = False
    """Set for acquire: another decision follows at the same moment, as one request is limited in size."""
