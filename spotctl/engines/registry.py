"""Registers engines, and connects runs to their real processes: AgileML's, or any program's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from agileml.api import ApplicationError, ApplicationFault
from agileml.client import TrainingClient
from agileml.data.checkpoint_store import CheckpointError, forget, newest
from agileml.data.model_files import partition_file
from agileml.job import Job, JobFolder, Timing
from agileml.model_shape import Shape
from agileml.node.hosts.local import LocalHost
from agileml.node.programs import messages as m
from agileml.node.programs.job_folder import CommandFolder, Description
from agileml.node.programs.jsonl_log import Inbox
from agileml.node.programs.local_host import DiskHost
from agileml.protocol.events import Setup
from spotctl.control import entries as e
from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM, ELASTIC_TRAINING, EngineTraits
from spotctl.control.run_spec import Terms
from spotctl.control.state import State
from spotctl.engines.agileml import HEARD, Again, AgileMLTraining, attempt
from spotctl.engines.base import Training
from spotctl.engines.command import CommandTraining
from spotctl.engines.scoring import Scoring
from spotctl.engines.simulated import MODELS
from spotctl.errors import JobError
from spotctl.job.checks import JOB_CHECKS, JobCheck, place_of
from spotctl.job.file import JOB_READERS, JobReader
from spotctl.job.input_survey import data_error
from spotctl.job.model_size import BYTES_PER_VALUE, refuse_immovable, refuse_too_large
from spotctl.job.settings import Settings
from spotctl.job.spec import Command, JobSpec
from spotctl.records.outputs import keep_checkpoint, keep_model
from spotctl.records.run import Run
from spotctl.report.final import Unscored

_NO_LAST_CLOCK: Final = 1_000_000_000
"""For jobs that end by time or convergence."""
_BYTES_PER_MBIT: Final = 1e6 / 8
_CATCHES_UP_WITHIN_S: Final = 10.0
"""Real seconds for a controller that lives to say what it said while nobody listened."""


def do_nothing() -> None:
    """Lets whatever asks go on."""


class EngineAdapter(Protocol):
    """Connects one run to the real processes of its engine."""

    @property
    def prepared(self) -> bool:
        """Whether ``prepare`` got to its end; the process that called it may have been killed before."""
        ...

    def prepare(self, check: Callable[[], None] = do_nothing) -> None:
        """Write down what the processes need to know, of a job that ``spotctl.job.checks`` let pass.

        ``check`` is called now and then, and raises where it is to be given up. Raises UsageError for what
        shows only in the whole input.
        """
        ...

    def host(self) -> LocalHost:
        """Its machines, those of an earlier process included."""
        ...

    def training(self, host: LocalHost, on_record: Sequence[e.Entry]) -> Training:
        """The training, of which the ledger holds ``on_record``."""
        ...

    def over_since(self) -> float | None:
        """Since when the training is finished, in seconds since the epoch, as the files that it left show.

        None where they do not.
        """
        ...

    def scoring(self, state: State) -> Scoring | Unscored | None:
        """Returns how to score what came of it, or why it is not scored; None where there is no measure."""
        ...


def job_of(spec: JobSpec, core_seconds_per_clock: float, speed: float) -> Job:
    """What AgileML is to train, in real seconds: a throttled machine computes and sends at ``speed``."""
    pace = speed if spec.local.throttle else 1.0
    setup = Setup(
        partitions=spec.training.partitions,
        shards=spec.training.shards,
        clocks=spec.stop.clocks or _NO_LAST_CLOCK,
        staleness=spec.training.staleness,
        stage2_above=spec.scaling.stage2_above,
        stage3_above=spec.scaling.stage3_above,
        automatic=spec.training.measured_stages,
        link_bytes_per_s=spec.training.link_mbit_s * _BYTES_PER_MBIT * pace,
        checkpoints=place_of(spec),
        checkpoint_clocks=0 if spec.checkpoint is None else spec.checkpoint.clocks,
    )
    due_s = 0.0 if spec.checkpoint is None else spec.checkpoint.seconds / speed
    return Job(
        spec.app,
        dict(spec.args),
        setup,
        core_seconds_per_clock=core_seconds_per_clock / pace if spec.local.throttle else 0.0,
        input_bytes=spec.training.input_bytes,
        timing=Timing(checkpoint_s=due_s),
        columns=dict(spec.columns),
    )


@dataclass(frozen=True, slots=True)
class _AgileML:
    settings: Settings
    terms: Terms
    run: Run

    @property
    def prepared(self) -> bool:
        return JobFolder(self.run.training).prepared

    def prepare(self, check: Callable[[], None] = do_nothing) -> None:
        """Cut the input."""
        spec = self.settings.spec
        job = job_of(spec, self.terms.core_seconds_per_clock, self.settings.speed)
        resumes = spec.checkpoint is not None and spec.checkpoint.resume
        try:
            whole = newest(place_of(spec)) if resumes else None
            resume = "" if whole is None else whole.folder
            folder = JobFolder.prepare(self.run.training, job, spec.data, resume, check, self._cut)
            shape = folder.cut_input().shape
        except CheckpointError as error:
            raise JobError("checkpoint", str(error)) from error
        except ApplicationFault as error:
            raise JobError("app", f"{spec.app}: {error}") from error
        except ApplicationError as error:
            raise data_error(spec, error) from error
        model_bytes = BYTES_PER_VALUE * shape.rows * shape.columns
        refuse_too_large(model_bytes)
        if spec.objective.strategy != "on-demand":
            refuse_immovable(model_bytes, spec.training.link_mbit_s, self.terms.rules.notice_s)

    def _cut(self, job: Job, source: str, check: Callable[[], None]) -> tuple[str, Shape]:
        """Runs of the same data share its cut input."""
        from spotctl.records.shared_inputs import InputStore  # brings DuckDB: only who begins a run needs it

        return InputStore(self.run.folder.parents[2]).cut(job, source, self.run.folder, check)

    def host(self) -> LocalHost:
        return LocalHost(self.run.training, self.settings.spec.envs)

    def training(self, host: LocalHost, on_record: Sequence[e.Entry]) -> Training:
        """Of the attempt that the job's folder is ready for: a restart on record may be still to be done."""
        job = JobFolder(self.run.training).job()
        told, heard = attempt(on_record, job.restarts)
        client = TrainingClient(self.run.training, told=0, heard=sum(isinstance(f, HEARD) for f in heard))
        leader = JobFolder(self.run.training).controller_machine
        if on_record and leader is not None and host.is_alive(leader):
            client.catch_up(_CATCHES_UP_WITHIN_S)  # nothing is bought for work that is done
        begins = (job.setup.start, job.setup.resume) if job.restarts or job.setup.resume else None
        resumed = None if any(isinstance(fact, e.TrainingResumed) for fact in heard) else begins

        def keep(_: str) -> str:
            output = self.settings.spec.output
            return keep_model(JobFolder(self.run.training), output, self.run.id, self.run.folder)

        return AgileMLTraining(
            client,
            self.terms,
            self.settings.speed,
            keep,
            heard,
            self._end_checkpoints,
            resumed,
            self._again,
            told,
        )

    def _again(self, number: int) -> Again:
        folder = JobFolder(self.run.training)
        folder.begin_again(number)
        setup = folder.job().setup
        return TrainingClient(self.run.training), (setup.start, setup.resume)

    def _end_checkpoints(self) -> str:
        """Those of a job whose work is done are of no more use: its next run begins anew."""
        spec = self.settings.spec
        if spec.checkpoint is None:
            return ""
        try:
            forget(place_of(spec))
        except CheckpointError as error:
            return str(error)
        return ""

    def over_since(self) -> float | None:
        """Its model is saved last of all."""
        folder = JobFolder(self.run.training)
        partitions = folder.job().setup.partitions
        saved = [folder.model / partition_file(partition) for partition in range(partitions)]
        if not all(file.exists() for file in saved):
            return None
        return max(file.stat().st_mtime for file in saved)

    def scoring(self, state: State) -> Scoring | Unscored | None:
        spec = self.settings.spec
        if state.model is None:
            return None
        return Scoring(self.run.training, spec.data, spec.envs) if spec.score else Unscored("score: off")


