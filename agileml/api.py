"""Defines the application API: what a training program provides.

An application is a class whose instances are made from keyword arguments alone, so that every process of the
job makes its own equal one. It is named ``module:Class`` or ``path/file.py:Class``. All it computes must
follow from its arguments (and the seed it is given), never from a clock or the machine: then the trained
model does not depend on which machines came and went.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from enum import StrEnum
from importlib.abc import ExecutionLoader
from numbers import Integral, Real
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from agileml.model_shape import Shape as Shape
from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch as Patch

if TYPE_CHECKING:
    from agileml.data.tables import Table  # imports DuckDB, which only cutting the input needs

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]
Called: TypeAlias = Mapping[str, str | Sequence[str]]
"""The columns that a job names: the file's name by the application's; ``others`` has a list of them."""

_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": (bool, "true or false"),
    "str": (str, "text"),
}
"""The type expected of an argument that a dataclass declares so, and what error messages call it."""


class ApplicationError(Exception):
    """The application, or its input, is not what it should be. The message is for its author."""


class ColumnsError(ApplicationError):
    """The columns that a job names are not those of its application or of its input."""


class ApplicationFault(ApplicationError):
    """The application's own code has failed, or returned what it must not; its input is not to blame."""


class Kind(StrEnum):
    """The kind of values in a column of the input."""

    INTEGER = "whole numbers"  # int64
    NUMBER = "numbers"  # finite, float64
    TEXT = "text"  # str
    KEY = "whole numbers or names"  # int64: the number itself, or the place of a name (``Table.named``)


@dataclass(frozen=True, slots=True)
class Columns:
    """Describes what the application reads: columns it needs, and the kind of ``others`` where it takes any.

    ``aliases``: other headers by which a needed column is recognised, best first; case and punctuation do not
    count. ``instead``: a second layout that the application reads as well, such as word counts for texts.
    """

    needed: Mapping[str, Kind]
    others: Kind | None = None
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    instead: Columns | None = None

    @property
    def all_layouts(self) -> tuple[Columns, ...]:
        """This layout and those that the application reads instead of it."""
        return (self,) if self.instead is None else (self, *self.instead.all_layouts)

    def __str__(self) -> str:
        wanted = ", ".join(f"{name} ({kind.value})" for name, kind in self.needed.items())
        every = wanted if self.others is None else f"{wanted} and any others ({self.others.value})"
        return every if self.instead is None else f"{every}; or {self.instead}"


@dataclass(frozen=True, slots=True)
class Counts:
    """The size of an input. ``rows`` and ``values`` (numbers and words) are estimates unless ``exact``."""

    files: int
    size_bytes: int
    columns: tuple[str, ...]
    rows: int
    values: int
    exact: bool
    rows_read: int
    distinct: Mapping[str, int]
    """Counts of different keys by key column, in the rows that were read."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Describes the whole input as the application learned it, before it is cut.

    ``index``: what the model's rows mean, kept beside the model for its users. ``common``: what preparing any
    shard needs. Shards are ranges of the input's rows; or, where ``key`` names a column of numbers, ranges of
    that: shard i takes keys above ``splits[i - 1]`` and up to ``splits[i]``.
    """

    shape: Shape
    index: Arrays
    common: Arrays
    key: str | None = None
    splits: npt.NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one clock of a shard.

    ``delta``: global rows, sorted and unique, and what to add to them. ``total`` of ``count`` terms is the
    shard's part of the objective, at the values it was given.
    """

    delta: Patch
    total: float
    count: float


class Application(Protocol):
    """A model and how to train it: what its author writes, and all that AgileML needs of it.

    Every process of the job makes its own from the same arguments, so an answer may depend on those and on
    what it is asked with, and on nothing else. ``survey`` and ``prepare`` are called where the job starts,
    the others on any machine.
    """

    metric: ClassVar[str]
    """The name of the objective, like rmse."""

    columns: ClassVar[Columns]
    """The columns that it reads from the input."""

    def survey(self, table: Table, shards: int) -> Survey:
        """Learns of the whole input what ``prepare`` and users need, in one pass or a few."""

    def prepare(self, rows: Arrays, numbers: Rows, survey: Survey) -> Arrays:
        """Returns a shard, made of its rows of the input and their numbers in it, in order; there may be
        none.
        """

    def initial(self, rows: Rows, shape: Shape) -> Matrix:
        """Returns start values of any rows, float32 (len(rows), columns): the same for
        a row in any process.
        """

    def rows(self, shard: Arrays) -> Rows:
        """Returns the global rows that the shard reads, sorted and unique."""

    def process(self, shard: Arrays, values: Matrix, seed: tuple[int, int]) -> Outcome:
        """Computes one clock of one shard, from the values of its rows. ``seed``: (shard, clock), for random
        numbers.
        """

    def objective(self, total: float, count: float) -> float:
        """Returns the objective, from the shards' sums."""


