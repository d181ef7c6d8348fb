"""Prices of large recorded files, kept as arrays once they were read: reading text again takes seconds.

ROOT/cache/prices/FILE.markets    the markets of a file, from which a job picks
ROOT/cache/prices/FILE-PICK.npz   what ``read_trace`` made of those that were picked

FILE stands for the file's path, size, time and inode and for the source of the modules that read it: neither
a changed file nor a changed reader is answered with what was kept. A file that was changed a moment ago is
not kept, since another change may leave its time as it is. Nothing else depends on these files: what cannot
be read is made anew, and the oldest go when there is too much.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from pricing_data import csvfile, layouts, market, quality, traces
from pricing_data.layouts import Semantics
from pricing_data.market import Market, Series
from pricing_data.quality import Example, Finding, Flaw
from pricing_data.snapshots import BUNDLED, BUNDLED_LABEL, bundled_market
from pricing_data.traces import Filter, Recording, read_trace
from spotctl.home import default_root
from spotctl.timesource import wall_clock

SMALLEST: Final = 200_000
"""Bytes; a smaller file is read as quickly as what would be kept of it is found."""
MOST: Final = 512 * 2**20
"""Bytes that are kept in all."""
_SETTLED_S: Final = 2.0
"""A file that was changed within so long before may be changed again within the resolution of its time."""
_COUNTS: Final = (
    *("rows_read", "rows_used", "rows_heartbeat", "rows_duplicate", "rows_unlisted", "rows_quarantined"),
    *("rows_left_out", "first", "last"),
)


def read_bundled_once(only: Filter) -> Recording:
    """As ``bundled_market``. Nothing is kept before there is a home: to look at a plan makes none."""
    if not default_root().exists():
        return bundled_market(only=only)
    found = read_trace_once(BUNDLED, only, label=BUNDLED_LABEL)
    return replace(found, generated=True)


def read_trace_once(
    path: Path, only: Filter, folder: Path | None = None, label: str | None = None
) -> Recording:
    """As ``read_trace``, from what was kept in ``folder`` where that is of this file. Raises TraceError."""
    folder = default_root() / "cache" / "prices" if folder is None else folder
    name, label = _name(path), label or str(path)
    if name is None:
        return read_trace(path, only=only, label=label)
    kept = _load(folder, name, only, label)
    if kept is not None:
        return kept
    seen: list[Market] = []

    def picks(found: Market) -> bool:
        seen.append(found)
        return only(found)

    recording = read_trace(path, only=picks, label=label)
    if _name(path) == name:  # else it changed meanwhile
        _keep(folder, name, seen, [found for found in seen if only(found)], recording)
    return recording


def _name(path: Path) -> str | None:
    """What stands for the file; None where nothing is kept of it, or it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    if found.st_size < SMALLEST or wall_clock() - found.st_mtime < _SETTLED_S:
        return None
    identity = (str(path.resolve()), found.st_size, found.st_mtime_ns, found.st_ino, _reader())
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:24]


@cache
def _reader() -> str:
    """Of the source of all that has a part in reading a file."""
    modules = (csvfile, layouts, market, quality, traces)
    source = b"".join(Path(str(module.__file__)).read_bytes() for module in modules)
    return hashlib.sha256(source + Path(__file__).read_bytes()).hexdigest()


def _pick(markets: Iterable[Market]) -> str:
    return hashlib.sha256("\n".join(sorted(map(repr, markets))).encode()).hexdigest()[:24]


def _load(folder: Path, name: str, only: Filter, label: str) -> Recording | None:
    try:
        listed = json.loads((folder / f"{name}.markets").read_bytes())
        picked = [found for found in (Market(*fields) for fields in listed) if only(found)]
        path = folder / f"{name}-{_pick(picked)}.npz"
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            recording = _recording(arrays, label)
        os.utime(path)  # so that the oldest is what nobody uses
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile):
        return None
    return recording


def _recording(arrays: Mapping[str, Any], label: str) -> Recording:
    told = json.loads(arrays["told"].tobytes())
    markets = [Market(*fields) for fields in told["markets"]]
    steps = _cut(arrays["ends"], arrays["times"]), _cut(arrays["ends"], arrays["prices"])
    delisted = _cut(arrays["delisted_ends"], arrays["delisted"])
    findings = tuple(
        Finding(Flaw(kind), count, tuple(Example(line, text) for line, text in examples))
        for kind, count, examples in told["findings"]
    )
    return Recording(
        label=label,
        semantics=Semantics(told["semantics"]),
        generated=False,
        series={found: Series(*both) for found, *both in zip(markets, *steps, strict=True)},
        delisted=dict(zip(markets, delisted, strict=True)),
        findings=findings,
        **told["counts"],
    )


def _cut(ends: Any, values: Any) -> list[Any]:
    return [values[begin:end] for begin, end in pairwise([0, *ends.tolist()])]


def _keep(
    folder: Path, name: str, listed: Sequence[Market], picked: Sequence[Market], recording: Recording
) -> None:
    markets = list(recording.series)
    series, delisted = recording.series, [recording.delisted[found] for found in markets]
    told = {
        "markets": [_fields(found) for found in markets],
        "semantics": recording.semantics.value,
        "counts": {count: int(getattr(recording, count)) for count in _COUNTS},
        "findings": [
            (found.kind.value, found.count, [(one.line, one.text) for one in found.examples])
            for found in recording.findings
        ],
    }
    arrays = {
        "told": np.frombuffer(json.dumps(told).encode(), np.uint8),
        "times": np.concatenate([series[found].times for found in markets]),
        "prices": np.concatenate([series[found].prices for found in markets]),
        "ends": np.cumsum([len(series[found].times) for found in markets]),
        "delisted": np.concatenate(delisted),
        "delisted_ends": np.cumsum([len(times) for times in delisted]),
    }
    partial = folder / f"{name}.{os.getpid()}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(json.dumps([_fields(found) for found in listed]).encode())
        partial.replace(folder / f"{name}.markets")
        with partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        partial.replace(folder / f"{name}-{_pick(picked)}.npz")
        prune(folder)
    except OSError:  # no room, or not ours to write: it is read from the text the next time too
        with suppress(OSError):
            partial.unlink()


def _fields(found: Market) -> list[str]:
    return [found.cloud, found.region, found.zone, found.instance_type]


def prune(folder: Path, most: int = MOST) -> None:
    """Remove what was used longest ago, until the rest is no more than ``most`` bytes."""
    kept = sorted(((path.stat(), path) for path in folder.iterdir()), key=lambda one: -one[0].st_mtime_ns)
    size = 0
    for found, path in kept:
        size += found.st_size
        if size > most:
            path.unlink(missing_ok=True)
