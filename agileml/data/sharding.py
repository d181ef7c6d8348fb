"""Cuts the input once, into S shards, in memory that does not grow with the input.

The application surveys the input; then each shard is prepared by itself and put where every machine can read
it. Shards that are ranges of the rows are taken as the rows are read. Where they are ranges of a column, rows
are first distributed to files on the local disk, one a shard. So memory holds one batch, or one shard, and
the disk below TMPDIR at most the input once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from agileml.api import (
    Application,
    ApplicationFault,
    Arrays,
    Called,
    Survey,
    calling_application,
    format_rows,
)
from agileml.data.column_names import NONE_CALLED
from agileml.data.shards import ShardWriter
from agileml.data.tables import Table
from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows

_NUMBERS: Final = ""
"""The column with the rows' numbers, on their way; no column of an input is called so."""
_TAKEN: Final = frozenset({"model", "file", "allow_pickle"})
"""Names that no array of an index may have: the model beside it is called so, or NumPy's savez uses them
itself.
"""
_TRIED: Final = 3
"""Rows of the model whose start values are checked before anything starts."""
NumberedRows: TypeAlias = dict[str, npt.NDArray[Any]]
"""Some rows: their columns, and their numbers."""


def cut_input(
    app: Application,
    source: str | Path,
    shards: int,
    place: str | Path,
    check: Callable[[], None] = lambda: None,
    called: Called = NONE_CALLED,
    scratch: Path | None = None,
) -> Shape:
    """Cuts ``source`` into shards below ``place``; ``ShardReader`` reads them. Returns the model's shape.

    ``check`` is called after each batch of the input and each shard, and may raise to give up. Rows that are
    sorted by a key go through files in ``scratch``, a folder of this computer, or where temporary files are;
    a process that is killed leaves them there.

    Raises ApplicationError where the input is not what the application expects, ApplicationFault where the
    application's own code fails; nothing at ``place`` counts as an input then.
    """
    table = Table(source, app.columns, after_batch=check, called=called)
    with calling_application("survey"):
        survey = app.survey(table, shards)
    _require_type(survey, Survey, "survey")
    survey = replace(survey, shape=_integral_shape(survey.shape))
    meanings = _check_arrays(survey.index, "survey, as index,")
    if taken := sorted(_TAKEN & meanings.keys()):
        raise ApplicationFault(f"survey, as index, gave {', '.join(taken)}; call these arrays otherwise")
    # A few start values now: a mistake in ``initial`` should not wait for the first server.
    first_rows = np.arange(min(_TRIED, survey.shape.rows), dtype=np.int64)
    with calling_application("initial"):
        values = app.initial(first_rows, survey.shape)
    _check_initial(values, len(first_rows), survey.shape)
    out = ShardWriter(place)
    dealt = (
        _shards_in_order(table, shards)
        if survey.key is None
        else _shards_by_key(table, survey, shards, scratch)
    )
    with closing(dealt):  # its files on the disk go, whatever ends this
        for shard, rows in enumerate(dealt):
            _write_shard(app, rows, survey, shard, out)
            del rows  # before the next shard's are read
            check()
    # Last, as it makes the folder an input: one that was cut off before counts for nothing.
    out.finish(survey.shape, meanings)
    return survey.shape


