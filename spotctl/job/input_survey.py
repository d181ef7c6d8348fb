"""Measures an elastic job's input before it runs: its columns, its size, and the size of its model.

Measuring loads DuckDB and pandas and reads some rows, which takes about a second. So the result is kept:

ROOT/cache/inputs/KEY.json    what was found of an input; touched when it is used

KEY follows from all that the answer depends on: paths, sizes, times and inodes of the files, the columns that
the job names, the application's source and arguments, the number of shards, and the source of the modules
that read. Nothing is kept of an input that is not on this disk, nor of one that was changed a moment ago,
since another change may leave its time as it is. Nothing else depends on these files: an unreadable one is
measured again, and the oldest go when there is too much.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import agileml
from agileml.api import (
    Application,
    ApplicationError,
    ApplicationFault,
    ColumnsError,
    Counts,
    HasClockEstimate,
    HasLargest,
    calling_application,
)
from spotctl.errors import JobError
from spotctl.home import default_root
from spotctl.job.model_size import BYTES_PER_VALUE
from spotctl.job.spec import JobSpec
from spotctl.records.shared_inputs import source_of_application
from spotctl.records.trace_cache import remove_oldest
from spotctl.timesource import wall_clock

if TYPE_CHECKING:
    from agileml.data.tables import Table

ModelLimit = Callable[[int], None]
"""Raises JobError for a model of too many bytes."""

_ESTIMATES_MAY_BE_LOW_BY: Final = 1.25
"""An input of which a part was read may have this many times the values that the part suggests."""
_SETTLED_NS: Final = 3_000_000_000
"""A file that was changed less than this before may change again without a new date (FAT: two seconds)."""
_MOST_KEPT: Final = 2 * 2**20
"""Bytes to keep in all: some thousands of results."""


@dataclass(frozen=True, slots=True)
class InputSize:
    """Holds what was found of an elastic job's input, and of the model that it makes.

    ``model_values``: of the whole model, or the most that it may have where it is not ``model_exact``.
    """

    counts: Counts
    model_values: int
    model_exact: bool
    description: str = ""
    """One line: how the input's columns are read."""
    clock_core_seconds: float | None = None
    """Core-seconds of a clock, as the application estimates them from the counts; None where it does not."""


def look_at_input(spec: JobSpec, app: Application, limit: ModelLimit) -> InputSize:
    """Counts the input and its model. A large input is read whole only where its model may be too large.

    Raises JobError where the input is not what the application expects, or its model above the ``limit``.
    """
    folder = default_root() / "cache" / "inputs"
    try:
        key = _cache_key(spec)
        found = None if key is None else _load_cached(folder, key)
        # A cached upper bound above the limit is no answer: the exact size may be within it.
        if found is None or not (found.model_exact or _is_allowed(limit, found.model_values)):
            found = _survey_input(spec, app, limit)
            if key is not None and _cache_key(spec) == key:  # otherwise the input changed meanwhile
                _store_cached(folder, key, found)
    except ApplicationFault as error:
        raise JobError("app", f"{spec.app}: {error}") from error
    except ApplicationError as error:
        raise data_error(spec, error) from error
    limit(found.model_values * BYTES_PER_VALUE)
    estimate = None
    if isinstance(app, HasClockEstimate):
        with calling_application("clock_core_seconds"):
            estimate = float(app.clock_core_seconds(found.counts))
    return InputSize(found.counts, found.model_values, found.model_exact, found.description, estimate)


def _survey_input(spec: JobSpec, app: Application, limit: ModelLimit) -> InputSize:
    from agileml.data.file_survey import describe_input
    from agileml.data.sampling import Sample  # loads DuckDB and pandas, which only an unknown input needs
    from agileml.data.tables import Table

    sample = Sample(spec.data, app.columns, spec.columns)
    counts = sample.count_input()
    if counts.exact and counts.rows == counts.rows_read:
        values, exact = _count_model_values(app, sample, spec), True
    else:
        most = _most_values(app, counts) if sample.layout is app.columns else None
        exact = most is None or not _is_allowed(limit, most)
        if most is None or exact:
            values = _count_model_values(app, Table(spec.data, app.columns, called=spec.columns), spec)
        else:
            values = most
    return InputSize(counts, values, exact, describe_input(spec.data, app.columns, spec.columns))


