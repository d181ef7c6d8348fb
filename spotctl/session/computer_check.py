"""Checks whether this computer can run jobs: what it has, what is missing, and what to do about it.

Nothing here is about a cloud, and nothing goes out to a network. Every check tries the real thing: it takes a
lock, binds a socket, writes a file.
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
from spotctl.errors import LedgerError
from spotctl.job.model_size import memory_of_computer
from spotctl.records.run import Run, RunStore
from spotctl.session.orphans import find_orphans
from spotctl.timesource import wall_clock

_GB: Final = 1e9
_FEW_CORES: Final = 2
_LITTLE_MEMORY: Final = 2 * _GB
_LITTLE_DISK: Final = 1 * _GB
_FEW_FILES: Final = 1024
_LONGEST_FOLDER: Final = 70
"""Longest name, in bytes, of the folder for sockets: the names of sockets may have 107 bytes in all."""
_WRITTEN: Final = 1_735_689_600.0
"""The start of 2025: no correct clock shows less."""
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
class CheckResult:
    """Reports one check: what it found, and what to do about it if anything."""

    what: str
    verdict: Verdict
    found: str
    advice: str = ""


def diagnose(root: Path) -> Iterator[CheckResult]:
    """Yields the result of each check of this computer. ``root``: the folder of the records."""
    yield _check_python()
    yield _check_system()
    yield _check_cores()
    yield _check_memory()
    yield from _check_disks(root)
    yield _check_store(root)
    yield _check_sockets()
    yield _check_open_files()
    yield _check_clock(root)
    yield _check_machines(root)
    yield _check_terminal()
    yield from _check_extras()


def _check_python() -> CheckResult:
    found = f"{sys.version.split()[0]} in {sys.prefix}"
    if sys.version_info < (3, 11):  # noqa: UP036 - said before anything fails obscurely
        return CheckResult("python", Verdict.FAIL, found, "install Python 3.11 or newer")
    return CheckResult("python", Verdict.OK, found)


def _check_system() -> CheckResult:
    if process_tree.is_supported():
        return CheckResult("system", Verdict.OK, f"{sys.platform}, /proc tells what belongs to a machine")
    advice = "elastic training runs; jobs with `run` need Linux, whose /proc tells what belongs to a machine"
    return CheckResult("system", Verdict.NOTE, sys.platform, advice)


def _check_cores() -> CheckResult:
    # Containers restrict the cores of a process without hiding the others.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < _FEW_CORES:
        return CheckResult(
            "cores", Verdict.NOTE, str(cores), "run at a lower --speed, or with local: {throttle: on}"
        )
    return CheckResult("cores", Verdict.OK, str(cores))


def _check_memory() -> CheckResult:
    has = memory_of_computer()
    found = f"{has / _GB:.1f} GB"
    if has < _LITTLE_MEMORY:
        return CheckResult(
            "memory", Verdict.NOTE, found, "every machine is a few processes of 100 MB: hold fewer"
        )
    return CheckResult("memory", Verdict.OK, found)


def _check_disks(root: Path) -> Iterator[CheckResult]:
    places = {"disk for records": root, "disk for cutting": Path(tempfile.gettempdir())}
    advice = {
        "disk for records": "free some with spotctl prune, or let SPOTCTL_HOME name another folder",
        "disk for cutting": "cutting needs as much as the input has; let TMPDIR name another folder",
    }
    for what, place in places.items():
        free = shutil.disk_usage(_existing_ancestor(place)).free
        few = free < _LITTLE_DISK
        verdict = Verdict.NOTE if few else Verdict.OK
        yield CheckResult(what, verdict, f"{free / _GB:.1f} GB free in {place}", advice[what] if few else "")


def _check_store(root: Path) -> CheckResult:
    """Tries what records need: files, locks, SQLite's write-ahead log; network file systems lack some."""
    there = _existing_ancestor(root)
    try:
        with tempfile.TemporaryDirectory(prefix=".spotctl-doctor-", dir=there) as folder:
            with (Path(folder) / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # SQLite falls back to another journal mode without an error where shared memory is missing.
            with closing(sqlite3.connect(Path(folder) / "ledger.db")) as ledger:
                (mode,) = ledger.execute("PRAGMA journal_mode=WAL").fetchone()
                ledger.execute("create table t (x)")
    except (OSError, sqlite3.Error) as error:
        advice = "let SPOTCTL_HOME name a folder on a local disk that you may write to"
        return CheckResult("store", Verdict.FAIL, f"{root}: {error}", advice)
    if mode != "wal":
        advice = "let SPOTCTL_HOME name a folder on a local disk"
        return CheckResult("store", Verdict.FAIL, f"{root}: no write-ahead log ({mode})", advice)
    return CheckResult("store", Verdict.OK, f"{root}: files, locks and ledgers work")


def _check_sockets() -> CheckResult:
    """Tries the sockets that the processes of a machine use."""
    folder = tempfile.gettempdir()
    # In bytes, as the kernel counts; a name may hold other than ASCII characters.
    if len(folder.encode()) > _LONGEST_FOLDER:
        found = f"{folder} is too long a name for sockets"
        return CheckResult("sockets", Verdict.FAIL, found, "let TMPDIR name a folder with a shorter path")
    try:
        with tempfile.TemporaryDirectory(prefix="agileml-") as own, socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"{own}/s")
        with socket.socket() as port:
            port.bind(("127.0.0.1", 0))
    except OSError as error:
        return CheckResult("sockets", Verdict.FAIL, str(error), "let TMPDIR name a folder on a local disk")
    return CheckResult("sockets", Verdict.OK, f"in {folder}, and ports of 127.0.0.1")