@dataclass(frozen=True, slots=True)
class _Command:
    settings: Settings
    terms: Terms
    run: Run

    @property
    def prepared(self) -> bool:
        return CommandFolder(self.run.training).prepared

    @property
    def _command(self) -> Command:
        command = self.settings.spec.command
        if command is None:
            raise ValueError(f"{self.settings.spec.name} is no command job")
        return command

    def prepare(self, check: Callable[[], None] = do_nothing) -> None:
        """Describe the program to its machines."""
        command = self._command
        described = Description(
            job=self.settings.spec.name,
            run=self.run.id,
            setup=command.setup,
            command=command.run,
            workdir=command.workdir,
            file_mounts=command.file_mounts,
            secrets=command.secrets,
            store=self._store,
            lock=str(self.run.folder.parent / "lock"),
        )
        CommandFolder.prepare(self.run.training, described)

    def host(self) -> LocalHost:
        return DiskHost(self.run.training, self.settings.spec.envs)

    def training(self, host: LocalHost, on_record: Sequence[e.Entry]) -> Training:
        folder, output = CommandFolder(self.run.training), self.settings.spec.output
        return CommandTraining(
            folder,
            self.terms,
            self.settings.speed,
            self._command.retries,
            keep=lambda: keep_checkpoint(self._store, output, self.run.id),
            end=host.kill,
            heard=sum(isinstance(entry, HEARD) for entry in on_record),
        )

    def over_since(self) -> float | None:
        """A program that ends with status 0, and nobody asked it to, has done its work: its agent said so."""
        folder = CommandFolder(self.run.training)
        files = [folder.said(name) for name in folder.machines()]
        last = [(file, word) for file in files for _, word in [*Inbox(file).receive()][-1:]]
        done = [file.stat().st_mtime for file, word in last if m.from_json(word) == m.Ended("run", 0, "")]
        return max(done, default=None)

    def scoring(self, state: State) -> Scoring | Unscored | None:
        """A program says how good it is, if at all, while it runs."""
        return None

    @property
    def _store(self) -> str:
        """Of this run alone: another one must not begin where this one ends."""
        given = self._command.checkpoint.store
        if given is None:
            return str(self.run.folder / "checkpoints")
        return f"{given.rstrip('/')}/{self.run.name}/{self.run.id}"


