"""Every check of a job that can be made before anything of it is started: for plan, launch and queue alike.

    resolve    prices, markets, strategy, rules            (``spotctl.resolve``)
    here       program, data, model, secrets, where results go
    promise    deadline and budget                         (``spotctl.cli.flow``, ``spotctl.queue.admission``)

Refuses to start, to write and to decide anything. What only a whole pass over the input shows (a bad value in
its millionth row) shows when the input is cut; a launch that is refused then leaves nothing behind either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agileml.app import (
    Application,
    ApplicationError,
    ApplicationFault,
    ColumnsError,
    HasClockEstimate,
    HasLargest,
    asked,
    load_application,
)
from agileml.hosts import marked
from agileml.hosts.stored import CheckpointError, newest
from agileml.places import Place
from spotctl.command.store import CheckpointStore, StoreError
from spotctl.config import Command, JobSpec
from spotctl.control.terms import Terms
from spotctl.errors import JobError
from spotctl.models import check_output
from spotctl.modelsize import BYTES_PER_VALUE, memory_of_computer, refuse_immovable, refuse_too_large
from spotctl.settings import Settings, WorldKind

if TYPE_CHECKING:
    from agileml.sampling import Counts
    from agileml.tables import Table
    from agileml.trial import ClockTime

_ESTIMATES_MAY_BE_LOW_BY: Final = 1.25
"""An input of which a part was read may have so many times the values that this part tells."""


@dataclass(frozen=True, slots=True)
class InputSize:
    """What was found of an elastic job's input, and of the model that it makes.

    ``model_values``: of the whole model, or the most that it may have where it is not ``model_exact``.
    """

    counts: Counts
    model_values: int
    model_exact: bool
    clock_core_seconds: float | None = None
    """Of a clock, as the application estimates it from the counts; None where it does not."""


def check_job(settings: Settings, terms: Terms) -> InputSize | None:
    """Raises JobError where the job cannot be run as its file says. None where it has no input to look at.

    Whatever the world: what the job itself is. Where this computer runs it: secrets, memory, and that results
    and checkpoints can be written.
    """
    return _CHECKS[settings.spec.engine](settings, terms)


# ---- an elastic job -----------------------------------------------------------------------------


def _check_agileml(settings: Settings, terms: Terms) -> InputSize:
    spec = settings.spec
    app = application_of(spec)
    _check_metric(spec, app)
    found = _look_at_input(spec, app, _limits(settings, terms))
    if settings.world is WorldKind.LOCAL:
        check_output(spec.output)
        _check_model_checkpoints(spec)
    return found


def application_of(spec: JobSpec) -> Application:
    """Makes the application that an elastic job names. Raises JobError where there is no such one."""
    try:
        return load_application(spec.app, spec.args)
    except ApplicationError as error:
        raise JobError("app", str(error)) from error


def measure_job(spec: JobSpec, size: InputSize) -> ClockTime:
    """Measures what a clock takes one core of this computer, on a part of the input, in some seconds.

    Raises JobError where the application fails at it or takes too long.
    """
    from agileml.trial import Trial, measure_clock

    trial = Trial(spec.app, dict(spec.args), spec.data, size.counts.rows, spec.training.shards, spec.columns)
    try:
        return measure_clock(trial, memory_bytes=memory_of_computer())
    except ApplicationError as error:
        raise JobError("app", f"{spec.app}: {error}") from error


def data_error(spec: JobSpec, error: ApplicationError) -> JobError:
    """Says that the job's input is not what its application expects, with the input's name once."""
    told = str(error)
    if isinstance(error, ColumnsError) and spec.columns:
        return JobError("columns", told)
    return JobError("data", told if spec.data in told else f"{spec.data}: {told}")


def describe_data(spec: JobSpec) -> str | None:
    """Returns which columns of the job's data are read as what; None of a job without data.

    Only the first lines are read. Raises JobError where a launch would refuse the columns.
    """
    if spec.engine != "agileml":
        return None
    from agileml.looking import describe_input

    try:
        return describe_input(spec.data, application_of(spec).columns, spec.columns)
    except ApplicationError as error:
        raise data_error(spec, error) from error


def _check_metric(spec: JobSpec, app: Application) -> None:
    converged = spec.stop.converged
    if converged is not None and converged.metric != app.metric:
        raise JobError(
            "stop.converged.metric", f"found {converged.metric!r}, but {spec.app} reports {app.metric!r}"
        )


_Limit = Callable[[int], None]
"""Raises JobError for a model of so many bytes."""


def _limits(settings: Settings, terms: Terms) -> _Limit:
    spec = settings.spec

    def limit(model_bytes: int) -> None:
        if spec.objective.strategy != "on-demand":
            refuse_immovable(model_bytes, spec.training.link_mbit_s, terms.rules.notice_s)
        if settings.world is WorldKind.LOCAL:
            refuse_too_large(model_bytes)

    return limit


def _look_at_input(spec: JobSpec, app: Application, limit: _Limit) -> InputSize:
    """Counts the input and its model. A large input is read whole only where its model may be too large."""
    from agileml.sampling import Sample  # brings DuckDB and pandas, which only an input needs
    from agileml.tables import Table

    try:
        sample = Sample(spec.data, app.columns, spec.columns)
        counts = sample.counts()
        if counts.exact and counts.rows == counts.rows_read:
            values, exact = _survey(app, sample, spec), True
        else:
            most = _most_values(app, counts) if sample.layout is app.columns else None
            exact = most is None or not _allows(limit, most)
            if most is None or exact:
                values = _survey(app, Table(spec.data, app.columns, called=spec.columns), spec)
            else:
                values = most
    except ApplicationFault as error:
        raise JobError("app", f"{spec.app}: {error}") from error
    except ApplicationError as error:
        raise data_error(spec, error) from error
    limit(values * BYTES_PER_VALUE)
    estimate = None
    if isinstance(app, HasClockEstimate):
        with asked("clock_core_seconds"):
            estimate = float(app.clock_core_seconds(counts))
    return InputSize(counts, values, exact, estimate)


def _survey(app: Application, table: Table, spec: JobSpec) -> int:
    """Returns how many values the model has, by the application's own pass over ``table``."""
    with asked("survey"):
        shape = app.survey(table, spec.training.shards).shape
    return shape.rows * shape.columns


