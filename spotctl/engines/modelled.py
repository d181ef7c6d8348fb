"""The model of a run's training: which one it is follows from its terms."""

from __future__ import annotations

from spotctl.control.run_spec import Terms
from spotctl.engines.agileml_model import ModelledTraining
from spotctl.engines.command_model import ModelledCommand


def modelled(terms: Terms) -> ModelledTraining | ModelledCommand:
    """Elastic where reliable machines keep the model, else a program that checkpoints."""
    return ModelledTraining(terms) if terms.checkpoints is None else ModelledCommand(terms, terms.checkpoints)
