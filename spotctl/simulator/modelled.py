"""The model of a run's training: which one it is follows from its terms."""

from __future__ import annotations

from spotctl.control.terms import Terms
from spotctl.simulator.command import ModelledCommand
from spotctl.simulator.training import ModelledTraining


def modelled(terms: Terms) -> ModelledTraining | ModelledCommand:
    """Elastic where reliable machines keep the model, else a program that checkpoints."""
    return ModelledTraining(terms) if terms.checkpoints is None else ModelledCommand(terms, terms.checkpoints)
