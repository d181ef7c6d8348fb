"""Describes a job, and its folder: everything its processes share, and what they agree on before they talk.

    job.json              the TrainingJob
    application.py        what the application's file was when the job began, where it names one
    input/                the cut input (``shards.ShardReader``), unless runs share it elsewhere
    controller/           the elasticity controller's journal and last words, and where it listens
    model/                the trained partitions
    controller-N/, model-N/   those of the attempt before the N-th restart
    machines/, sockets    and what else every job has (``agileml.node.run_folder``)

Times here are real seconds, whatever the speed of a simulated market.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import structs

from agileml.api import Application, ApplicationError, Called, load_application
from agileml.data.checkpoint_store import restart_setup, with_checkpoint_folders
from agileml.data.model_files import assemble_model
from agileml.data.shards import ShardReader
from agileml.model_shape import Shape
from agileml.node.arrays import Matrix
from agileml.node.object_folder import ObjectFolder
from agileml.node.run_folder import RunFolder, write_whole
from agileml.node.transport.curve_keys import CurveKeys
from agileml.protocol.events import Setup


@dataclass(frozen=True, slots=True)
class Timing:
    """Sets how long the job's processes wait for each other, in real seconds.

    ``checkpoint_s``: between two checkpoints, beside those that are due by clocks; 0: never by time.
    ``repeat_s``: between signs of life, and turns to repeat what is unconfirmed (``Link.repeat_in_turn``);
    ``silence_s``: a machine whose agent is silent for so long is lost; ``lease_s``: an agent ends after so
    long without its controller, and a finished controller after so long without its client; ``ask_after_s``:
    a request without an answer is asked after, after this time or up to twice that; ``first_word_s``: what a
    controller has beyond its leases to start and read its journal; ``unclaimed_s``: a controller ends after
    so long, if its client has never told it of a machine; ``told_after_s``: an activity of a worker or a
    server that takes so long is reported (``agent/watchdog.py``).
    """

    repeat_s: float = 0.3
    silence_s: float = 20.0
    lease_s: float = 30.0
    checkpoint_s: float = 0.0
    ask_after_s: float = 2.0
    first_word_s: float = 300.0
    unclaimed_s: float = 1800.0
    told_after_s: float = 60.0


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """Ends the job before its last clock. Whatever comes first does; None never does.

    ``seconds``: real ones since the first clock; ``delta``: the objective has settled once two reports in a
    row differ by no more. The model is that of the first consistent clock after.
    """

    seconds: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("delta", self.delta)):
            if value is not None and not value > 0:
                raise ValueError(f"a job stops after {name} above 0, not {value}")


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """Describes a job: what to train, on what, and how its processes reach each other.

    ``application``: ``module:Class`` or ``file.py:Class``, made from ``arguments`` (JSON values).
    ``program``: a copy of that file, which is edited while jobs run: all processes of a job run the same.
    ``core_seconds_per_clock``: what one clock takes one core at the least, in real seconds; 0 lets it run.
    ``stop``: what may end it before the last clock. ``input_bytes``: how much of the input a worker keeps in
    memory; None is all that it ever read. ``input_at``: where the cut input is kept, a folder or a URL that
    all machines reach; in the job's folder if empty. ``model_at``: where the trained model is saved,
    likewise. ``restarts``: how many times it was restarted from its checkpoints, all its machines being gone.
    ``columns``: which columns of the input the job names, by the application's names for them. ``network``:
    processes reach each other over TCP, encrypted; otherwise all of them share one machine.
    """

    application: str
    arguments: Mapping[str, Any]
    setup: Setup
    core_seconds_per_clock: float = 0.0
    timing: Timing = field(default_factory=Timing)
    network: bool = False
    input_at: str = ""
    model_at: str = ""
    input_bytes: int | None = None
    stop: EarlyStop = field(default_factory=EarlyStop)
    restarts: int = 0
    program: str = ""
    columns: Called = field(default_factory=dict)

    def make_application(self) -> Application:
        return load_application(
            self.application, self.arguments, Path(self.program) if self.program else None
        )


Cutter: TypeAlias = Callable[[TrainingJob, str, Callable[[], None]], tuple[str, Shape]]
"""Cuts an input for a job, or finds it cut; returns where it is, and the model's shape."""


def _cut_for_job(job: TrainingJob, source: str, check: Callable[[], None]) -> tuple[str, Shape]:
    from agileml.data.sharding import cut_input  # imports DuckDB, which no process of the job needs

    app = job.make_application()
    return job.input_at, cut_input(app, source, job.setup.shards, job.input_at, check, job.columns)