def _shards_in_order(table: Table, shards: int) -> Generator[NumberedRows, None, None]:
    """Yields the rows of each shard, where shards are ranges of the rows: as they are read."""
    # Rounded up, so that the last end is the number of rows and no shard differs by more than one row.
    ends = [-(-table.rows * (shard + 1) // shards) for shard in range(shards)]
    parts: list[NumberedRows] = []
    first = shard = 0
    for batch in _number_rows(table):
        rows, taken = len(batch[_NUMBERS]), 0
        # One batch may end several shards: small inputs have more shards than rows.
        while ends[shard] <= first + rows:
            parts.append({name: values[taken : ends[shard] - first] for name, values in batch.items()})
            rows_of_shard = _join_parts(parts)
            yield rows_of_shard
            # The generator would otherwise hold this shard while the next one is read.
            del rows_of_shard
            taken, shard = ends[shard] - first, shard + 1
            if shard == shards:
                return
        parts.append({name: values[taken:] for name, values in batch.items()})
        first += rows


def _shards_by_key(
    table: Table, survey: Survey, shards: int, scratch: Path | None
) -> Generator[NumberedRows, None, None]:
    """Yields the rows of each shard, where shards are ranges of a column: through files on the disk."""
    with tempfile.TemporaryDirectory(prefix="agileml-cut-", dir=scratch) as folder:
        spill = _Spill(Path(folder))
        for batch in _number_rows(table):
            spill.append_rows(batch, _shard_of(batch, survey, shards))
        for shard in range(shards):
            yield spill.take_shard(shard)


def _number_rows(table: Table) -> Iterator[Arrays]:
    """Yields the table's batches, with the number of each row beside its columns."""
    first = 0
    for batch in table.batches():
        rows = len(next(iter(batch.values())))
        yield {_NUMBERS: np.arange(first, first + rows), **batch}
        first += rows


def _join_parts(parts: list[NumberedRows]) -> NumberedRows:
    """Puts parts together column by column, and empties them: only one column is there twice."""
    joined = {name: np.concatenate([part.pop(name) for part in parts]) for name in tuple(parts[0])}
    parts.clear()
    return joined


def _write_shard(app: Application, rows: NumberedRows, survey: Survey, shard: int, out: ShardWriter) -> None:
    numbers = rows.pop(_NUMBERS)
    with calling_application(f"prepare, of shard {shard},"):
        prepared = app.prepare(rows, numbers, survey)
    arrays = _check_arrays(prepared, "prepare")
    with calling_application(f"rows, of shard {shard},"):
        read = app.rows(arrays)
    _check_rows(read, survey.shape)
    out.write_shard(shard, arrays, read)


def _shard_of(batch: Arrays, survey: Survey, shards: int) -> npt.NDArray[np.integer[Any]]:
    # Numbered rows carry a column that the application never asked for.
    columns = [name for name in batch if name != _NUMBERS]
    if not isinstance(survey.key, str) or survey.key not in columns:
        raise ApplicationFault(f"survey gave the key {survey.key!r}, expected one of {', '.join(columns)}")
    keys = batch[survey.key]
    if keys.dtype.hasobject or keys.ndim != 1:
        raise ApplicationFault(f"survey gave the key {survey.key}, expected the name of a column of numbers")
    splits = _as_array(survey.splits, "survey, as splits, gave")
    if splits.dtype.kind not in "iuf" or splits.shape != (shards - 1,) or np.any(splits[1:] < splits[:-1]):
        raise ApplicationFault(
            f"survey gave the splits {format_rows(splits)}; to cut the input by {survey.key} "
            f"into {shards} shards takes {shards - 1} numbers in ascending order"
        )
    # Left: a split is the last key of its shard, so equal keys never lie in two shards.
    return np.searchsorted(splits, keys, side="left")


def _require_type(found: object, kind: type, said_by: str) -> None:
    """Raises ApplicationFault where what was found is not of that type."""
    if not isinstance(found, kind):
        raise ApplicationFault(f"{said_by} gave {type(found).__name__}, expected {kind.__name__}")


def _integral_shape(shape: Shape) -> Shape:
    """Returns the shape in Python's own numbers, which JSON takes. Raises ApplicationFault where it is no
    model's shape.
    """
    _require_type(shape, Shape, "survey, as shape,")
    try:
        whole = Shape(index(shape.rows), index(shape.columns))
    except TypeError:
        whole = Shape(0, 0)
    if whole.rows < 1 or whole.columns < 1:
        raise ApplicationFault(f"survey gave {shape}, expected whole numbers of at least 1")
    return whole


def _check_arrays(given: object, said_by: str) -> Arrays:
    """Returns arrays by name. Raises ApplicationFault for anything else, and for arrays
    that need pickling.
    """
    _require_type(given, Mapping, said_by)
    named = cast(Mapping[Any, Any], given)
    if unnamed := [name for name in named if not isinstance(name, str)]:
        raise ApplicationFault(f"{said_by} gave an array called {unnamed[0]!r}, expected text")
    arrays = {name: _as_array(values, f"{said_by} gave {name}:") for name, values in named.items()}
    if objects := [name for name, array in arrays.items() if array.dtype.hasobject]:
        raise ApplicationFault(
            f"{said_by} gave {', '.join(objects)}: arrays of Python objects cannot be kept, "
            "expected numbers or NumPy's own text"
        )
    return arrays


def _as_array(given: object, complaint: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(given)
    except Exception as error:  # lists of unequal length, or a library's own that cannot be converted
        raise ApplicationFault(f"{complaint} {type(error).__name__}: {error}; expected an array") from error


def _check_rows(rows: Rows, shape: Shape) -> None:
    """Raises ApplicationFault where these cannot be the rows of the model that a shard reads."""
    _require_type(rows, np.ndarray, "rows")
    if rows.dtype != np.int64 or rows.ndim != 1:
        raise ApplicationFault(f"rows gave {rows.dtype} {rows.shape}, expected int64 (n,)")
    if len(rows) and not (rows[0] >= 0 and rows[-1] < shape.rows and np.all(np.diff(rows) > 0)):
        raise ApplicationFault(
            f"rows gave {format_rows(rows)}, expected rows of the model: "
            f"sorted, unique, from 0 to {shape.rows - 1}"
        )


def _check_initial(values: Matrix, count: int, shape: Shape) -> None:
    """Raises ApplicationFault where these cannot be the start values of so many rows."""
    _require_type(values, np.ndarray, "initial")
    expected = (count, shape.columns)
    if values.shape != expected or values.dtype != np.float32:
        raise ApplicationFault(
            f"initial gave {values.dtype} {values.shape} for {count} rows, expected float32 {expected}"
        )


class _Spill:
    """Holds rows on their way to their shards: a file a shard, batch after batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._empty: Arrays = {}

    def append_rows(self, batch: Arrays, shard_of: npt.NDArray[np.integer[Any]]) -> None:
        self._empty = {name: values[:0] for name, values in batch.items()}
        # Stable: within a shard the rows keep the order of the input, whatever the batches were.
        order = np.argsort(shard_of, kind="stable")
        numbers, starts = np.unique(shard_of[order], return_index=True)
        for number, places in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            with self._shard_file(number).open("ab") as out:
                for values in batch.values():
                    _write_array(out, values[places])

    def take_shard(self, number: int) -> NumberedRows:
        """Returns the shard's rows in their order; the file is gone afterwards."""
        # Begins with empty arrays: a shard without rows keeps the columns' types.
        parts: dict[str, list[npt.NDArray[Any]]] = {name: [none] for name, none in self._empty.items()}
        file = self._shard_file(number)
        if file.exists():
            with file.open("rb") as source:
                size = file.stat().st_size
                while source.tell() < size:
                    for name, known in parts.items():
                        known.append(_read_array(source, text=self._empty[name].dtype.hasobject))
            # At once: the prepared shard needs room as well.
            file.unlink()
        return {name: np.concatenate(known) for name, known in parts.items()}

    def _shard_file(self, number: int) -> Path:
        return self._folder / f"{number:05}"


def _write_array(out: BinaryIO, values: npt.NDArray[Any]) -> None:
    """Writes an array. Text is written as the lengths of its UTF-8 and all its bytes: NumPy's own strings are
    as wide as the longest.
    """
    if not values.dtype.hasobject:
        np.save(out, values)
        return
    # Lengths in bytes and not in characters, to cut the bytes when they are read.
    encoded = [text.encode() for text in values]
    np.save(out, np.array([len(text) for text in encoded], np.int64))
    np.save(out, np.frombuffer(b"".join(encoded), np.uint8))


def _read_array(source: BinaryIO, *, text: bool) -> npt.NDArray[Any]:
    first: npt.NDArray[Any] = np.load(source, allow_pickle=False)
    if not text:
        return first
    data = np.load(source, allow_pickle=False).tobytes()
    ends = np.cumsum(first)
    pieces = [data[end - size : end].decode() for size, end in zip(first, ends, strict=True)]
    return np.array(pieces, dtype=object)
