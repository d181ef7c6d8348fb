"""The application API: what a training program gives.

An application is a class whose instances are made from keyword arguments alone, so that every process of
the job makes its own equal one. It is named ``module:Class`` or ``path/file.py:Class``. All it computes
must follow from its arguments (and the seed it is given), never from a clock or the machine: then the
trained model does not depend on which machines came and went.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from enum import StrEnum
from numbers import Integral, Real
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from agileml.messages import Matrix, Patch, Rows
from agileml.partition import Shape

if TYPE_CHECKING:
    from agileml.tables import Table  # which brings DuckDB along: only who cuts the input needs that

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]

_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": (bool, "true or false"),
    "str": (str, "text"),
}
"""What is expected of an argument that a dataclass declares so."""


class ApplicationError(Exception):
    """The application, or its input, is not what it should be. The message is for its author."""


class Kind(StrEnum):
    """What a column of the input holds."""

    INTEGER = "whole numbers"  # int64
    NUMBER = "numbers"  # finite, float64
    TEXT = "text"  # str


@dataclass(frozen=True, slots=True)
class Columns:
    """What the application reads: columns it needs, and the kind of ``others`` where it takes any."""

    needed: Mapping[str, Kind]
    others: Kind | None = None

    def __str__(self) -> str:
        wanted = ", ".join(f"{name} ({kind.value})" for name, kind in self.needed.items())
        return wanted if self.others is None else f"{wanted} and any others ({self.others.value})"


@dataclass(frozen=True, slots=True)
class Survey:
    """What the application learned of the whole input, before it is cut.

    ``index``: what the model's rows mean, kept beside the model for its users. ``common``: what preparing
    any shard takes. Shards are ranges of the input's rows; or, where ``key`` names a column of numbers,
    ranges of that: shard i takes keys above ``splits[i - 1]`` and up to ``splits[i]``.
    """

    shape: Shape
    index: Arrays
    common: Arrays
    key: str | None = None
    splits: npt.NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A shard's clock. ``delta``: global rows, sorted and unique, and what to add to them.

    ``total`` of ``count`` terms is the shard's part of the objective, at the values it was given.
    """

    delta: Patch
    total: float
    count: float


class Application(Protocol):
    metric: ClassVar[str]
    """What the objective is called, like rmse."""

    columns: ClassVar[Columns]
    """What it reads of the input."""

    def survey(self, table: Table, shards: int) -> Survey:
        """Learn of the whole input what ``prepare`` and users need, in one pass or a few."""

    def prepare(self, rows: Arrays, numbers: Rows, survey: Survey) -> Arrays:
        """A shard, made of its rows of the input and their numbers in it, in order; there may be none."""

    def initial(self, rows: Rows, shape: Shape) -> Matrix:
        """Start values of any rows, float32 (len(rows), columns): the same for a row whoever asks."""

    def rows(self, shard: Arrays) -> Rows:
        """The global rows that the shard reads, sorted and unique."""

    def process(self, shard: Arrays, values: Matrix, seed: tuple[int, int]) -> Outcome:
        """One clock of one shard, from the values of its rows. ``seed``: (shard, clock), for any chance."""

    def objective(self, total: float, count: float) -> float:
        """The objective, of the shards' sums."""


@runtime_checkable
class HasReference(Protocol):
    """An application that can say what a trusted solver reaches on the same input."""

    reference_name: ClassVar[str]

    def reference_objective(self, table: Table) -> float:
        """The trusted solver's objective."""


@runtime_checkable
class HasLargest(Protocol):
    """An application that can say how large its model may become, from the size of its input alone."""

    def largest_model(self, words: int) -> int:
        """Values of the largest model of any input with at most ``words`` numbers and words."""


def load_application(reference: str, arguments: Mapping[str, Any]) -> Application:
    """Make the application that ``reference`` names. Raises ApplicationError with what was wrong."""
    place, _, name = reference.rpartition(":")
    if not place:
        raise ApplicationError(
            f"{reference!r} does not name an application; write module:Class or file.py:Class"
        )
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module(place)
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
    return made


def _check_kinds(reference: str, kind: type, arguments: Mapping[str, Any]) -> None:
    """Raises ApplicationError where a dataclass declares a number, say, and the argument is none."""
    for field in fields(kind) if is_dataclass(kind) else ():
        declared = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "")
        if field.name not in arguments or declared not in _KINDS:
            continue
        value, (wanted, called) = arguments[field.name], _KINDS[declared]
        if not isinstance(value, wanted) or isinstance(value, bool) is not (wanted is bool):
            raise ApplicationError(f"args.{field.name} of {reference}: found {value!r}, expected {called}")


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ApplicationError(f"cannot import the application module {name}: {error}") from error


def _module_of_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ApplicationError(f"there is no application file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(outcome: Outcome, shape: Shape) -> Patch:
    """The outcome's delta, if it may be added to the model; raises ApplicationError if not."""
    rows, values = outcome.delta.rows, outcome.delta.values
    if values.shape != (len(rows), shape.columns) or values.dtype != np.float32 or rows.dtype != np.int64:
        raise ApplicationError(
            f"a delta is int64 rows and float32 values of {shape.columns} columns, "
            f"not {rows.dtype} {rows.shape} and {values.dtype} {values.shape}"
        )
    if len(rows) and not (rows[0] >= 0 and rows[-1] < shape.rows and bool((rows[1:] > rows[:-1]).all())):
        raise ApplicationError(f"a delta's rows are sorted, unique and below {shape.rows}")
    return outcome.delta