def _most_values(app: Application, counts: Counts) -> int | None:
    """Returns the most values that a model of this input may have; None where the application cannot tell."""
    if not isinstance(app, HasLargest):
        return None
    values = counts.values if counts.exact else counts.values * _ESTIMATES_MAY_BE_LOW_BY
    with asked("largest_model"):
        return app.largest_model(int(values))


def _allows(limit: _Limit, values: int) -> bool:
    try:
        limit(values * BYTES_PER_VALUE)
    except JobError:
        return False
    return True


def _check_model_checkpoints(spec: JobSpec) -> None:
    """That they can be written, and read where the job is to go on from them."""
    if spec.checkpoint is None:
        return
    place = place_of(spec)
    try:
        Place(place).check()
        if spec.checkpoint.resume:
            newest(place)
    except CheckpointError as error:
        raise JobError("checkpoint", str(error)) from error
    except Exception as error:  # of any file system's own kind
        raise JobError("checkpoint.store", f"{place} cannot be written to: {error}") from error


def place_of(spec: JobSpec) -> str:
    """Where checkpoints of an elastic job are, of whatever run; empty where none are kept."""
    return "" if spec.checkpoint is None else f"{spec.checkpoint.store.rstrip('/')}/{spec.name}"


# ---- a command ----------------------------------------------------------------------------------


def _check_command(settings: Settings, _: Terms) -> None:
    spec, command = settings.spec, settings.spec.command
    if command is None or settings.world is not WorldKind.LOCAL:
        return
    if not marked.supported():
        raise JobError("engine", "command needs Linux here: its /proc tells what belongs to a machine")
    _check_secrets(command)
    if command.checkpoint.store is not None:
        try:
            CheckpointStore(command.checkpoint.store).check()
        except StoreError as error:
            raise JobError("checkpoint.store", str(error)) from error
    if spec.output:
        check_output(spec.output)


def _check_secrets(command: Command) -> None:
    missing = [name for name in command.secrets if name not in os.environ]
    if missing:
        raise JobError("secrets", f"{', '.join(missing)} not in the environment; export before you launch")


_CHECKS: Final[Mapping[str, Callable[[Settings, Terms], InputSize | None]]] = {
    "agileml": _check_agileml,
    "command": _check_command,
}
