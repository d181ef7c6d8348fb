"""Looks whether this computer can run jobs: what it has, what is missing, and what to do about it.

Nothing here is about a cloud, and nothing goes out to a network. Every check is tried, not guessed: a lock is
taken, a socket is bound, a file is written.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import resource
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from agileml.node.agent import process_tree
from spotctl.job.model_size import memory_of_computer
from spotctl.records.run import Runs
from spotctl.session.orphans import orphans
from spotctl.timesource import wall_clock

_GB: Final = 1e9
_FEW_CORES: Final = 2
_LITTLE_MEMORY: Final = 2 * _GB
_LITTLE_DISK: Final = 1 * _GB
_FEW_FILES: Final = 1024
_LONGEST_FOLDER: Final = 70
"""Of the folder for sockets: their names may have 107 bytes in all."""
_WRITTEN: Final = 1_735_689_600.0
"""The start of 2025: no clock that is right shows less."""
_EXTRAS: Final = {
    "numba": ("fast", "args: {compiled: true}, which computes matrix factorization several times as fast"),
    "s3fs": ("", "data and checkpoints in s3:// (pip install s3fs)"),
    "boto3": ("aws", "prices of AWS"),
    "google.cloud.compute": ("gcp", "prices of GCP"),
    "azure.identity": ("azure", "evictions of Azure"),
    "PIL": ("plot", "PNG files of `prices plot`"),
    "ray": ("ray", "training on a Ray cluster"),
}


class Verdict(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Nothing is wrong; something could be better."""
    FAIL = "fail"
    """No job would run here."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what was found, and what to do about it where there is something."""

    what: str
    verdict: Verdict
    found: str
    advice: str = ""


def diagnose(root: Path) -> Iterator[Finding]:
    """Yields what there is to know of this computer. ``root``: where records are kept."""
    yield _python()
    yield _system()
    yield _cores()
    yield _memory()
    yield from _disks(root)
    yield _store(root)
    yield _sockets()
    yield _files()
    yield _clock(root)
    yield _machines(root)
    yield _terminal()
    yield from _extras()


def _python() -> Finding:
    found = f"{sys.version.split()[0]} in {sys.prefix}"
    if sys.version_info < (3, 11):  # noqa: UP036 - said before anything fails obscurely
        return Finding("python", Verdict.FAIL, found, "install Python 3.11 or newer")
    return Finding("python", Verdict.OK, found)


def _system() -> Finding:
    if process_tree.is_supported():
        return Finding("system", Verdict.OK, f"{sys.platform}, /proc tells what belongs to a machine")
    advice = "elastic training runs; jobs with `run` need Linux, whose /proc tells what belongs to a machine"
    return Finding("system", Verdict.NOTE, sys.platform, advice)


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < _FEW_CORES:
        return Finding(
            "cores", Verdict.NOTE, str(cores), "run at a lower --speed, or with local: {throttle: on}"
        )
    return Finding("cores", Verdict.OK, str(cores))


def _memory() -> Finding:
    has = memory_of_computer()
    found = f"{has / _GB:.1f} GB"
    if has < _LITTLE_MEMORY:
        return Finding(
            "memory", Verdict.NOTE, found, "every machine is a few processes of 100 MB: hold fewer"
        )
    return Finding("memory", Verdict.OK, found)


def _disks(root: Path) -> Iterator[Finding]:
    places = {"disk for records": root, "disk for cutting": Path(tempfile.gettempdir())}
    advice = {
        "disk for records": "free some with spotctl prune, or let SPOTCTL_HOME name another folder",
        "disk for cutting": "cutting needs as much as the input has; let TMPDIR name another folder",
    }
    for what, place in places.items():
        free = shutil.disk_usage(_first_there(place)).free
        few = free < _LITTLE_DISK
        verdict = Verdict.NOTE if few else Verdict.OK
        yield Finding(what, verdict, f"{free / _GB:.1f} GB free in {place}", advice[what] if few else "")


