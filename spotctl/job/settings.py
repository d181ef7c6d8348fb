"""Holds all that a run was started with, as one value: kept with the run, so that it can be resumed as it
was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Final

from pricing_data.model.units import MicroUsd, Seconds
from spotctl.errors import LedgerError
from spotctl.job.choices import IfRunning, WorldKind
from spotctl.job.resolve import PriceOptions
from spotctl.job.spec import JobSpec
from spotctl.records.codec import from_json, to_json

DEFAULT_SPEED: Final = 600.0
"""Nominal seconds per real one."""


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Holds what the command line may set beside the job file; None leaves it to the file."""

    world: WorldKind = WorldKind.LOCAL
    speed: float = DEFAULT_SPEED
    speed_named: bool = True
    """False: launch may choose a slower one where this computer would not keep pace."""
    prices: PriceOptions = field(default_factory=PriceOptions)
    if_running: IfRunning = IfRunning.FAIL
    deadline: Seconds | None = None
    budget: MicroUsd | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Merges a job file and its options. ``speed``: nominal seconds per real one."""

    spec: JobSpec
    world: WorldKind
    speed: float
    prices: PriceOptions
    seed: int
    queue: str | None = None
    """The queue that runs the job; None: it runs by itself."""

    @classmethod
    def from_options(cls, spec: JobSpec, options: LaunchOptions) -> Settings:
        objective = replace(
            spec.objective,
            deadline=spec.objective.deadline if options.deadline is None else options.deadline,
            budget=spec.objective.budget if options.budget is None else options.budget,
        )
        spec = replace(spec, objective=objective)
        seed = spec.seed if options.seed is None else options.seed
        return cls(spec, options.world, options.speed, options.prices, seed)

    def to_text(self) -> str:
        """Returns the settings as JSON, for the run's record."""
        return json.dumps(to_json(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Reads the settings that ``to_text`` gave. Raises LedgerError for anything else."""
        try:
            settings: Settings = from_json(cls, json.loads(text))
        except (TypeError, ValueError) as error:
            raise LedgerError(f"the run's settings cannot be read: {error}") from error
        return settings
