"""What a provider of machines promises. One Protocol for clouds, the local host and the simulation.

The contract, held by ``tests/conformance/test_providers.py`` for every implementation:

- ``request`` is idempotent by token: the same order again returns the same instances and starts none.
  It returns at once; instances are pending until ``describe`` says otherwise.
- ``describe`` lists everything that was ever requested under the provider's run, ended instances
  included, and may lag behind (eventually consistent). An instance that was requested and is not
  listed yet is still ours.
- ``terminate`` is idempotent; an instance that is already gone is no error. One that nobody knows is, but
  keeps none of the others: they have ended when InstanceNotFound is raised.
- ``notices`` lists the instances that the provider is about to take. A notice is never taken back.
- Refusals are the ProviderErrors of ``spotctl.errors``, named by what the caller does next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pricing_data.model.billing import End
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, UsdPerHour


@dataclass(frozen=True, slots=True)
class Order:
    """Instances of one market, wanted together. ``bid`` None: on-demand, not revocable.

    ``reliable``: they are to hold the training's reliable tier; a cloud need not care.
    """

    token: str
    market: Market
    count: int
    bid: UsdPerHour | None
    cores: int
    reliable: bool = False


class Standing(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Report:
    """One instance as the provider sees it."""

    instance: str
    token: str
    standing: Standing
    running_at: Instant | None = None
    ended_at: Instant | None = None
    end: End | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """The provider warned at ``at`` that it takes ``instance`` at ``ends_at``."""

    instance: str
    token: str
    at: Instant
    ends_at: Instant


@dataclass(frozen=True, slots=True)
class Offering:
    """What could be had: a market, its price, and since when that price holds."""

    market: Market
    price: UsdPerHour
    since: Instant


class Provider(Protocol):
    """See the module's contract."""

    def offerings(self) -> tuple[Offering, ...]: ...

    def request(self, order: Order) -> tuple[str, ...]: ...

    def describe(self) -> tuple[Report, ...]: ...

    def terminate(self, instances: Sequence[str]) -> None: ...

    def notices(self) -> tuple[Notice, ...]: ...

    def next_change(self, after: Instant) -> Instant | None:
        """When ``describe`` or ``notices`` will next say something new, where that is known; else None."""
        ...
