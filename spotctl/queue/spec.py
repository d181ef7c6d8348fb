"""Defines a queue as a value: what its file says, complete and checked. ``file.py`` makes these from YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pricing_data.model.units import MicroUsd, Seconds
from spotctl.errors import LedgerError
from spotctl.job.choices import WorldKind
from spotctl.job.resolve import PriceOptions
from spotctl.job.settings import Settings
from spotctl.job.spec import JobSpec
from spotctl.records.codec import from_json, to_json

T = TypeVar("T")

ROUND_S: Final = Seconds(360.0)
"""``bidbrain.cluster.rounds.ROUND_S``; here too because reading a queue file must not load numpy."""
POLICY: Final = "min-cost"
"""``bidbrain.cluster.policies.registry.DEFAULT``, for the same reason."""


@dataclass(frozen=True, slots=True)
class Member:
    """Describes a job of a queue. ``spec`` carries its own deadline and budget, and its name in the queue.

    ``best_effort``: run it even where its deadline cannot be promised. ``priority``: a higher one counts as
    an
    earlier arrival. ``after``: jobs that must be done before it begins.
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
    """Names a policy of ``bidbrain.cluster.policies.registry`` and its parameters."""

    name: str = POLICY
    parameters: Mapping[str, float | str | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """Describes a queue. ``quotas``: machines at once, by TYPE or TYPE@ZONE. ``entities``: their weights; 1
    for
    entities not listed.
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
    """Holds what the command line may set beside the file."""

    world: WorldKind = WorldKind.LOCAL
    speed: float = 600.0
    prices: PriceOptions = field(default_factory=PriceOptions)
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Merges a queue file and its options. Kept with the queue's record, so that it can be resumed."""

    spec: QueueSpec
    options: QueueOptions

    def settings_for(self, member: Member) -> Settings:
        """Returns the settings that one of its jobs is launched with."""
        seed = member.spec.seed if self.options.seed is None else self.options.seed
        options = self.options
        return Settings(member.spec, options.world, options.speed, options.prices, seed, queue=self.spec.name)

    def to_text(self) -> str:
        """Returns the settings as JSON, for the record."""
        return json.dumps(to_json(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> QueueSettings:
        """Reads the settings that ``to_text`` gave. Raises LedgerError for anything else."""
        return _parse_record(cls, text)


def member_text(member: Member) -> str:
    """Returns the job as JSON, for a request that adds it."""
    return json.dumps(to_json(member), sort_keys=True)


def parse_member(text: str) -> Member:
    """Reads the job that ``member_text`` gave. Raises LedgerError for anything else."""
    return _parse_record(Member, text)


def _parse_record(cls: type[T], text: str) -> T:
    try:
        value: T = from_json(cls, json.loads(text))
    except (TypeError, ValueError, OverflowError) as error:
        raise LedgerError(f"the record of the queue cannot be read: {error}") from error
    return value
