"""A job's folder: everything its processes share, and what they agree on before they talk.

    job.json              the Job
    input/                the cut input (``app.Input``)
    machines/NAME/        a machine's lock, process group and logs
    controller/           the elasticity controller's journal and last words
    model/                the trained partitions
    sockets -> /tmp/...   a short private folder for the sockets, whose names may have 107 bytes

Times here are real seconds, whatever the speed of a simulated market.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from agileml.app import Application, cut_input, load_application
from agileml.events import Setup
from agileml.messages import Matrix
from agileml.partition import Shape

_LONGEST_SOCKET_NAME: Final = 107


@dataclass(frozen=True, slots=True)
class Timing:
    """Real seconds.

    ``repeat_s``: unconfirmed messages are repeated, and signs of life given; ``silence_s``: a machine whose
    agent is silent for so long is lost; ``lease_s``: an agent ends after so long without its controller,
    and a finished controller after so long without its client.
    """

    repeat_s: float = 0.3
    silence_s: float = 20.0
    lease_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Job:
    """``application``: ``module:Class`` or ``file.py:Class``, made from ``arguments`` (JSON values).

    ``core_seconds_per_clock``: what one clock takes one core at the least, in real seconds; 0 lets it run.
    """

    application: str
    arguments: Mapping[str, Any]
    setup: Setup
    core_seconds_per_clock: float = 0.0
    timing: Timing = field(default_factory=Timing)

    def make_application(self) -> Application:
        return load_application(self.application, self.arguments)


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The names in a job's folder. ``path`` is absolute."""

    path: Path

    @classmethod
    def prepare(cls, path: Path, job: Job, source: Path) -> JobFolder:
        """Cut the input ``source`` and write what the processes need.

        What an attempt that was killed has left is replaced. Raises ApplicationError, or OSError where
        temporary names are too long for sockets.
        """
        folder = cls(path.resolve())
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.remove_sockets()
        folder._link.unlink(missing_ok=True)
        place, colon, name = job.application.rpartition(":")
        if place.endswith(".py"):
            job = replace(job, application=f"{Path(place).resolve()}{colon}{name}")
        cut_input(job.make_application(), source, job.setup.shards, folder.input)
        for needed in (folder.controller, folder.model, folder.path / "machines"):
            needed.mkdir(exist_ok=True)
        folder._link.symlink_to(tempfile.mkdtemp(prefix="agileml-"))
        folder.controller_endpoint()  # too long a name is better known now
        unfinished = folder.path / "job.part"
        unfinished.write_text(json.dumps(asdict(job)))
        unfinished.replace(folder._description)
        return folder

    @property
    def prepared(self) -> bool:
        """Whether ``prepare`` got to its end; the process that called it may have been killed before."""
        return self._description.exists()

    def job(self) -> Job:
        content = json.loads(self._description.read_text())
        content["setup"] = Setup(**content["setup"])
        content["timing"] = Timing(**content["timing"])
        return Job(**content)

    @property
    def input(self) -> Path:
        return self.path / "input"

    @property
    def controller(self) -> Path:
        return self.path / "controller"

    @property
    def last_words(self) -> Path:
        """What a client had not confirmed when the controller ended."""
        return self.controller / "last-words.json"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def _description(self) -> Path:
        return self.path / "job.json"

    @property
    def _link(self) -> Path:
        return self.path / "sockets"

    def machine(self, name: str) -> Path:
        return self.path / "machines" / name

    def machines(self) -> list[str]:
        """Every machine that was ever started."""
        return sorted(entry.name for entry in (self.path / "machines").iterdir())

    def endpoint(self, owner: str, incarnation: int = 0) -> str:
        """Where a process listens. An incarnation has its own, so that nothing reaches another by mistake."""
        name = f"{os.readlink(self._link)}/{zlib.crc32(owner.encode()):08x}.{incarnation}"
        if len(name) > _LONGEST_SOCKET_NAME:
            raise OSError(f"{name} is too long for the name of a socket; set TMPDIR to a shorter path")
        return f"ipc://{name}"

    def controller_endpoint(self) -> str:
        return self.endpoint("the elasticity controller")

    def remove_sockets(self) -> None:
        """At the end of the job. Harmless when repeated."""
        if self._link.is_symlink():
            shutil.rmtree(self._link.readlink(), ignore_errors=True)

    def load_model(self, shape: Shape, partitions: int) -> Matrix:
        """The saved model, put together from its partitions."""
        model = np.empty((shape.rows, shape.columns), np.float32)
        for partition in range(partitions):
            model[partition::partitions] = np.load(partition_file(self.model, partition), allow_pickle=False)
        return model


def partition_file(folder: Path, partition: int) -> Path:
    return folder / f"partition-{partition:05}.npy"
