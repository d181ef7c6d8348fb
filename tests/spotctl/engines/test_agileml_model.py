"""What the modelled training makes of the loss of a reliable machine: the same as the real one, in short."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.engines.agileml_model import SimulatedTraining
from tests.spotctl.build import START, terms


@pytest.mark.parametrize("transient", [0, 4])
def test_a_reliable_machine_is_survived_where_its_part_of_the_model_has_another_copy(transient: int) -> None:
    """In stage 1 it has none; with more transient machines than reliable ones, the actives have."""
    training = SimulatedTraining(replace(terms(), reliable_count=2))
    training.send_command(1, e.TellJoin(START, ("r1-1", "r1-2"), True, 4))
    if transient:
        training.send_command(2, e.TellJoin(START, tuple(f"s1-{n}" for n in range(transient)), False, 4))
    at = Instant(START + 3600)
    training.take_facts(at)
    training.send_command(3, e.TellLost(at, ("r1-2",)))
    facts = training.take_facts(at)
    failed = [fact.why for fact in facts if isinstance(fact, e.TrainingFailed)]
    if transient:
        assert not failed
        assert any(isinstance(fact, e.RolledBack) for fact in facts)
        assert training.next_change(at) is not None
    else:
        assert failed == ["the reliable machine r1-2 was lost with the only copy of its part of the model"]
        assert training.next_change(at) is None