ADAPTERS: Final[dict[str, Callable[[Settings, Terms, Run], EngineAdapter]]] = {
    ELASTIC_TRAINING.kind: _AgileML,
    CHECKPOINTING_PROGRAM.kind: _Command,
}


def adapt_engine(settings: Settings, terms: Terms, run: Run) -> EngineAdapter:
    """Returns what connects the run to real processes of the engine that its job names."""
    return ADAPTERS[terms.engine.kind](settings, terms, run)


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine as a value: everything that the program asks of one."""

    traits: EngineTraits
    read_job: JobReader
    """Reads its jobs from the mapping of a job file."""
    check_job: JobCheck
    """Refuses a job before anything of it is started."""
    simulate: Callable[[Terms], Training]
    """Its model, for worlds in which time is virtual."""
    adapt: Callable[[Settings, Terms, Run], EngineAdapter]
    """Its real processes."""


def register(engine: Engine) -> None:
    """Adds an engine beside AgileML's and programs. Raises ValueError for a name that is taken."""
    kind = engine.traits.kind
    if kind in ADAPTERS:
        raise ValueError(f"there is an engine {kind!r} already")
    JOB_READERS[kind] = engine.read_job
    JOB_CHECKS[kind] = engine.check_job
    MODELS[kind] = engine.simulate
    ADAPTERS[kind] = engine.adapt
