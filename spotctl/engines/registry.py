"""Registers engines, and connects runs to their real processes: AgileML's, or any program's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from agileml.api import ApplicationError, ApplicationFault
from agileml.client import TrainingClient
from agileml.data.checkpoint_store import newest_checkpoint, remove_checkpoints
from agileml.data.model_files import partition_file
from agileml.job import JobFolder, Timing, TrainingJob
from agileml.model_shape import Shape
from agileml.node.checkpoint_store import CheckpointError
from agileml.node.programs import messages as m
from agileml.node.programs.checkpoint_store import CheckpointStore, WorkEnd
from agileml.node.programs.job_folder import ProgramFolder
from agileml.protocol.events import Setup
from spotctl.control import entries as e
from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM, ELASTIC_TRAINING, EngineTraits
from spotctl.control.run_spec import RunSpec
from spotctl.control.state import State
from spotctl.engines.agileml import REPORTED_FACTS, AgileMLTraining, RestartPoint, attempt_record
from spotctl.engines.base import MachineControl, Training
from spotctl.engines.command import CommandTraining
from spotctl.engines.scoring import Scoring
from spotctl.engines.simulated import MODELS
from spotctl.errors import JobError
from spotctl.job.checks import JOB_CHECKS, JobCheck, place_of
from spotctl.job.file import JOB_TABLES
from spotctl.job.input_survey import data_error
from spotctl.job.model_size import BYTES_PER_VALUE, refuse_immovable, refuse_too_large
from spotctl.job.settings import Settings
from spotctl.job.spec import CommandSpec, JobSpec
from spotctl.records.outputs import keep_checkpoint, keep_model
from spotctl.records.run import Run
from spotctl.report.final import Unscored
from spotctl.schema.table import KeyTable

_NO_LAST_CLOCK: Final = 1_000_000_000
"""Stands for no limit, in jobs that end by time or convergence."""
_BYTES_PER_MBIT: Final = 1e6 / 8
_CATCHES_UP_WITHIN_S: Final = 10.0
"""Real seconds in which a live controller repeats what it said while nothing listened."""


def do_nothing() -> None:
    """Does nothing: a check that always passes."""


class EngineAdapter(Protocol):
    """Connects one run to the real processes of its engine."""

    @property
    def is_prepared(self) -> bool:
        """Tells whether ``prepare`` got to its end; the process that called it may have been killed
        before.
        """
        ...

    def prepare(self, check: Callable[[], None] = do_nothing) -> None:
        """Writes down what the processes need to know, for a job that passed ``spotctl.job.checks``.

        It calls ``check`` now and then, which raises to stop the preparation. Raises UsageError for what
        shows only in the whole input.
        """
        ...

    def build_training(self, machines: MachineControl, on_record: Sequence[e.Entry]) -> Training:
        """Returns the training, of which the ledger holds ``on_record``."""
        ...

    def finished_at(self) -> float | None:
        """Returns when the training finished, in seconds since the epoch; None where nothing says so."""
        ...

    def plan_scoring(self, state: State) -> Scoring | Unscored | None:
        """Returns how to score the result, or why it is not scored; None where there is no measure."""
        ...


def job_of(spec: JobSpec, core_seconds_per_clock: float, speed: float) -> TrainingJob:
    """Returns AgileML's job, in real seconds: a throttled machine computes and sends at ``speed``."""
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
    return TrainingJob(
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
    terms: RunSpec
    run: Run

    @property
    def is_prepared(self) -> bool:
        return JobFolder(self.run.training_folder).is_prepared

    def prepare(self, check: Callable[[], None] = do_nothing) -> None:
        """Cuts the input."""
        spec = self.settings.spec
        job = job_of(spec, self.terms.work.core_seconds_per_clock, self.settings.speed)
        resumes = spec.checkpoint is not None and spec.checkpoint.resume
        try:
            whole = newest_checkpoint(place_of(spec)) if resumes else None
            resume = "" if whole is None else whole.folder
            folder = JobFolder.prepare(
                self.run.training_folder, job, spec.data, resume, check, self._cut_input
            )
            shape = folder.open_input().shape
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

    def _cut_input(self, job: TrainingJob, source: str, check: Callable[[], None]) -> tuple[str, Shape]:
        """Cuts the input once for all runs of the same data."""
        from spotctl.records.shared_inputs import InputStore  # loads DuckDB: only a run that begins needs it

        return InputStore(self.run.folder.parents[2]).cut_input(job, source, self.run.folder, check)

    def build_training(self, machines: MachineControl, on_record: Sequence[e.Entry]) -> Training:
        """Returns the attempt that the job's folder is ready for: a recorded restart may be still to be
        done.
        """
        job = JobFolder(self.run.training_folder).read_job()
        told, heard = attempt_record(on_record, job.restarts)
        client = TrainingClient(
            self.run.training_folder, told=0, heard=sum(isinstance(f, REPORTED_FACTS) for f in heard)
        )
        leader = JobFolder(self.run.training_folder).controller_machine
        if on_record and leader is not None and machines.is_alive(leader):
            client.catch_up(_CATCHES_UP_WITHIN_S)  # nothing is bought for work that is done
        begins = (job.setup.start, job.setup.resume) if job.restarts or job.setup.resume else None
        # A resumption that is on record must not be reported again.
        resumed = None if any(isinstance(fact, e.TrainingResumed) for fact in heard) else begins

        def keep(_: str) -> str:
            output = self.settings.spec.output
            return keep_model(JobFolder(self.run.training_folder), output, self.run.id, self.run.folder)

        return AgileMLTraining(
            client,
            self.terms,
            self.settings.speed,
            keep,
            heard,
            self._end_checkpoints,
            resumed,
            self._restart_from_checkpoint,
            told,
        )

    def _restart_from_checkpoint(self, number: int) -> RestartPoint:
        folder = JobFolder(self.run.training_folder)
        folder.restart_from_checkpoint(number)
        setup = folder.read_job().setup
        return TrainingClient(self.run.training_folder), (setup.start, setup.resume)

    def _end_checkpoints(self) -> str:
        """Removes the checkpoints of a job whose work is done: its next run begins anew."""
        spec = self.settings.spec
        if spec.checkpoint is None:
            return ""
        try:
            remove_checkpoints(place_of(spec))
        except CheckpointError as error:
            return str(error)
        return ""

    def finished_at(self) -> float | None:
        """Returns when the controller saw the last part of the model saved, which ends a training."""
        folder = JobFolder(self.run.training_folder)
        partitions = folder.read_job().setup.partitions
        saved = [folder.model_folder / partition_file(partition) for partition in range(partitions)]
        if not all(file.exists() for file in saved):
            return None
        return folder.finished_at()

    def plan_scoring(self, state: State) -> Scoring | Unscored | None:
        spec = self.settings.spec
        if state.ending.model is None:
            return None
        return (
            Scoring(self.run.training_folder, spec.data, spec.envs) if spec.score else Unscored("score: off")
        )


@dataclass(frozen=True, slots=True)
class _Command:
    settings: Settings
    terms: RunSpec
    run: Run

    @property
    def is_prepared(self) -> bool:
        return ProgramFolder(self.run.training_folder).is_prepared

    @property
    def _command_section(self) -> CommandSpec:
        command = self.settings.spec.command
        if command is None:
            raise ValueError(f"{self.settings.spec.name} is no command job")
        return command

    def prepare(self, check: Callable[[], None] = do_nothing) -> None:
        """Describes the program to its machines."""
        command = self._command_section
        described = m.ProgramDescription(
            job=self.settings.spec.name,
            run=self.run.id,
            setup=command.setup,
            command=command.run,
            workdir=command.workdir,
            file_mounts=command.file_mounts,
            secrets=command.secrets,
            store=self._checkpoint_store,
            left_out=str(self.run.folder.parents[1]),
        )
        ProgramFolder.prepare(self.run.training_folder, described)

    def build_training(self, machines: MachineControl, on_record: Sequence[e.Entry]) -> Training:
        folder, output = ProgramFolder(self.run.training_folder), self.settings.spec.output
        training = CommandTraining(
            folder,
            self.terms,
            self.settings.speed,
            self._command_section.retries,
            keep=lambda: keep_checkpoint(self._checkpoint_store, output, self.run.id),
            end=machines.kill,
            heard=sum(isinstance(entry, REPORTED_FACTS) for entry in on_record),
        )
        training.catch_up(machines.is_alive, self._read_end, _CATCHES_UP_WITHIN_S)
        return training

    def finished_at(self) -> float | None:
        """Returns when a program ended with status 0 by itself, as its agent put on record in the store."""
        end = self._read_end()
        return None if end is None else end.at

    def _read_end(self) -> WorkEnd | None:
        """Raises UsageError where the store cannot be read."""
        try:
            return CheckpointStore(self._checkpoint_store).read_end()
        except CheckpointError as error:
            raise JobError("checkpoint.store", str(error)) from error

    def plan_scoring(self, state: State) -> Scoring | Unscored | None:
        """Returns None: a program reports its own objective, if any, while it runs."""
        return None

    @property
    def _checkpoint_store(self) -> str:
        """Returns the store of this run alone: another run must not begin where this one ends."""
        given = self._command_section.checkpoint.store
        if given is None:
            return str(self.run.folder / "checkpoints")
        return f"{given.rstrip('/')}/{self.run.name}/{self.run.id}"


ADAPTERS: Final[dict[str, Callable[[Settings, RunSpec, Run], EngineAdapter]]] = {
    ELASTIC_TRAINING.kind: _AgileML,
    CHECKPOINTING_PROGRAM.kind: _Command,
}


def adapt_engine(settings: Settings, terms: RunSpec, run: Run) -> EngineAdapter:
    """Returns what connects the run to real processes of the engine that its job names."""
    return ADAPTERS[terms.engine.kind](settings, terms, run)


@dataclass(frozen=True, slots=True)
class Engine:
    """Holds an engine as a value: everything that the program asks of one."""

    traits: EngineTraits
    job_table: KeyTable[JobSpec]
    """The keys of its jobs, beside name and engine, and how they make a job."""
    check_job: JobCheck
    """Refuses a job before anything of it is started."""
    simulate: Callable[[RunSpec], Training]
    """Its model, for worlds in which time is virtual."""
    adapt: Callable[[Settings, RunSpec, Run], EngineAdapter]
    """Its real processes."""


def register_engine(engine: Engine) -> None:
    """Adds an engine beside AgileML's and programs. Raises ValueError for a name that is taken."""
    kind = engine.traits.kind
    if kind in ADAPTERS:
        raise ValueError(f"there is an engine {kind!r} already")
    JOB_TABLES[kind] = engine.job_table
    JOB_CHECKS[kind] = engine.check_job
    MODELS[kind] = engine.simulate
    ADAPTERS[kind] = engine.adapt