@dataclass(frozen=True, slots=True)
class JobFolder(RunFolder):
    """The names in a training job's folder. ``path`` is absolute."""

    @classmethod
    def prepare(
        cls,
        path: Path,
        job: TrainingJob,
        source: str | Path,
        resume: str = "",
        check: Callable[[], None] = lambda: None,
        cutter: Cutter | None = None,
    ) -> JobFolder:
        """Cuts the input ``source`` (see ``tables.Table``) and writes what the processes need.

        ``resume``: a checkpoint, or a folder of checkpoints whose newest complete one is meant; training goes
        on after its clock, and with the same input ends as if it had never stopped. ``check`` is called after
        each batch of the input, and may raise to give up. ``cutter`` cuts the input, or finds it cut; None:
        it is cut for this job alone. What an attempt that was killed has left is replaced. Raises
        ApplicationError, CheckpointError, ValueError for a setup that describes no job, or OSError where
        temporary names are too long for sockets.
        """
        folder = cls(path.resolve())
        folder.path.mkdir(parents=True, exist_ok=True)
        # An attempt that was killed here may have left sockets, keys and an address, which would mislead
        # processes.
        folder.drop_sockets()
        folder.keys_file.unlink(missing_ok=True)
        folder.endpoint_file.unlink(missing_ok=True)
        job.setup.require_valid()
        try:
            json.dumps(dict(job.arguments))
        except (TypeError, ValueError) as error:
            raise ApplicationError(
                f"{job.application} cannot have the arguments {dict(job.arguments)}: {error}; machines get "
                f"them as JSON, which has numbers, texts, lists and mappings"
            ) from error
        job = folder._with_program(job)
        job = replace(
            job,
            input_at=job.input_at or str(folder.input_folder),
            model_at=job.model_at or str(folder.model_folder),
        )
        place, shape = (cutter or _cut_for_job)(job, str(source), check)
        job = replace(job, input_at=place)
        timed = job.timing.checkpoint_s > 0
        job = replace(job, setup=with_checkpoint_folders(job.setup, resume, shape, timed=timed))
        if not job.network:
            folder.make_sockets()
        return cls.set_up(folder.path, job, CurveKeys.make_pair() if job.network else None)

    def _with_program(self, job: TrainingJob) -> TrainingJob:
        place, colon, name = job.application.rpartition(":")
        file = Path(place).resolve()
        if not place.endswith(".py") or not file.is_file():
            return job  # a module, or a mistake that loading it will report
        shutil.copyfile(file, self.program_file)
        return replace(job, application=f"{file}{colon}{name}", program=str(self.program_file))

    @classmethod
    def set_up(cls, path: Path, job: TrainingJob, keys: CurveKeys | None) -> JobFolder:
        """Writes what the processes need of a job whose input is cut. ``keys``: of a job on a network."""
        folder = cls(path)
        for needed in (folder.controller_folder, folder.path / "machines"):
            needed.mkdir(exist_ok=True)
        if keys is not None:
            keys.write(folder.keys_file)
        # Last: this file says that the folder is prepared.
        write_whole(folder._job_file, json.dumps(asdict(job), default=structs.asdict))
        return folder

    def restart_from_checkpoint(self, number: int) -> None:
        """Prepares for other machines, from the newest checkpoint on, when all machines that it had are gone.

        ``number``: which restart it is, from 1. Harmless when repeated: a caller that is killed here calls it
        again. What the controller had kept is set aside as ``controller-NUMBER``, and so is a model that was
        saved and of which nobody heard: it would say that the new training is over. Raises CheckpointError
        where the checkpoints cannot be read.
        """
        job = self.read_job()
        if job.restarts >= number:
            return
        job = replace(job, setup=restart_setup(job.setup), restarts=number)
        for kept in (self.controller_folder, self.model_folder):
            aside = kept.with_name(f"{kept.name}-{number}")
            if kept.exists() and not aside.exists():
                kept.rename(aside)
        if job.network:
            self.drop_sockets()
        else:
            self.make_sockets()
        self.set_up(self.path, job, None)

    @property
    def is_prepared(self) -> bool:
        """Whether ``prepare`` got to its end; the process that called it may have been killed before."""
        return self._job_file.exists()

    def read_job(self) -> TrainingJob:
        content = json.loads(self._job_file.read_text())
        content["setup"] = Setup(**content["setup"])
        content["timing"] = Timing(**content["timing"])
        content["stop"] = EarlyStop(**content["stop"])
        return TrainingJob(**content)

    @property
    def program_file(self) -> Path:
        return self.path / "application.py"

    @property
    def input_folder(self) -> Path:
        return self.path / "input"

    def open_input(self) -> ShardReader:
        """Returns a reader of the cut input. Raises ApplicationError where it is not there."""
        return ShardReader(self.read_job().input_at)

    @property
    def controller_folder(self) -> Path:
        return self.path / "controller"

    @property
    def controller_machine(self) -> str | None:
        """The machine that runs the elasticity controller; None before one was started."""
        return self.controller_record.read_text() if self.controller_record.exists() else None

    @property
    def controller_record(self) -> Path:
        """The file that names the controller's machine. The host that starts that machine writes it."""
        return self.controller_folder / "machine"

    def record_finish(self, at: float) -> None:
        """Records when the training was over, in seconds since the epoch; the first record stays."""
        record = self.controller_folder / "finished"
        if not record.exists():
            partial = record.with_suffix(".part")
            partial.write_text(repr(at))
            partial.replace(record)

    def finished_at(self) -> float | None:
        """Returns when the training was over, as its controller recorded; None where it did not."""
        try:
            return float((self.controller_folder / "finished").read_text())
        except FileNotFoundError:
            return None

    @property
    def last_words(self) -> Path:
        """The file with what a client had not confirmed when the controller ended."""
        return self.controller_folder / "last-words.json"

    @property
    def model_folder(self) -> Path:
        return self.path / "model"

    def saved_model(self) -> ObjectFolder:
        """Returns where the trained partitions are, once they are; see ``model_files.py``."""
        return ObjectFolder(self.read_job().model_at or self.model_folder)

    @property
    def _job_file(self) -> Path:
        return self.path / "job.json"

    @property
    def endpoint_file(self) -> Path:
        return self.controller_folder / "endpoint"

    def load_model(self, shape: Shape, partitions: int) -> Matrix:
        """Returns the saved model, put together from its partitions."""
        model = assemble_model(self.saved_model(), partitions)
        assert model.shape == (shape.rows, shape.columns)
        return model
