"""A queue as a value: what its file says, complete and checked. ``file.py`` makes these from YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pricing_data.model.units import MicroUsd, Seconds
from spotctl.control.codec import from_json, to_json
from spotctl.errors import LedgerError
from spotctl.job.resolve import PriceOptions
from spotctl.job.settings import Settings, WorldKind
from spotctl.job.spec import JobSpec

T = TypeVar("T")

ROUND_S: Final = Seconds(360.0)
"""``bidbrain.cluster.rounds.ROUND_S``; here too because reading a queue file must not load numpy."""
POLICY: Final = "min-cost"
"""``bidbrain.cluster.policies.registry.DEFAULT``, for the same reason."""


@dataclass(frozen=True, slots=True)
class Member:
    """A job of a queue. ``spec`` carries its own deadline and budget, and its name in the queue.

    ``best_effort``: run it too where its deadline cannot be promised. ``priority``: the higher, the
    earlier it counts as having come. ``after``: jobs that must be done before it begins.
    """

    spec: JobSpec
    weight: float = 1.0
    entity: str = ""
    priority: float = 0.0
    best_effort: bool = False
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy of ``bidbrain.cluster.policies.registry`` and what it is told."""

    name: str = POLICY
    parameters: Mapping[str, float | str | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """``quotas``: machines at once, by TYPE or TYPE@ZONE. ``entities``: their weights, 1 where none is
    said.
    """

    name: str
    policy: PolicyChoice
    round_s: Seconds
    budget: MicroUsd | None
    quotas: Mapping[str, int]
    entities: Mapping[str, float]
    jobs: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What the command line may say beside the file."""

    world: WorldKind = WorldKind.LOCAL
    speed: float = 600.0
    prices: PriceOptions = field(default_factory=PriceOptions)
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue file and its options, merged: kept with the queue's record, so that it can be gone on with."""

    spec: QueueSpec
    options: QueueOptions

    def of(self, member: Member) -> Settings:
        """What one of its jobs is launched with."""
        seed = member.spec.seed if self.options.seed is None else self.options.seed
        options = self.options
        return Settings(member.spec, options.world, options.speed, options.prices, seed, queue=self.spec.name)

    def text(self) -> str:
        """As JSON, for the record."""
        return json.dumps(to_json(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> QueueSettings:
        """What ``text`` gave. Raises LedgerError where it is not that."""
        return _parsed(cls, text)


def member_text(member: Member) -> str:
    """As JSON, for a request that adds it."""
    return json.dumps(to_json(member), sort_keys=True)


def parse_member(text: str) -> Member:
    """What ``member_text`` gave. Raises LedgerError where it is not that."""
    return _parsed(Member, text)


def _parsed(cls: type[T], text: str) -> T:
    try:
        value: T = from_json(cls, json.loads(text))
    except (TypeError, ValueError, OverflowError) as error:
        raise LedgerError(f"the record of the queue cannot be read: {error}") from error
    return value
