"""Provides ``agileml.run``: trains a model on a Ray cluster by a function call."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import ray

from agileml.data.checkpoint_store import newest_checkpoint
from agileml.data.trained_model import Trained, summarize_run
from agileml.job import EarlyStop, JobFolder, Timing, TrainingJob
from agileml.protocol.events import Setup
from agileml.protocol.telemetry import Upward
from agileml.ray.cluster_api import living_nodes
from agileml.ray.training_loop import RayTraining, choose_controller_node

_SHARDS_PER_MACHINE: Final = 4
"""This keeps shares of the input even wherever machines come and go: to a quarter of a machine's."""


def run(
    application: str | type,
    data: str | Path,
    *,
    output: str | Path,
    clocks: int,
    stop: EarlyStop | None = None,
    arguments: Mapping[str, Any] | None = None,
    staleness: int = 0,
    machines: int | None = None,
    partitions: int | None = None,
    shards: int | None = None,
    checkpoint_clocks: int = 0,
    resume: str | Path = "",
    core_seconds_per_clock: float = 0.0,
    timing: Timing | None = None,
    progress: Callable[[Upward], None] | None = None,
) -> Trained:
    """Trains a model on the Ray cluster that this process belongs to, until it is done.

    Connects as ``ray.init(address="auto")`` does, unless the process is connected already; starts and stops
    no cluster. Every node that is labelled ``tier=reliable`` or ``tier=transient`` takes part, also those
    that come later; those that drain are left in time, and whatever dies costs at most the clocks that were
    not backed up. Interrupted (by Ctrl-C, say) it leaves nothing running.

    :param application: a class, or where to find it: ``module:Class`` or ``file.py:Class``
    :param data: the application's input, a path or a URL that fsspec knows, which is read here
    :param output: a folder or a URL, reached by every node, that gets the cut input and the model
    :param clocks: how many to train for, at the most
    :param stop: what ends it before
    :param arguments: of the application
    :param staleness: the SSP bound s in clocks; 0 is BSP, and the same model bit for bit whatever happens
    :param machines: the most nodes that may ever take part (default: twice those there now)
    :param partitions: into which the model is cut (default: as that to ``resume``, or half of ``machines``)
    :param shards: into which the input is cut (default: as that to ``resume``, or four times ``machines``)
    :param checkpoint_clocks: how many lie between two checkpoints below ``output``; 0 for none
    :param resume: a checkpoint, or a folder with checkpoints, to go on from; of the same input, cut the same
    :param core_seconds_per_clock: that a clock takes one core at the least, in seconds
    :param timing: of the messages between the job's processes
    :param progress: is called with everything that the job tells (see ``agileml.protocol.telemetry.Upward``)
    :raises agileml.data.trained_model.TrainingFailed: where the model cannot be trained to its end
    :raises agileml.data.checkpoint_store.CheckpointError: where none can be resumed, or none can be stored
    :raises ValueError: where the numbers describe no job
    :raises agileml.api.ApplicationError: where the application or its input is not what it should be
    :raises ConnectionError: where there is no Ray cluster
    """
    place = str(output).rstrip("/") if "://" in str(output) else str(Path(output).resolve())
    name = secrets.token_hex(6)
    with connect_to_cluster(), tempfile.TemporaryDirectory(prefix=f"agileml-{name}-") as here:
        home = choose_controller_node()
        whole = newest_checkpoint(str(resume)) if resume else None
        if whole is not None:  # which has to be cut as it was, whatever nodes there are now
            partitions, shards = partitions or whole.manifest.partitions, shards or whole.manifest.shards
        # Twice today's nodes: the cuts are fixed for the job's life, and nodes may still come.
        most = machines or max(2, 2 * sum(node.tier is not None for node in living_nodes()))
        setup = Setup(
            partitions or max(1, most // 2),
            shards or _SHARDS_PER_MACHINE * most,
            clocks,
            staleness,
            checkpoints=f"{place}/checkpoints" if checkpoint_clocks else "",
            checkpoint_clocks=checkpoint_clocks,
        )
        job = TrainingJob(
            class_reference(application),
            dict(arguments or {}),
            setup,
            core_seconds_per_clock,
            timing or Timing(),
            network=True,
            input_at=f"{place}/input",
            model_at=f"{place}/model",
            stop=stop or EarlyStop(),
        )
        # Before any actor exists: bad input must not cost a node a second.
        folder = JobFolder.prepare(Path(here), job, data, str(resume))
        heard: list[Upward] = []
        with closing(RayTraining(folder, name, home)) as training:
            for said in training:
                heard.append(said)
                if progress is not None:
                    progress(said)
            # Only after a normal end: after an error ``close`` ends the machines by force.
            training.leave_cluster()
    return summarize_run(heard, setup.partitions)


@contextmanager
def connect_to_cluster() -> Iterator[None]:
    """Connects to the caller's cluster; a connection that was there before is used and kept."""
    if ray.is_initialized():
        yield
        return
    ray.init(address="auto")
    try:
        yield
    finally:
        ray.shutdown()


def class_reference(application: str | type) -> str:
    """Returns the reference by which every process of the job finds the application's class.

    Raises ValueError for a class that only this process can have.
    """
    if isinstance(application, str):
        return application
    module, name = application.__module__, application.__qualname__
    if "." in name:
        raise ValueError(f"{name} is not at the top level of its module, so that no other process finds it")
    if module != "__main__":
        return f"{module}:{name}"
    # Other processes have a ``__main__`` of their own, so the class is found by its file.
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is None:
        raise ValueError(f"{name} was typed in here; put it into a file, so that other processes find it")
    return f"{script}:{name}"