def _count_model_values(app: Application, table: Table, spec: JobSpec) -> int:
    """Returns how many values the model has, by the application's own pass over ``table``."""
    with calling_application("survey"):
        shape = app.survey(table, spec.training.shards).shape
    return shape.rows * shape.columns


def _most_values(app: Application, counts: Counts) -> int | None:
    """Returns the most values that a model of this input may have; None where the application cannot tell."""
    if not isinstance(app, HasLargest):
        return None
    values = counts.values if counts.exact else counts.values * _ESTIMATES_MAY_BE_LOW_BY
    with calling_application("largest_model"):
        return app.largest_model(int(values))


def _is_allowed(limit: ModelLimit, values: int) -> bool:
    try:
        limit(values * BYTES_PER_VALUE)
    except JobError:
        return False
    return True


def data_error(spec: JobSpec, error: ApplicationError) -> JobError:
    """Makes an error that the input is not what its application expects, with the input's name once."""
    told = str(error)
    if isinstance(error, ColumnsError) and spec.columns:
        return JobError("columns", told)
    return JobError("data", told if spec.data in told else f"{spec.data}: {told}")


# ---- results of earlier calls -------------------------------------------------------------------


def _cache_key(spec: JobSpec) -> str | None:
    """Returns a digest of the input and all that its size depends on; None where nothing is kept of it.

    A plan creates no home, so nothing is kept before there is one.
    """
    from agileml.data.fingerprints import digest_of, digest_of_package

    if not default_root().exists():
        return None
    try:
        stats = _file_stats(spec.data)
    except OSError:  # it is going away: its reader reports that
        return None
    newest_ns = max([stat[1] for stat in stats.values() if stat], default=None)
    if newest_ns is None or wall_clock() * 1e9 - newest_ns < _SETTLED_NS:
        return None
    place = spec.app.rpartition(":")[0]
    return digest_of(
        {
            "files": stats,
            "data": spec.data,
            "columns": dict(spec.columns),
            "application": spec.app,
            "arguments": dict(spec.args),
            "shards": spec.training.shards,
            "source": source_of_application(spec.app, Path(place) if place.endswith(".py") else None),
            "readers": [digest_of_package(Path(agileml.__file__).parent), Path(__file__).read_text()],
        }
    )


def _file_stats(location: str) -> dict[str, tuple[int, ...] | None]:
    """Returns the local files of an input and its vocabularies, each with its size, times and inode."""
    from agileml.data.fingerprints import stat_of
    from agileml.data.sources import find_files, is_local, vocabulary_of

    if "://" in location:
        return {}  # checking a remote store would take longer than it saves
    if os.path.isfile(location):
        files = [os.path.abspath(location)]  # the usual case, without loading anything
    else:
        filesystem, files = find_files(location)
        if not is_local(filesystem):
            return {}
    found: dict[str, tuple[int, ...] | None] = {}
    for file in files:
        found[file] = stat_of(file)
        vocabulary = vocabulary_of(file)
        if vocabulary is not None:
            found[vocabulary] = stat_of(vocabulary) if os.path.exists(vocabulary) else None
    return found


def _load_cached(folder: Path, key: str) -> InputSize | None:
    path = folder / f"{key}.json"
    try:
        told = json.loads(path.read_bytes())
        counts = {**told["counts"], "columns": tuple(told["counts"]["columns"])}
        found = InputSize(Counts(**counts), told["values"], told["exact"], told["description"])
        os.utime(path)  # so that the oldest file is the least used one
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found


def _store_cached(folder: Path, key: str, found: InputSize) -> None:
    told: Mapping[str, Any] = {
        "counts": asdict(found.counts),
        "values": found.model_values,
        "exact": found.model_exact,
        "description": found.description,
    }
    # Written aside, so that no reader finds half of it.
    partial = folder / f"{key}.{os.getpid()}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(told))
        partial.replace(folder / f"{key}.json")
        remove_oldest(folder, _MOST_KEPT)
    except OSError:  # no room, or no permission: it is measured again next time
        with suppress(OSError):
            partial.unlink()
