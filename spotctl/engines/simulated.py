"""Each engine's model of a training, for worlds in which time is virtual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM, ELASTIC_TRAINING
from spotctl.control.run_spec import Terms
from spotctl.engines.agileml_model import ModelledTraining
from spotctl.engines.base import Training
from spotctl.engines.command_model import ModelledCommand

MODELS: Final[dict[str, Callable[[Terms], Training]]] = {
    ELASTIC_TRAINING.kind: ModelledTraining,
    CHECKPOINTING_PROGRAM.kind: lambda terms: ModelledCommand(terms, terms.checkpointing),
}
"""``spotctl.engines.registry.register`` adds to them."""


def simulate_training(terms: Terms) -> Training:
    """Returns the model of the run's training."""
    return MODELS[terms.engine.kind](terms)
