"""Caches prices of large recorded files as arrays: reading the text again takes seconds.

ROOT/cache/prices/FILE.prices    the result of reading the file, for all its markets

FILE stands for the file's path, size, time and inode and for the source of the modules that read it: a cached
result answers for neither a changed file nor a changed reader. A file that was changed a moment ago is
not cached, since another change may leave its time as it is. Nothing else depends on these files: an
unreadable one is made anew, and the oldest go when there is too much.

    8 bytes      length of the head, little-endian
    head         JSON: counts and findings by market, and where each array is
    arrays       each at a multiple of 64 bytes

The arrays are mapped into memory and not read: of a thousand markets only those cost time that a job may use.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pricing_data.formats import csv_columns, large_csv, layouts, quality, traces
from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import Example, Flaw, FlawFinding
from pricing_data.formats.traces import Filter, Recording, SortedFile, read_rows, read_trace, sort_markets
from pricing_data.model import market
from pricing_data.model.market import Market
from pricing_data.snapshots import BUNDLED, BUNDLED_LABEL, bundled_market
from spotctl.home import default_root
from spotctl.timesource import wall_clock

SMALLEST: Final = 200_000
"""Bytes; reading a smaller file is as quick as finding its cached result."""
MOST: Final = 512 * 2**20
"""Bytes that are kept in all."""
_SETTLED_S: Final = 2.0
"""A file that was changed less than this before may change again within the resolution of its time."""
_ARRAYS: Final = (
    *("times", "prices", "ends", "delisted", "delisted_ends"),
    *("taken", "used", "heartbeats", "duplicates", "unlisted", "first", "last"),
)
"""Arrays of a ``SortedFile``."""
_HEAD: Final = struct.Struct("<Q")
_ALIGNED: Final = 64
_ROOM_FOR_PLACES: Final = 100 * (len(_ARRAYS) + 1)
"""Bytes, more than enough for the places of all arrays."""


def read_bundled_once(only: Filter) -> Recording:
    """Reads the bundled market through the cache. Nothing is cached before there is a home: a plan makes
    none.
    """
    if not default_root().exists():
        return bundled_market(only=only)
    found = read_trace_once(BUNDLED, only, label=BUNDLED_LABEL)
    return replace(found, generated=True)


def read_trace_once(
    path: Path, only: Filter, folder: Path | None = None, label: str | None = None
) -> Recording:
    """Reads a trace, from the cache in ``folder`` where that has this file. Raises TraceError."""
    folder = default_root() / "cache" / "prices" if folder is None else folder
    name, label = _cache_name(path), label or str(path)
    if name is None:
        return read_trace(path, only=only, label=label)
    kept = _load_file(folder / f"{name}.prices", label)
    if kept is None:
        kept = sort_markets(read_rows(path, label=label))
        if _cache_name(path) == name:  # otherwise the file changed meanwhile
            _store_file(folder / f"{name}.prices", kept)
    return kept.pick_markets(only)


def _cache_name(path: Path) -> str | None:
    """Returns the name of the file's cached result; None where it is not cached, or does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    if found.st_size < SMALLEST or wall_clock() - found.st_mtime < _SETTLED_S:
        return None
    identity = (str(path.resolve()), found.st_size, found.st_mtime_ns, found.st_ino, _reader_digest())
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:24]


@cache
def _reader_digest() -> str:
    """Returns a digest of the source of all modules that take part in reading a file."""
    modules = (csv_columns, large_csv, layouts, market, quality, traces)
    source = b"".join(Path(str(module.__file__)).read_bytes() for module in modules)
    return hashlib.sha256(source + Path(__file__).read_bytes()).hexdigest()


def _load_file(path: Path, label: str) -> SortedFile | None:
    """Returns a cached file, its arrays read-only; None where there is none, or it is damaged."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        head_ends = _HEAD.size + _HEAD.unpack_from(mapped)[0]
        told = json.loads(mapped[_HEAD.size : head_ends])
        # A truncated file could be mapped all the same, and its last arrays would be missing.
        if told["size"] != len(mapped):
            return None
        arrays = {
            name: np.frombuffer(mapped, dtype, count, begin)
            for name, (dtype, count, begin) in told["arrays"].items()
        }
        found = SortedFile(
            label=label,
            semantics=Semantics(told["semantics"]),
            markets=tuple(Market(*fields) for fields in told["markets"]),
            flaws={
                Flaw(flaw): {place: _parse_finding(flaw, *rest) for place, *rest in by_market}
                for flaw, by_market in told["flaws"]
            },
            rows_read=told["rows_read"],
            **arrays,
        )
        os.utime(path)  # so that the oldest file is the least used one
    except (OSError, ValueError, TypeError, KeyError, struct.error):
        return None
    return found


def _parse_finding(flaw: str, count: int, examples: Sequence[Sequence[Any]]) -> FlawFinding:
    return FlawFinding(Flaw(flaw), count, tuple(Example(line, text) for line, text in examples))


def _store_file(path: Path, found: SortedFile) -> None:
    arrays = {name: np.ascontiguousarray(getattr(found, name)) for name in _ARRAYS}
    told: dict[str, Any] = {
        "semantics": found.semantics.value,
        "markets": [[m.cloud, m.region, m.zone, m.instance_type] for m in found.markets],
        "flaws": [
            (flaw.value, [(place, one.count, _list_examples(one)) for place, one in by_market.items()])
            for flaw, by_market in found.flaws.items()
        ],
        "rows_read": found.rows_read,
    }
    head, begins, size = _build_head(told, arrays)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(_HEAD.pack(len(head)) + head)
            for name, array in arrays.items():
                file.seek(begins[name])
                file.write(array.data)
            file.truncate(size)
        partial.replace(path)
        remove_oldest(path.parent)
    except OSError:  # no room, or no permission: the text is read again next time
        with suppress(OSError):
            partial.unlink()


def _list_examples(found: FlawFinding) -> list[tuple[int, str]]:
    return [(one.line, one.text) for one in found.examples]


def _build_head(
    told: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> tuple[bytes, dict[str, int], int]:
    """Returns a file's head, padded and with the arrays' places; those places, and the file's size."""
    room = len(json.dumps(told)) + _ROOM_FOR_PLACES
    begins, end = {}, _HEAD.size + room
    for name, array in arrays.items():
        begins[name] = -(-end // _ALIGNED) * _ALIGNED
        end = begins[name] + array.nbytes
    places = {name: (array.dtype.str, len(array), begins[name]) for name, array in arrays.items()}
    head = json.dumps({**told, "arrays": places, "size": end}).encode()
    return head.ljust(room), begins, end


def remove_oldest(folder: Path, most: int = MOST) -> None:
    """Removes the least recently used files, until the rest is no more than ``most`` bytes."""
    kept = sorted(((path.stat(), path) for path in folder.iterdir()), key=lambda one: -one[0].st_mtime_ns)
    size = 0
    for found, path in kept:
        size += found.st_size
        if size > most:
            path.unlink(missing_ok=True)
