"""Prices moves between zones, regions and clouds: stop, carry a checkpoint over, continue there.

    s        size_gb       of the checkpoint
    d        dataset_gb    input that must go along, where it is not there yet
    b        gb_per_s      at which both are carried
    r        restart_s     from the request of the new machines to their first step, beside the carrying
    c        egress        dollars per gigabyte that leaves
    P, v     price, speed  what a place costs per hour, and does per second

A running job's checkpoint travels through its region's object store (``CarriedCheckpoint``): between zones of
a region that is free and takes no time. A direct copy (``move_cost``) crosses zones at their price.

A move costs c (s + d) dollars, and r + (s + d) / b seconds of the new place without progress. It is worth
that if the work left is cheaper there by more than this cost. Only work counts that is done while prices can
be trusted to last. A margin keeps the job from alternating between two places of similar price. A footprint
lives in one region, so a whole job moves. Knows no source of prices, and no evictions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, MicroUsd, Seconds, Usd, UsdPerHour, to_micros

BYTES_PER_GB: Final = 10**9

MARGIN: Final = 0.05
"""Share of the cost of staying. Spot prices vary by a few percent a day without meaning anything."""


class Distance(StrEnum):
    """Names the widest border between two markets, as data transfer is priced."""

    NONE = "none"
    ZONE = "zone"
    REGION = "region"
    CLOUD = "cloud"


def distance(here: Market, there: Market) -> Distance:
    """Returns the widest border between two markets; other types of one zone are no distance away.

    Azure and Google name no zone in their prices: within a region of theirs there is no distance.
    """
    if here.cloud != there.cloud:
        return Distance.CLOUD
    if here.region != there.region:
        return Distance.REGION
    return Distance.NONE if here.zone == there.zone else Distance.ZONE


@dataclass(frozen=True, slots=True)
class EgressPrices:
    """Holds dollars per gigabyte that leaves a cloud's zone, region, or the cloud: by (cloud, distance)."""

    usd_per_gb: Mapping[tuple[str, str], float]

    def find_price(self, here: Market, there: Market) -> float:
        """Returns dollars per gigabyte from ``here`` to ``there``.

        Raises KeyError where no price is known.
        """
        apart = distance(here, there)
        if apart is Distance.NONE:
            return 0.0
        key = (here.cloud, apart.value)
        if key not in self.usd_per_gb:
            known = ", ".join(sorted({cloud for cloud, _ in self.usd_per_gb}))
            raise KeyError(
                f"no egress price from {here.cloud} to another {apart}; prices are known of {known}: add one"
            )
        return self.usd_per_gb[key]


@dataclass(frozen=True, slots=True)
class TransferLoad:
    """Holds what a job carries, and how long it takes to restart."""

    size_gb: float
    gb_per_s: float
    restart_s: Seconds
    dataset_gb: float = 0.0
    """0 where the new place has it already; Narayanan 6.3.2 copies it to every cloud once, for many jobs."""

    def __post_init__(self) -> None:
        if self.size_gb < 0 or self.dataset_gb < 0 or self.restart_s < 0 or self.gb_per_s <= 0:
            raise ValueError("sizes and restart_s must be at least 0 and gb_per_s above 0")


@dataclass(frozen=True, slots=True)
class JobSite:
    """Describes a market as a place to run the whole job.

    Dollars per hour for all its machines, work per second.
    """

    market: Market
    price: UsdPerHour
    speed: float

    @property
    def cost_per_work(self) -> float:
        """Returns dollars; infinite where no work is done."""
        return self.price / self.speed / HOUR_S if self.speed > 0 else math.inf


@dataclass(frozen=True, slots=True)
class MoveCost:
    """Holds what a move to another market costs, in dollars and in seconds."""

    egress: Usd
    delay_s: Seconds
    """Seconds without progress."""
    idle: Usd
    """Dollars for the new place meanwhile."""

    @property
    def total_cost(self) -> Usd:
        return Usd(self.egress + self.idle)


