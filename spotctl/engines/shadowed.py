"""Reports a model's facts while something else does the work, or after a restart.

``ReplayedFacts`` is a model that goes on where a record ends. ``ShadowedTraining`` is a real training whose
facts come from the model, at the model's moments. It serves to compare worlds: a local run and a replay take
the same decisions, while nominal time still waits for the real machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import structs

from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.engines.base import Training
from spotctl.timesource import Effect, sleep, stopwatch

FINISH_FLOOR_S: Final = 600.0
"""Real seconds that the real training may take longer than the model says; after that it has failed."""


_MODELLED = (
    e.MachineJoined,
    e.SafeToKill,
    e.ProgramBegan,
    e.Progressed,
    e.StageEntered,
    e.RolledBack,
    e.CheckpointStored,
    e.CheckpointFetched,
    e.Checkpointed,
    e.TrainingResumed,
    e.TrainingFinished,
    e.TrainingFailed,
)
"""The facts that a model reports."""


class ReplayedFacts:
    """Repeats everything to ``model``, and holds back the facts that are among ``on_record``."""

    def __init__(self, model: Training, on_record: Iterable[e.Entry]) -> None:
        self._model = model
        self._to_skip = sum(isinstance(entry, _MODELLED) for entry in on_record)

    def send_command(self, number: int, command: e.Tell) -> None:
        self._model.send_command(number, command)

    def take_facts(self, now: Instant) -> tuple[e.Fact, ...]:
        facts = self._model.take_facts(now)
        known = min(self._to_skip, len(facts))
        self._to_skip -= known
        return facts[known:]

    def next_change(self, after: Instant) -> Instant | None:
        return self._model.next_change(after)

    def pending_effects(self) -> tuple[Effect, ...]:
        return self._model.pending_effects()

    def poll(self, timeout_s: float) -> bool:
        return self._model.poll(timeout_s)

    def close(self) -> None:
        self._model.close()


class ShadowedTraining:
    """Takes facts from ``model`` while ``real`` does the work. ``clock``: seconds that only ever grow."""

    def __init__(self, model: Training, real: Training, clock: Callable[[], float] = stopwatch) -> None:
        self._model = model
        self._real = real
        self._ended: e.TrainingFinished | e.TrainingFailed | None = None
        self._held: e.TrainingFinished | None = None
        self._clock = clock
        self._held_at = 0.0

    def send_command(self, number: int, command: e.Tell) -> None:
        self._model.send_command(number, command)
        self._real.send_command(number, command)

    def take_facts(self, now: Instant) -> tuple[e.Fact, ...]:
        return tuple(self._merge_facts(now))

    def next_change(self, after: Instant) -> Instant | None:
        return self._model.next_change(after)

    def pending_effects(self) -> tuple[Effect, ...]:
        waiting = self._real.pending_effects()
        if self._held is not None and self._ended is None:
            waiting += (Effect("the training ends", self._held.at, FINISH_FLOOR_S, needs_work=True),)
        return waiting

    def poll(self, timeout_s: float) -> bool:
        """Waits for news; not for those of a real training that has ended, as its machines would go early."""
        if self._ended is None:
            return self._real.poll(timeout_s)
        sleep(timeout_s)
        return False

    def close(self) -> None:
        self._real.close()

    def _merge_facts(self, now: Instant) -> Iterator[e.Fact]:
        for fact in self._real.take_facts(now):
            if isinstance(fact, e.ObjectiveReported):
                yield fact
            elif isinstance(fact, (e.TrainingFinished, e.TrainingFailed)):
                self._ended = fact
        for fact in self._model.take_facts(now):
            if isinstance(fact, e.TrainingFinished):
                # The model ends first. Its end waits for the real one, which knows where the trained model
                # is.
                self._held, self._held_at = fact, self._clock()
            else:
                yield fact
        if self._held is not None and self._ended is None and self._clock() - self._held_at > FINISH_FLOOR_S:
            why = f"its processes have not ended {FINISH_FLOOR_S:.0f} s after the modelled training"
            self._ended = e.TrainingFailed(self._held.at, why)
        if self._held is not None and self._ended is not None:
            held, self._held = self._held, None
            yield _at_modelled_time(held, self._ended)


def _at_modelled_time(modelled: e.TrainingFinished, real: e.TrainingFinished | e.TrainingFailed) -> e.Fact:
    if isinstance(real, e.TrainingFailed):
        return structs.replace(real, at=modelled.at)
    return structs.replace(modelled, model=real.model)
