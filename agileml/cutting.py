"""Cuts the input once, into S shards, in memory that does not grow with the input.

Three passes: the application surveys the input; its rows are dealt out to files on the local disk, one a
shard; and each shard is prepared by itself and put where every machine can read it. So memory holds one
batch, or one shard, and the disk below TMPDIR holds the input once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from agileml.app import Application, ApplicationFault, Arrays, Survey, asked, shown
from agileml.input import CutInput
from agileml.messages import Matrix, Rows
from agileml.partition import Shape
from agileml.tables import Table

_NUMBERS: Final = ""
"""The column of the rows' numbers, on their way; no column of an input is called so."""
_TRIED: Final = 3
"""Rows of the model whose start values are looked at before anything starts."""


def cut_input(app: Application, source: str | Path, shards: int, place: str | Path) -> Shape:
    """Cut ``source`` into shards below ``place``; ``Input`` reads them. Returns the model's shape.

    Raises ApplicationError where the input is not what the application expects, ApplicationFault where the
    application's own code fails; nothing at ``place`` counts as an input then.
    """
    table = Table(source, app.columns)
    with asked("survey"):
        survey = app.survey(table, shards)
    _require(survey, Survey, "survey")
    first_rows = np.arange(min(_TRIED, survey.shape.rows), dtype=np.int64)
    with asked("initial"):
        values = app.initial(first_rows, survey.shape)
    _check_initial(values, len(first_rows), survey.shape)
    out = CutInput(place)
    with tempfile.TemporaryDirectory(prefix="agileml-cut-") as scratch:
        spill = _Spill(Path(scratch))
        first = 0
        for batch in table.batches():
            numbers = np.arange(first, first + len(next(iter(batch.values()))))
            spill.deal({_NUMBERS: numbers, **batch}, _shard_of(batch, numbers, table.rows, survey, shards))
            first += len(numbers)
        for shard in range(shards):
            _put(app, spill.take(shard), survey, shard, out)
    out.finish(survey.shape, survey.index)
    return survey.shape


def _put(
    app: Application, rows: dict[str, npt.NDArray[Any]], survey: Survey, shard: int, out: CutInput
) -> None:
    numbers = rows.pop(_NUMBERS)
    with asked(f"prepare, of shard {shard},"):
        arrays = app.prepare(rows, numbers, survey)
    _require(arrays, Mapping, "prepare")
    with asked(f"rows, of shard {shard},"):
        read = app.rows(arrays)
    _check_rows(read, survey.shape)
    out.shard(shard, arrays, read)


def _shard_of(
    batch: Arrays, rows: Rows, total: int, survey: Survey, shards: int
) -> npt.NDArray[np.integer[Any]]:
    if survey.key is None:
        return rows * shards // total
    if survey.splits is None or len(survey.splits) != shards - 1:
        raise ApplicationFault(f"survey: to cut the input by {survey.key} takes {shards - 1} splits")
    return np.searchsorted(survey.splits, batch[survey.key], side="left")


def _require(found: object, kind: type, said_by: str) -> None:
    """Raises ApplicationFault where what was found is not of that kind."""
    if not isinstance(found, kind):
        raise ApplicationFault(f"{said_by} gave {type(found).__name__}, expected {kind.__name__}")


def _check_rows(rows: Rows, shape: Shape) -> None:
    """Raises ApplicationFault where these cannot be the rows of the model that a shard reads."""
    _require(rows, np.ndarray, "rows")
    if rows.dtype != np.int64 or rows.ndim != 1:
        raise ApplicationFault(f"rows gave {rows.dtype} {rows.shape}, expected int64 (n,)")
    if len(rows) and not (rows[0] >= 0 and rows[-1] < shape.rows and np.all(np.diff(rows) > 0)):
        raise ApplicationFault(
            f"rows gave {shown(rows)}, expected rows of the model: sorted, unique, from 0 to {shape.rows - 1}"
        )


def _check_initial(values: Matrix, count: int, shape: Shape) -> None:
    """Raises ApplicationFault where these cannot be the start values of so many rows."""
    _require(values, np.ndarray, "initial")
    expected = (count, shape.columns)
    if values.shape != expected or values.dtype != np.float32:
        raise ApplicationFault(
            f"initial gave {values.dtype} {values.shape} for {count} rows, expected float32 {expected}"
        )


class _Spill:
    """Rows on their way to their shards: a file a shard, batch after batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._empty: Arrays = {}

    def deal(self, batch: Arrays, shard_of: npt.NDArray[np.integer[Any]]) -> None:
        self._empty = {name: values[:0] for name, values in batch.items()}
        order = np.argsort(shard_of, kind="stable")
        numbers, starts = np.unique(shard_of[order], return_index=True)
        for number, places in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            with self._file(number).open("ab") as out:
                for values in batch.values():
                    _write(out, values[places])

    def take(self, number: int) -> dict[str, npt.NDArray[Any]]:
        """The shard's rows in their order; the file is gone afterwards."""
        parts: dict[str, list[npt.NDArray[Any]]] = {name: [none] for name, none in self._empty.items()}
        file = self._file(number)
        if file.exists():
            with file.open("rb") as held:
                size = file.stat().st_size
                while held.tell() < size:
                    for name, known in parts.items():
                        known.append(_read(held, text=self._empty[name].dtype.hasobject))
            file.unlink()
        return {name: np.concatenate(known) for name, known in parts.items()}

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:05}"


def _write(out: BinaryIO, values: npt.NDArray[Any]) -> None:
    """Text as the lengths of its UTF-8 and all its bytes: NumPy's own strings are as wide as the longest."""
    if not values.dtype.hasobject:
        np.save(out, values)
        return
    encoded = [text.encode() for text in values]
    np.save(out, np.array([len(text) for text in encoded], np.int64))
    np.save(out, np.frombuffer(b"".join(encoded), np.uint8))


def _read(held: BinaryIO, *, text: bool) -> npt.NDArray[Any]:
    first: npt.NDArray[Any] = np.load(held, allow_pickle=False)
    if not text:
        return first
    data = np.load(held, allow_pickle=False).tobytes()
    ends = np.cumsum(first)
    pieces = [data[end - size : end].decode() for size, end in zip(first, ends, strict=True)]
    return np.array(pieces, dtype=object)
