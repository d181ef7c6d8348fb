"""Defines the values of a queue file, complete and checked. ``file.py`` reads them from YAML."""

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
    """Describes a job of a queue; ``spec`` carries its name in the queue, its deadline and its budget.

    ``best_effort``: run it even if its deadline cannot be promised. ``priority``: a higher one counts as an
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
    """Describes a queue.

    ``round_s``: seconds between reassignments. ``budget``: for all jobs together, None without a limit.
    ``quotas``: machines at once, by TYPE or TYPE@ZONE. ``entities``: their weights; others weigh 1.
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
    """Holds the options of the command line; ``seed``: for all jobs, None for each job's own."""

    world: WorldKind = WorldKind.LOCAL
    speed: float = 600.0
    prices: PriceOptions = field(default_factory=PriceOptions)
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Holds a queue file and its options. The journal keeps both, so that the queue can be resumed."""

    spec: QueueSpec
    options: QueueOptions

    def settings_for(self, member: Member) -> Settings:
        """Returns the settings with which the queue launches one of its jobs."""
        seed = member.spec.seed if self.options.seed is None else self.options.seed
        options = self.options
        return Settings(member.spec, options.world, options.speed, options.prices, seed, queue=self.spec.name)

    def to_text(self) -> str:
        """Returns the settings as JSON, for the journal."""
        # Sorted, because a resumed queue compares this text with the one on record.
        return json.dumps(to_json(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> QueueSettings:
        """Returns the settings in the JSON of ``to_text``. Raises LedgerError for anything else."""
        return _parse_record(cls, text)


def member_text(member: Member) -> str:
    """Returns the job as JSON, for a request that adds it."""
    return json.dumps(to_json(member), sort_keys=True)


def parse_member(text: str) -> Member:
    """Returns the job in the JSON of ``member_text``. Raises LedgerError for anything else."""
    return _parse_record(Member, text)


def _parse_record(cls: type[T], text: str) -> T:
    try:
        value: T = from_json(cls, json.loads(text))
    except (TypeError, ValueError, OverflowError) as error:
        raise LedgerError(f"the record of the queue cannot be read: {error}") from error
    return value