def _store(root: Path) -> Finding:
    """Tries what records need: files, locks, SQLite's write-ahead log; network file systems lack some."""
    there = _first_there(root)
    try:
        with tempfile.TemporaryDirectory(prefix=".spotctl-doctor-", dir=there) as folder:
            with (Path(folder) / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with closing(sqlite3.connect(Path(folder) / "ledger.db")) as ledger:
                (mode,) = ledger.execute("PRAGMA journal_mode=WAL").fetchone()
                ledger.execute("create table t (x)")
    except (OSError, sqlite3.Error) as error:
        advice = "let SPOTCTL_HOME name a folder on a local disk that you may write to"
        return Finding("store", Verdict.FAIL, f"{root}: {error}", advice)
    if mode != "wal":
        advice = "let SPOTCTL_HOME name a folder on a local disk"
        return Finding("store", Verdict.FAIL, f"{root}: no write-ahead log ({mode})", advice)
    return Finding("store", Verdict.OK, f"{root}: files, locks and ledgers work")


def _sockets() -> Finding:
    """Tries what the processes of a machine talk through."""
    folder = tempfile.gettempdir()
    if len(folder.encode()) > _LONGEST_FOLDER:
        found = f"{folder} is too long a name for sockets"
        return Finding("sockets", Verdict.FAIL, found, "let TMPDIR name a folder with a shorter path")
    try:
        with tempfile.TemporaryDirectory(prefix="agileml-") as own, socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"{own}/s")
        with socket.socket() as port:
            port.bind(("127.0.0.1", 0))
    except OSError as error:
        return Finding("sockets", Verdict.FAIL, str(error), "let TMPDIR name a folder on a local disk")
    return Finding("sockets", Verdict.OK, f"in {folder}, and ports of 127.0.0.1")


def _files() -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < _FEW_FILES:
        advice = "ulimit -n 4096 before a launch with many machines"
        return Finding("open files", Verdict.NOTE, f"at most {limit}", advice)
    return Finding("open files", Verdict.OK, "no limit" if limit < 0 else f"at most {limit}")


def _clock(root: Path) -> Finding:
    """Looks whether the clock can be right; runs are named by it, and lengths of bills come from it."""
    now = wall_clock()
    newest = max((path.stat().st_mtime for path in root.glob("jobs/*/*/ledger.db")), default=0.0)
    if now < _WRITTEN:
        return Finding("clock", Verdict.FAIL, "it shows a time before 2025", "set the clock (timedatectl)")
    if newest > now + 60:
        found = f"a record was written {newest - now:.0f} s after now"
        return Finding(
            "clock", Verdict.NOTE, found, "the clock was set back; runs keep their order all the same"
        )
    return Finding("clock", Verdict.OK, "plausible, and after the newest record")


def _machines(root: Path) -> Finding:
    left = sum(len(found.machines) for found in orphans(Runs(root)))
    if left:
        return Finding("machines", Verdict.NOTE, f"{left} that no job answers for", "end them: spotctl gc")
    return Finding("machines", Verdict.OK, "none without a job")


def _terminal() -> Finding:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        found = "none: lines are written, and questions need --yes"
        return Finding("terminal", Verdict.OK, found)
    if "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return Finding("terminal", Verdict.OK, "plain (NO_COLOR or TERM=dumb): lines instead of a live view")
    encoding = (sys.stdout.encoding or "").lower()
    if "utf" not in encoding:
        advice = "export LANG=C.UTF-8, else some signs show as question marks"
        return Finding("terminal", Verdict.NOTE, f"encoding {encoding}", advice)
    return Finding("terminal", Verdict.OK, f"{os.environ.get('TERM', 'unknown')}, {encoding}: live view")


def _extras() -> Iterator[Finding]:
    for module, (extra, purpose) in _EXTRAS.items():
        if _is_there(module):
            yield Finding(module, Verdict.OK, f"installed: {purpose}")
        else:
            how = f"only if you need it: pip install 'spotctl[{extra}]'" if extra else "only if you need it"
            yield Finding(module, Verdict.OK, f"not installed: {purpose}", how)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # of a parent that is not there
        return False


def _first_there(place: Path) -> Path:
    """The folder itself, or the first above it that is there."""
    return next(folder for folder in (place, *place.absolute().parents) if folder.is_dir())
