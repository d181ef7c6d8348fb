"""Defines what a provider of machines promises. One Protocol for clouds, the local host and the simulation.

The contract, held by ``tests/conformance/test_providers.py`` for every implementation:

- ``submit`` places an order and returns at once; ``answers`` says later, once, what became of it. It is
  idempotent by token: the same order again starts nothing more, and is answered again.
- Nothing here waits. A provider whose cloud answers slowly asks it elsewhere (``polling.py``).
- ``describe`` lists everything that was ever granted under the provider's run, ended instances
  included, and may lag behind (eventually consistent). An instance that was granted and is not
  listed yet is still ours; one whose order was not answered yet is not listed.
- ``terminate`` is idempotent; an instance that is already gone is no error. An unknown instance is, but
  spares none of the others: they have ended when InstanceNotFound is raised.
- ``notices`` lists the instances that the provider is about to take. A notice is never taken back.
- A refusal is a ProviderError of ``spotctl.errors``, named by what the caller does next. BadRequest, which
  is a bug, is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pricing_data.model.billing import EndReason
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, UsdPerHour
from spotctl.errors import BadRequest, ProviderError


@dataclass(frozen=True, slots=True)
class Order:
    """Orders instances of one market together. ``bid`` None: on-demand, not revocable.

    ``reliable``: they are to hold the training's reliable tier; a cloud need not care.
    """

    token: str
    market: Market
    count: int
    bid: UsdPerHour | None
    cores: int
    reliable: bool = False


@dataclass(frozen=True, slots=True)
class OrderAnswer:
    """Says what became of an order: the names of its instances or, where it was refused, why."""

    token: str
    instances: tuple[str, ...] = ()
    refusal: ProviderError | None = None


class InstanceStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Report:
    """Describes one instance as the provider sees it."""

    instance: str
    token: str
    standing: InstanceStatus
    running_at: Instant | None = None
    ended_at: Instant | None = None
    end: EndReason | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """The provider warned at ``at`` that it takes ``instance`` at ``ends_at``."""

    instance: str
    token: str
    at: Instant
    ends_at: Instant


@dataclass(frozen=True, slots=True)
class Offering:
    """Describes an available market, its price, and since when that price holds."""

    market: Market
    price: UsdPerHour
    since: Instant


def answer_at_once(order: Order, request: Callable[[Order], tuple[str, ...]]) -> OrderAnswer:
    """Returns the answer of a ``request`` that grants or raises at once. BadRequest, a bug, is raised."""
    try:
        return OrderAnswer(order.token, request(order))
    except BadRequest:
        raise
    except ProviderError as error:
        return OrderAnswer(order.token, refusal=error)


class MachineList(Protocol):
    """Lists the machines of a run and ends them, which is all that is left to do once nobody drives it."""

    def describe(self) -> tuple[Report, ...]: ...

    def terminate(self, instances: Sequence[str]) -> None: ...


def live_instances(machines: MachineList) -> tuple[str, ...]:
    """Returns the instances that have not ended."""
    return tuple(r.instance for r in machines.describe() if r.standing is not InstanceStatus.ENDED)


class Provider(MachineList, Protocol):
    """Supplies machines; see the module's contract."""

    def offerings(self) -> tuple[Offering, ...]: ...

    def submit(self, order: Order) -> None: ...

    def answers(self) -> tuple[OrderAnswer, ...]:
        """Returns answers that were not returned before, in the order in which they came."""
        ...

    def notices(self) -> tuple[Notice, ...]: ...

    def next_change(self, after: Instant) -> Instant | None:
        """Returns when ``describe`` or ``notices`` will next say something new, where that is known; else
        None.
        """
        ...
