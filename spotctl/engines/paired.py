"""Trainings that tell a model's facts: after a restart, or while something real does the work.

``Told`` is a model that goes on where a record ends. ``PairedTraining`` is a real training whose progress, as
far as decisions go, is the modelled one. For comparing worlds: facts come from the model, at the model's
moments, so a local run and a replay take the same decisions; nominal time still waits for the real machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.engines.base import Training
from spotctl.timesource import Effect, pause, stopwatch

FINISH_FLOOR_S: Final = 600.0
"""Real seconds that the real training may need longer than the model says; then it has failed."""


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
)
"""What a model tells."""


class Told:
    """``model``, told everything again: the facts that are among ``on_record`` it keeps to itself."""

    def __init__(self, model: Training, on_record: Iterable[e.Entry]) -> None:
        self._model = model
        self._to_skip = sum(isinstance(entry, _MODELLED) for entry in on_record)

    def tell(self, number: int, command: e.Tell) -> None:
        self._model.tell(number, command)

    def facts(self, now: Instant) -> tuple[e.Fact, ...]:
        facts = self._model.facts(now)
        known = min(self._to_skip, len(facts))
        self._to_skip -= known
        return facts[known:]

    def next_change(self, after: Instant) -> Instant | None:
        return self._model.next_change(after)

    def unfinished(self) -> tuple[Effect, ...]:
        return self._model.unfinished()

    def poll(self, timeout_s: float) -> bool:
        return self._model.poll(timeout_s)

    def close(self) -> None:
        self._model.close()


class PairedTraining:
    """``model`` tells the story, ``real`` does the work. ``told`` facts of the model's are on record.

    ``clock``: seconds that only ever grow.
    """

    def __init__(
        self, model: Training, real: Training, told: int, clock: Callable[[], float] = stopwatch
    ) -> None:
        self._model = model
        self._real = real
        self._to_skip = told
        self._ended: e.TrainingFinished | e.TrainingFailed | None = None
        self._held: e.TrainingFinished | None = None
        self._clock = clock
        self._held_at = 0.0

    def tell(self, number: int, command: e.Tell) -> None:
        self._model.tell(number, command)
        self._real.tell(number, command)

    def facts(self, now: Instant) -> tuple[e.Fact, ...]:
        return tuple(self._facts(now))

    def next_change(self, after: Instant) -> Instant | None:
        return self._model.next_change(after)

    def unfinished(self) -> tuple[Effect, ...]:
        waiting = self._real.unfinished()
        if self._held is not None and self._ended is None:
            waiting += (Effect("the training ends", self._held.at, FINISH_FLOOR_S, needs_work=True),)
        return waiting

    def poll(self, timeout_s: float) -> bool:
        """Once the real training has ended it is not asked again: that would let its machines go early."""
        if self._ended is None:
            return self._real.poll(timeout_s)
        pause(timeout_s)
        return False

    def close(self) -> None:
        self._real.close()

    def _facts(self, now: Instant) -> Iterator[e.Fact]:
        for fact in self._real.facts(now):
            if isinstance(fact, e.ObjectiveReported):
                yield fact
            elif isinstance(fact, (e.TrainingFinished, e.TrainingFailed)):
                self._ended = fact
        for fact in self._model.facts(now):
            if self._to_skip:
                self._to_skip -= 1
            elif isinstance(fact, e.TrainingFinished):
                self._held, self._held_at = fact, self._clock()
            else:
                yield fact
        if self._held is not None and self._ended is None and self._clock() - self._held_at > FINISH_FLOOR_S:
            why = f"its processes have not ended {FINISH_FLOOR_S:.0f} s after the modelled training"
            self._ended = e.TrainingFailed(self._held.at, why)
        if self._held is not None and self._ended is not None:
            held, self._held = self._held, None
            yield _as_it_was(held, self._ended)


def _as_it_was(modelled: e.TrainingFinished, real: e.TrainingFinished | e.TrainingFailed) -> e.Fact:
    if isinstance(real, e.TrainingFailed):
        return replace(real, at=modelled.at)
    return replace(modelled, model=real.model)
