"""Makes every check of a job that is possible before it starts: for plan, launch and queue alike.

    resolve    prices, markets, strategy, rules            (``spotctl.job.resolve``)
    here       program, data, model, secrets, where results go
    promise    deadline and budget                         (``cli.commands.launch_flow``, and for queues
                                                           ``spotctl.queue.allocation.admission``)

Starts, writes and decides nothing. What only a whole pass over the input shows (a bad value in its millionth
row) shows when the input is cut; a launch that is refused then leaves nothing behind either.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from agileml.api import Application, ApplicationError, load_application
from agileml.node.object_folder import ObjectFolder
from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM, ELASTIC_TRAINING
from spotctl.control.run_spec import RunSpec
from spotctl.errors import JobError
from spotctl.job.choices import WorldKind
from spotctl.job.input_survey import InputSize, ModelLimit, look_at_input
from spotctl.job.model_size import memory_of_computer, refuse_immovable, refuse_too_large
from spotctl.job.settings import Settings
from spotctl.job.spec import CommandSpec, JobSpec
from spotctl.records.outputs import check_output

if TYPE_CHECKING:
    from agileml.trial import ClockTime


def check_job(settings: Settings, terms: RunSpec) -> InputSize | None:
    """Raises JobError where the job cannot run as its file says. Returns None where it has no input to
    measure.

    In any world it checks the job itself. Where this computer runs the job it also checks secrets, memory,
    and that results and checkpoints can be written.
    """
    return JOB_CHECKS[settings.spec.engine.kind](settings, terms)


# ---- an elastic job -----------------------------------------------------------------------------


def _check_agileml(settings: Settings, terms: RunSpec) -> InputSize:
    spec = settings.spec
    app = application_of(spec)
    _check_metric(spec, app)
    found = look_at_input(spec, app, _model_limit(settings, terms))
    if settings.world is WorldKind.LOCAL:
        check_output(spec.output)
        _check_model_checkpoints(spec)
    return found


def application_of(spec: JobSpec) -> Application:
    """Makes the application that an elastic job names. Raises JobError where it does not exist."""
    try:
        return load_application(spec.app, spec.args)
    except ApplicationError as error:
        raise JobError("app", str(error)) from error


def measure_job(spec: JobSpec, size: InputSize) -> ClockTime:
    """Measures, in some seconds, what a clock takes one core of this computer, on a part of the input.

    Raises JobError where the application fails at it or takes too long.
    """
    from agileml.trial import Trial, measure_clock

    trial = Trial(spec.app, dict(spec.args), spec.data, size.counts.rows, spec.training.shards, spec.columns)
    try:
        return measure_clock(trial, memory_bytes=memory_of_computer())
    except ApplicationError as error:
        raise JobError("app", f"{spec.app}: {error}") from error


def _check_metric(spec: JobSpec, app: Application) -> None:
    converged = spec.stop.converged
    if converged is not None and converged.metric != app.metric:
        raise JobError(
            "stop.converged.metric", f"found {converged.metric!r}, but {spec.app} reports {app.metric!r}"
        )


def _model_limit(settings: Settings, terms: RunSpec) -> ModelLimit:
    spec = settings.spec

    def limit(model_bytes: int) -> None:
        if spec.objective.strategy != "on-demand":
            refuse_immovable(model_bytes, spec.training.link_mbit_s, terms.rules.notice_s)
        if settings.world is WorldKind.LOCAL:
            refuse_too_large(model_bytes)

    return limit


def _check_model_checkpoints(spec: JobSpec) -> None:
    """Checks that they can be written, and read where the job is to resume from them."""
    if spec.checkpoint is None:
        return
    from agileml.data.checkpoint_store import newest_checkpoint
    from agileml.node.checkpoint_store import CheckpointError

    place = place_of(spec)
    try:
        ObjectFolder(place).check_writable()
        if spec.checkpoint.resume:
            newest_checkpoint(place)
    except CheckpointError as error:
        raise JobError("checkpoint", str(error)) from error
    except Exception as error:  # file systems raise errors of their own
        raise JobError("checkpoint.store", f"{place} cannot be written to: {error}") from error


def place_of(spec: JobSpec) -> str:
    """Returns where checkpoints of an elastic job are, of whatever run; empty where it stores none."""
    return "" if spec.checkpoint is None else f"{spec.checkpoint.store.rstrip('/')}/{spec.name}"


# ---- a command ----------------------------------------------------------------------------------


def _check_command(settings: Settings, _: RunSpec) -> None:
    spec, command = settings.spec, settings.spec.command
    if command is None or settings.world is not WorldKind.LOCAL:
        return
    from agileml.node.agent import process_tree
    from agileml.node.checkpoint_store import CheckpointError
    from agileml.node.programs.checkpoint_store import CheckpointStore

    if not process_tree.is_supported():
        raise JobError("engine", "command needs Linux here: its /proc tells what belongs to a machine")
    _check_secrets(command)
    if command.checkpoint.store is not None:
        try:
            CheckpointStore(command.checkpoint.store).check_writable()
        except CheckpointError as error:
            raise JobError("checkpoint.store", str(error)) from error
    if spec.output:
        check_output(spec.output)


def _check_secrets(command: CommandSpec) -> None:
    missing = [name for name in command.secrets if name not in os.environ]
    if missing:
        raise JobError("secrets", f"{', '.join(missing)} not in the environment; export before you launch")


JobCheck: TypeAlias = Callable[[Settings, RunSpec], InputSize | None]
JOB_CHECKS: Final[dict[str, JobCheck]] = {
    ELASTIC_TRAINING.kind: _check_agileml,
    CHECKPOINTING_PROGRAM.kind: _check_command,
}
"""Checks each engine's jobs; ``spotctl.engines.registry.register_engine`` adds to them."""
