"""Sums up a training run for its caller. Pure: a fold over what the controller said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agileml.protocol.commands import Finished, RolledBack, SafeToKill, StageChanged
from agileml.protocol.events import Stage
from agileml.protocol.telemetry import ObjectiveAt, Upward


class TrainingFailed(RuntimeError):
    """The model could not be trained to its end. ``checkpoint``: the newest whole one; empty if none."""

    def __init__(self, why: str, checkpoint: str = "") -> None:
        super().__init__(f"{why}; go on from checkpoint {checkpoint}" if checkpoint else why)
        self.checkpoint = checkpoint


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a training run.

    ``model``: the folder or URL of its ``partitions``, which ``agileml.load_model`` reads. ``clock``: the
    last one, whose updates the model has all. ``objective``: of the newest model whose objective is known;
    None if there is none. ``redone``: clocks that were computed again after ``failures`` (roll-backs);
    ``evicted``: machines that left in time, losing nothing; ``stages``: as they were reached.
    """

    model: str
    partitions: int
    clock: int
    objective: float | None
    redone: int
    failures: int
    evicted: int
    stages: tuple[Stage, ...]


def summarize_run(said: Iterable[Upward], partitions: int) -> Trained:
    """Sums up all that was said of a job that finished. Raises ValueError for one that did not."""
    heard = tuple(said)
    finished = next((word for word in heard if isinstance(word, Finished)), None)
    if finished is None:
        raise ValueError(f"the job has not finished; at last it said {heard[-1:]}")
    rolled_back = [word for word in heard if isinstance(word, RolledBack)]
    objectives = [word.value for word in heard if isinstance(word, ObjectiveAt)]
    return Trained(
        model=finished.path,
        partitions=partitions,
        clock=finished.clock,
        objective=objectives[-1] if objectives else None,
        redone=sum(word.redone for word in rolled_back),
        failures=len(rolled_back),
        evicted=sum(isinstance(word, SafeToKill) for word in heard),
        stages=tuple(word.stage for word in heard if isinstance(word, StageChanged)),
    )
