"""A modelled training that real processes do the work of: how the two of them end."""

from __future__ import annotations

import pytest

from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.engines.shadowed import FINISH_FLOOR_S, ShadowedTraining
from spotctl.timesource import Effect
from tests.spotctl.build import START

DONE = e.TrainingFinished(START, 5, "")


class Says:
    """A training that says ``take_facts``, each once."""

    def __init__(self, *facts: e.Fact) -> None:
        self.left = list(facts)

    def send_command(self, number: int, command: e.Tell) -> None: ...

    def take_facts(self, now: Instant) -> tuple[e.Fact, ...]:
        said, self.left = tuple(self.left), []
        return said

    def next_change(self, after: Instant) -> Instant | None:
        return None

    def pending_effects(self) -> tuple[Effect, ...]:
        return ()

    def poll(self, timeout_s: float) -> bool:
        return bool(self.left)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("real", "end"),
    [
        (e.TrainingFinished(Instant(START + 9), 5, "/model"), e.TrainingFinished(START, 5, "/model")),
        (e.TrainingFailed(Instant(START + 9), "no room"), e.TrainingFailed(START, "no room")),
    ],
)
def test_it_ends_when_the_model_says_and_as_its_processes_do(real: e.Fact, end: e.Fact) -> None:
    processes = Says()
    training = ShadowedTraining(Says(DONE), processes)
    assert training.take_facts(START) == ()
    assert [effect.name for effect in training.pending_effects()] == ["the training ends"]
    processes.left.append(real)
    assert training.take_facts(Instant(START + 9)) == (end,)
    assert training.pending_effects() == ()


def test_processes_that_never_end_are_not_waited_for_for_ever() -> None:
    """Time goes on when its floor has run out, and nothing else would end the run."""
    seconds = 0.0
    training = ShadowedTraining(Says(DONE), Says(), clock=lambda: seconds)
    assert training.take_facts(START) == ()
    seconds = FINISH_FLOOR_S - 1
    assert training.take_facts(START) == ()
    seconds = FINISH_FLOOR_S + 1
    (failed,) = training.take_facts(Instant(START + 3600))
    assert failed == e.TrainingFailed(START, "its processes have not ended 600 s after the modelled training")
    assert training.take_facts(Instant(START + 3600)) == ()
