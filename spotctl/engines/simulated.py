"""Maps engines to their simulated trainings, for worlds in which time is virtual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM, ELASTIC_TRAINING
from spotctl.control.run_spec import RunSpec
from spotctl.engines.agileml_model import SimulatedTraining
from spotctl.engines.base import Training
from spotctl.engines.command_model import SimulatedProgram

MODELS: Final[dict[str, Callable[[RunSpec], Training]]] = {
    ELASTIC_TRAINING.kind: SimulatedTraining,
    CHECKPOINTING_PROGRAM.kind: lambda terms: SimulatedProgram(terms, terms.checkpointing),
}
"""``spotctl.engines.registry.register_engine`` adds to them."""


def simulate_training(terms: RunSpec) -> Training:
    """Returns the simulated training of the run."""
    return MODELS[terms.engine.kind](terms)
