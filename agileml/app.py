"""The application API: what a training program gives, and how its input reaches the workers.

An application is a class whose instances are made from keyword arguments alone, so that every process of
the job makes its own equal one. It is named ``module:Class`` or ``path/file.py:Class``. All it computes
must follow from its arguments (and the seed it is given), never from a clock or the machine: then the
trained model does not depend on which machines came and went.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from agileml.messages import Matrix, Patch, Rows
from agileml.partition import Shape

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]


class ApplicationError(Exception):
    """The application, or its input, is not what it should be. The message is for its author."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The input, cut once: the model's shape, the shards, and what the model's rows mean (kept for users)."""

    shape: Shape
    shards: tuple[Arrays, ...]
    index: Arrays


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

    def cut(self, source: Path, shards: int) -> Cut:
        """Read the input and cut it into this many shards, some of which may be empty."""

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

    def reference_objective(self, source: Path) -> float:
        """The trusted solver's objective."""


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
        raise ApplicationError(f"{place} has no class {name}")
    try:
        made: Application = kind(**arguments)
    except TypeError as error:
        raise ApplicationError(f"{reference} cannot be made from {dict(arguments)}: {error}") from error
    return made


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


# ---- the input, as files that every machine can read -------------------------------------------


def cut_input(app: Application, source: Path, shards: int, folder: Path) -> Shape:
    """Cut ``source`` into files below ``folder``; ``Input`` reads them."""
    cut = app.cut(source, shards)
    if len(cut.shards) != shards:
        raise ApplicationError(f"the application cut {source} into {len(cut.shards)} shards, not {shards}")
    folder.mkdir(parents=True, exist_ok=True)
    for number, arrays in enumerate(cut.shards):
        _save(folder / f"shard-{number:05}.npz", arrays)
    _save(folder / "index.npz", cut.index)
    (folder / "shape.json").write_text(json.dumps([cut.shape.rows, cut.shape.columns]))
    return cut.shape


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    np.savez(path, **arrays)


class Input:
    """The cut input. A shard is read when first asked for and kept, since shards come back to owners."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.shape = Shape(*json.loads((folder / "shape.json").read_text()))
        self.shard = lru_cache(maxsize=None)(self._read)

    def _read(self, number: int) -> Arrays:
        with np.load(self._folder / f"shard-{number:05}.npz", allow_pickle=False) as arrays:
            return dict(arrays)


def checked(outcome: Outcome, shape: Shape) -> Patch:
    """The outcome's delta, if it may be added to the model; raises ApplicationError if not."""
    rows, values = outcome.delta.rows, outcome.delta.values
    if values.shape != (len(rows), shape.columns) or values.dtype != np.float32 or rows.dtype != np.int64:
        raise ApplicationError(
            f"a delta is int64 rows and float32 values of {shape.columns} columns, "
            f"not {rows.dtype} {rows.shape} and {values.dtype} {values.shape}"
        )
    if len(rows) and not (rows[0] >= 0 and rows[-1] < shape.rows and bool(np.all(np.diff(rows) > 0))):
        raise ApplicationError(f"a delta's rows are sorted, unique and below {shape.rows}")
    return outcome.delta