@runtime_checkable
class HasReference(Protocol):
    """An application that can say what a trusted solver reaches on the same input."""

    reference_name: ClassVar[str]

    def reference_objectives(self, table: Table) -> Iterator[float]:
        """Yields the trusted solver's objective after each of its sweeps; the last one is the converged one.

        A caller may run out of time, and then reports the newest with the number of sweeps.
        """


@runtime_checkable
class HasLargest(Protocol):
    """An application that can say how large its model may become, from the size of its input alone."""

    def largest_model(self, words: int) -> int:
        """Returns the values of the largest model of any input with at most ``words`` numbers and words."""


@runtime_checkable
class HasClockEstimate(Protocol):
    """An application that can say roughly what a clock takes, from the size of its input alone."""

    def clock_core_seconds(self, counts: Counts) -> float:
        """Returns how many seconds a clock of all of the input takes one core, within a factor of three or
        so.
        """


def load_application(reference: str, arguments: Mapping[str, Any], kept: Path | None = None) -> Application:
    """Makes the application that ``reference`` names. Raises ApplicationError with what was wrong.

    ``kept``: a copy of its file, which is loaded in the file's place while messages name the file.
    """
    place, _, name = reference.rpartition(":")
    if not place:
        raise ApplicationError(
            f"{reference!r} does not name an application; write module:Class or file.py:Class"
        )
    module = _module_of_file(Path(place), kept) if place.endswith(".py") else _import_module(place)
    kind = getattr(module, name, None)
    if not isinstance(kind, type):
        near = get_close_matches(
            name, (key for key, value in vars(module).items() if isinstance(value, type))
        )
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise ApplicationError(f"{place} has no class {name}{meant}")
    _check_kinds(reference, kind, arguments)
    try:
        made: Application = kind(**arguments)
    except (TypeError, ValueError) as error:
        raise ApplicationError(f"{reference} cannot be made from {dict(arguments)}: {error}") from error
    except Exception as error:  # the author may raise anything
        described = f"{_format_error(error)}{_format_location(error, ours=1)}"
        raise ApplicationError(f"{reference} cannot be made from {dict(arguments)}: {described}") from error
    _check_parts(reference, made)
    return made


@contextmanager
def calling_application(what: str) -> Iterator[None]:
    """Wraps calls of an application's own code by the process that starts a job.

    What it prints goes to standard error: standard output is for data. What it raises becomes an
    ApplicationFault that names ``what`` was called and the line; what its input or the system raised stays as
    it is.
    """
    with redirect_stdout(sys.stderr):
        try:
            yield
        except (ApplicationError, OSError):
            raise
        except Exception as error:  # the author's code may raise anything
            raise ApplicationFault(
                f"{what} failed: {_format_error(error)}{_format_location(error)}"
            ) from error


def _format_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _format_location(error: BaseException, ours: int = 2) -> str:
    """Returns the innermost line of the file that was called below ``ours`` frames; empty where no line had
    run.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not _is_module_loading(frame.filename)
    ]
    theirs = [frame for frame in frames[ours:] if frame.filename == frames[ours].filename]
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""


def _is_module_loading(file: str) -> bool:
    """Whether a file is part of Python's own loading of modules."""
    return file.startswith("<frozen ") or Path(file).parent == Path(importlib.__file__).parent


