"""Whether one machine can send the whole model within the notice of an eviction, which it may have to.

``launch`` knows the model from the input that it cuts. ``plan`` cuts nothing: it surveys the input, unless
the application can tell from the size of the file alone that its model is small enough.
"""

from __future__ import annotations

from glob import glob
from pathlib import Path
from typing import Final

from agileml.app import (
    Application,
    ApplicationError,
    ApplicationFault,
    ColumnsError,
    HasLargest,
    asked,
    load_application,
)
from spotctl.config import JobSpec
from spotctl.errors import JobError

BYTES_PER_VALUE: Final = 4
_INFLATES_TO: Final = 1032
"""Bytes out of one byte of a gzip file, at most (RFC 1951: a match of 258 bytes takes two bits)."""


def check_movable(spec: JobSpec, notice_s: float) -> None:
    """Raises JobError where ``launch`` would: the model cannot be moved, or the input cannot be read."""
    if spec.engine != "agileml" or spec.objective.strategy == "on-demand":
        return
    app = application_of(spec)
    try:
        words = _most_words(spec.data)
        if isinstance(app, HasLargest) and words is not None and _holds_words(spec, app):
            largest = app.largest_model(words) * BYTES_PER_VALUE
            if _move_s(largest, spec.training.link_mbit_s) <= notice_s:
                return
        with asked("survey"):
            values = _values(app, spec)
    except ApplicationFault as error:
        raise JobError("app", f"{spec.app}: {error}") from error
    except ApplicationError as error:
        raise data_error(spec, error) from error
    refuse_immovable(values * BYTES_PER_VALUE, spec.training.link_mbit_s, notice_s)


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


def application_of(spec: JobSpec) -> Application:
    """The application that an elastic job names. Raises JobError where there is no such one."""
    try:
        return load_application(spec.app, spec.args)
    except ApplicationError as error:
        raise JobError("app", str(error)) from error


def data_error(spec: JobSpec, error: ApplicationError) -> JobError:
    """That the job's input is not what its application expects, with the input's name once."""
    told = str(error)
    if isinstance(error, ColumnsError) and spec.columns:
        return JobError("columns", told)
    return JobError("data", told if spec.data in told else f"{spec.data}: {told}")


def refuse_immovable(model_bytes: int, link_mbit_s: float, notice_s: float) -> None:
    """Raises JobError where one machine could not send the whole model within the notice of an eviction.

    It has to when it is the only one that serves; undo and what comes meanwhile are on top of that.
    """
    move_s = _move_s(model_bytes, link_mbit_s)
    if move_s > notice_s:
        raise JobError(
            "training.link_mbit_s",
            f"the model has {model_bytes / 1e6:,.0f} MB, which take {move_s:,.0f} s over a link of "
            f"{link_mbit_s:g} Mbit/s: more than the {notice_s:g} s between a warning and the end of a spot "
            "machine, so evictions would lose work. Make the model smaller, use machines with faster links "
            "(and say so: training.link_mbit_s), or run on demand (objective.strategy: on-demand)",
        )


def _move_s(model_bytes: int, link_mbit_s: float) -> float:
    return model_bytes * 8e-6 / link_mbit_s


def _values(app: Application, spec: JobSpec) -> int:
    """Of the whole model, by a pass over the input."""
    from agileml.tables import Table  # brings DuckDB and pandas

    shape = app.survey(Table(spec.data, app.columns, called=spec.columns), spec.training.shards).shape
    return shape.rows * shape.columns


def _holds_words(spec: JobSpec, app: Application) -> bool:
    """Whether the input holds the words themselves: a count of them may be any number."""
    if app.columns.instead is None:
        return True
    from agileml.looking import InputFiles, parquet_names

    return InputFiles(spec.data, app.columns, spec.columns, parquet_names).layout is app.columns


def _most_words(data: str) -> int | None:
    """Numbers and words that an input of CSV files can hold: two bytes each. None of any other input."""
    files = [Path(name) for name in glob(data)]
    if not files or not all(file.is_file() for file in files):
        return None
    total = 0
    for file in files:
        if not file.name.endswith((".csv", ".csv.gz")):
            return None
        total += file.stat().st_size * (_INFLATES_TO if file.suffix == ".gz" else 1)
    return total // 2 + 1