def move_cost(
    baggage: TransferLoad, egress: EgressPrices, here: Market, there: JobSite, *, lost_s: float = 0.0
) -> MoveCost:
    """Returns dollars and seconds from the last step here to the first one there.

    ``lost_s`` is work to be done again at the speed of the new place, where no checkpoint was taken on
    leaving (after an eviction); a voluntary move loses none.
    """
    # All of ``delay_s`` is paid for at the new place's price: it is held while the data arrives.
    carried_gb = baggage.size_gb + baggage.dataset_gb
    apart = distance(here, there.market)
    carrying_s = 0.0 if apart is Distance.NONE else carried_gb / baggage.gb_per_s
    delay_s = baggage.restart_s + carrying_s + lost_s
    return MoveCost(
        egress=Usd(egress.find_price(here, there.market) * carried_gb),
        delay_s=Seconds(delay_s),
        idle=Usd(there.price * delay_s / HOUR_S),
    )


def expected_saving(here: JobSite, there: JobSite, cost: MoveCost, work_left: float, lasts_s: float) -> Usd:
    """Returns dollars saved by moving now, net of the move; negative where staying is cheaper.

    Counts the work left, or what the new place does in ``lasts_s`` if that is less: the seconds for which
    both prices are expected to hold.
    """
    # Beyond ``lasts_s`` the job would decide again, so later work is no reason to move now.
    work = min(work_left, there.speed * lasts_s)
    return Usd(
        work * (here.cost_per_work - there.cost_per_work) - cost.total_cost if work > 0 else -cost.total_cost
    )


def worth_moving(
    here: JobSite, there: JobSite, cost: MoveCost, work_left: float, lasts_s: float, margin: float = MARGIN
) -> bool:
    """Returns whether a move saves more than ``margin`` of what the same work would cost here."""
    work = min(work_left, there.speed * lasts_s)
    if work <= 0 or there.cost_per_work >= here.cost_per_work:
        return False
    # Staying does no work at any price, so the saving is infinite and has no share to compare.
    if math.isinf(here.cost_per_work):
        return True
    return expected_saving(here, there, cost, work_left, lasts_s) > margin * work * here.cost_per_work


@dataclass(frozen=True, slots=True)
class CarriedCheckpoint:
    """Holds what a running job would carry if it continued elsewhere, and from where."""

    baggage: TransferLoad
    """Its ``restart_s`` is 0: a restart costs the same everywhere."""
    egress: EgressPrices
    home: Market | None
    """Where the job is, or where its newest checkpoint was written; None while there is nothing to carry."""

    def transfer_cost(self, there: JobSite) -> MoveCost:
        """Returns the cost of continuing in ``there``; ``NO_MOVE`` within the region of ``home``."""
        if self.home is None or not leaves_region(self.home, there.market):
            return NO_MOVE
        return move_cost(self.baggage, self.egress, self.home, there)

    def worst_cost(self, there: JobSite, others: Iterable[Market]) -> MoveCost:
        """Returns the dearest way to ``there``, wherever of ``others`` the checkpoint may be by then."""
        costs = [replace(self, home=other).transfer_cost(there) for other in others]
        return max(costs, key=lambda cost: (cost.total_cost, cost.delay_s), default=NO_MOVE)


NO_MOVE: Final = MoveCost(Usd(0.0), Seconds(0.0), Usd(0.0))


def leaves_region(here: Market, there: Market) -> bool:
    """Returns whether what is carried from ``here`` to ``there`` leaves a region or a cloud."""
    return distance(here, there) in (Distance.REGION, Distance.CLOUD)


def egress_owed(size_bytes: int, usd_per_gb: float) -> MicroUsd:
    """Returns micro-dollars for ``size_bytes`` that leave, half up; a gigabyte is 10^9 bytes.

    >>> egress_owed(2_500_000_000, 0.02)
    50000
    """
    # Integers throughout, because a ledger's sums must be exact.
    return MicroUsd((size_bytes * to_micros(usd_per_gb) + BYTES_PER_GB // 2) // BYTES_PER_GB)