def _check_parts(reference: str, made: object) -> None:
    """Raises ApplicationError where it lacks what every application has."""
    methods = ("survey", "prepare", "initial", "rows", "process", "objective")
    parts = {name: getattr(made, name, None) for name in ("metric", "columns", *methods)}
    lacking = [name for name, part in parts.items() if part is None]
    if lacking:
        raise ApplicationError(
            f"{reference} has no {', '.join(lacking)}; an application has metric, columns and the methods "
            f"{', '.join(methods)}"
        )
    if not isinstance(parts["columns"], Columns):
        found = type(parts["columns"]).__name__
        raise ApplicationError(f"{reference}: columns is a {found}, expected agileml.api.Columns")


def _check_kinds(reference: str, kind: type, arguments: Mapping[str, Any]) -> None:
    """Raises ApplicationError where an argument is not of the kind that a dataclass declares."""
    for parameter in fields(kind) if is_dataclass(kind) else ():
        declared = parameter.type
        declared = declared if isinstance(declared, str) else getattr(declared, "__name__", "")
        if parameter.name not in arguments or declared not in _KINDS:
            continue
        value, (wanted, called) = arguments[parameter.name], _KINDS[declared]
        if not isinstance(value, wanted) or isinstance(value, bool) is not (wanted is bool):
            raise ApplicationError(
                f"args.{parameter.name} of {reference}: found {value!r}, expected {called}"
            )


def _import_module(name: str) -> ModuleType:
    with _wrap_import_errors(f"the application module {name}"):
        return importlib.import_module(name)


class _FileLoader(ExecutionLoader):
    """Loads what is in ``content`` as the module in ``path``."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._path = path
        self._content = content

    def get_filename(self, fullname: str) -> str:
        return str(self._path)

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._content)


def _module_of_file(path: Path, kept: Path | None) -> ModuleType:
    """Loads a file as a module, under a name of its own that hides no other module, where a dataclass looks
    for it.
    """
    try:
        loader = _FileLoader(path, (kept or path).read_bytes())
    except OSError as error:
        raise ApplicationError(f"there is no application file {path}") from error
    name = f"_application_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with _wrap_import_errors(f"the application file {path}"):
        loader.exec_module(module)
    return module


@contextmanager
def _wrap_import_errors(what: str) -> Iterator[None]:
    """Raises ApplicationError with whatever ended the import, an exit of a script included."""
    with redirect_stdout(sys.stderr):
        try:
            yield
        except (Exception, SystemExit) as error:
            raise ApplicationError(
                f"cannot import {what}: {_format_error(error)}{_format_location(error)}"
            ) from error


def validated_delta(outcome: object, shape: Shape) -> Patch:
    """Returns the outcome's delta, if it may be added to the model; raises ApplicationError if not."""
    if not isinstance(outcome, Outcome):
        raise ApplicationError(f"process gave {type(outcome).__name__}, expected an Outcome")
    rows, values = outcome.delta.rows, outcome.delta.values
    if values.shape != (len(rows), shape.columns) or values.dtype != np.float32 or rows.dtype != np.int64:
        raise ApplicationError(
            f"the delta of process has rows {rows.dtype} {rows.shape} and values {values.dtype} "
            f"{values.shape}, expected int64 ({len(rows)},) and float32 ({len(rows)}, {shape.columns})"
        )
    if len(rows) and not (
        rows[0] >= 0 and rows[-1] < shape.rows and np.count_nonzero(rows[1:] > rows[:-1]) == len(rows) - 1
    ):
        raise ApplicationError(
            f"the delta of process has rows {format_rows(rows)}, expected rows of the model: sorted, unique, "
            f"from 0 to {shape.rows - 1}"
        )
    return outcome.delta


def format_rows(rows: Rows) -> str:
    """Returns the first and the last rows as text."""
    return np.array2string(rows, threshold=8, edgeitems=3, separator=", ")