def _check_open_files() -> CheckResult:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < _FEW_FILES:
        advice = "ulimit -n 4096 before a launch with many machines"
        return CheckResult("open files", Verdict.NOTE, f"at most {limit}", advice)
    return CheckResult("open files", Verdict.OK, "no limit" if limit < 0 else f"at most {limit}")


def _check_clock(root: Path) -> CheckResult:
    """Checks that the clock can be right: run names come from it, and the lengths of bills."""
    now = wall_clock()
    newest = max((_last_recorded(run) for run in RunStore(root).list_runs()), default=0.0)
    if now < _WRITTEN:
        return CheckResult(
            "clock", Verdict.FAIL, "it shows a time before 2025", "set the clock (timedatectl)"
        )
    # A minute of tolerance: clocks are adjusted by seconds all the time.
    if newest > now + 60:
        found = f"a record was written {newest - now:.0f} s after now"
        return CheckResult(
            "clock", Verdict.NOTE, found, "the clock was set back; runs keep their order all the same"
        )
    return CheckResult("clock", Verdict.OK, "plausible, and after the newest record")


def _last_recorded(run: Run) -> float:
    """Returns the wall clock of the run's last entry; 0 where its record cannot be read."""
    try:
        ledger = run.open_ledger()
    except LedgerError:
        return 0.0
    try:
        last = ledger.last_entry_times()
    except LedgerError:
        return 0.0
    finally:
        ledger.close()
    return 0.0 if last is None else last[1]


def _check_machines(root: Path) -> CheckResult:
    left = sum(len(found.machines) for found in find_orphans(RunStore(root)))
    if left:
        return CheckResult(
            "machines", Verdict.NOTE, f"{left} that no job answers for", "end them: spotctl gc"
        )
    return CheckResult("machines", Verdict.OK, "none without a job")


def _check_terminal() -> CheckResult:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        found = "none: lines are written, and questions need --yes"
        return CheckResult("terminal", Verdict.OK, found)
    if "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return CheckResult(
            "terminal", Verdict.OK, "plain (NO_COLOR or TERM=dumb): lines instead of a live view"
        )
    encoding = (sys.stdout.encoding or "").lower()
    if "utf" not in encoding:
        advice = "export LANG=C.UTF-8, else some signs show as question marks"
        return CheckResult("terminal", Verdict.NOTE, f"encoding {encoding}", advice)
    return CheckResult("terminal", Verdict.OK, f"{os.environ.get('TERM', 'unknown')}, {encoding}: live view")


def _check_extras() -> Iterator[CheckResult]:
    for module, (extra, purpose) in _EXTRAS.items():
        if _is_installed(module):
            yield CheckResult(module, Verdict.OK, f"installed: {purpose}")
        else:
            how = f"only if you need it: pip install 'spotctl[{extra}]'" if extra else "only if you need it"
            yield CheckResult(module, Verdict.OK, f"not installed: {purpose}", how)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # raised by a parent package that is missing
        return False


def _existing_ancestor(place: Path) -> Path:
    """Returns the folder itself, or the first existing one above it."""
    return next(folder for folder in (place, *place.absolute().parents) if folder.is_dir())
