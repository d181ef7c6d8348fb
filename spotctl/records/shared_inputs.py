"""Shares cut input between runs: each content is cut once, however often it is launched (decision 40).

ROOT/inputs/KEY/           shards and all else that agileml.data.shards reads, whole
ROOT/inputs/KEY/about.json what it was cut from, and how large it is; touched when a run takes it
ROOT/inputs/KEY.part/      one that is being cut, or was when its process was killed
ROOT/inputs/KEY.lock       held while the input is cut or removed
ROOT/inputs/digests.json   digests of files that have not changed since
ROOT/jobs/NAME/RUN/input   the KEY that a run uses: written first, so that nobody removes it

KEY follows from the content of the data, the columns, the application's source and arguments, and the number
of shards: all that cutting depends on.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import agileml
from spotctl.timesource import sleep, wall_clock

if TYPE_CHECKING:  # cutting loads DuckDB and NumPy, and most who look here cut nothing
    from agileml.data.fingerprints import Fingerprints, Stat
    from agileml.job import TrainingJob
    from agileml.model_shape import Shape

CLAIM: Final = "input"
"""File within a run's folder that has the key of the input it uses."""
_ABOUT: Final = "about.json"
_LOOK_EVERY_S: Final = 0.1
_MOST_DIGESTS: Final = 2000
"""Number of files whose digest is remembered, the latest ones."""


@dataclass(frozen=True, slots=True)
class KeptInput:
    """Describes one cut input. ``used_at``: when a run last took it, in seconds since the epoch."""

    key: str
    folder: Path
    data: str
    size_bytes: int
    used_at: float


class InputStore:
    """Stores all cut inputs below one root."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "inputs"

    def cut_input(
        self, job: TrainingJob, source: str, run_folder: Path, check: Callable[[], None] = lambda: None
    ) -> tuple[str, Shape]:
        """Returns where ``source`` is cut for ``job``, and the model's shape; cuts it unless it is cut
        already.

        The run claims it first. It calls ``check`` now and then, which may raise to give up. Raises
        ApplicationError where the input is not what the application expects, or changes meanwhile.
        """
        from agileml.data.shards import ShardReader
        from spotctl.records.ledger import sync_folder

        before = self._fingerprint_source(source, check)
        key = key_of(job, before)
        # Claimed before it is cut, so that no prune in between removes it.
        (run_folder / CLAIM).write_text(key)
        sync_folder(run_folder)
        place = self.folder / key
        with self._hold_lock(key, check):
            try:
                if not (place / _ABOUT).exists():
                    self._cut_aside(job, source, key, before, check)
            except BaseException:
                (self.folder / f"{key}.lock").unlink()  # a refused input leaves nothing
                raise
            os.utime(place / _ABOUT)
            self._remember_digests(before)
            return str(place), ShardReader(place).shape

    def _cut_aside(
        self, job: TrainingJob, source: str, key: str, before: Fingerprints, check: Callable[[], None]
    ) -> None:
        """Cuts aside, and moves the result into its place when it is whole and on the disk."""
        from agileml.api import ApplicationError
        from agileml.data.fingerprints import changed_since
        from agileml.data.sharding import cut_input
        from spotctl.records.ledger import sync_folder

        part = self.folder / f"{key}.part"
        shutil.rmtree(part, ignore_errors=True)
        try:
            cut_input(job.make_application(), source, job.setup.shards, part, check, job.columns)
            changed = changed_since(source, before)
            if changed:
                raise ApplicationError(f"{', '.join(changed)} changed while it was read; launch again")
            (part / _ABOUT).write_text(json.dumps({"data": source}))
            for file in part.iterdir():
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
            part.rename(self.folder / key)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        sync_folder(self.folder)

    def list_inputs(self) -> list[KeptInput]:
        """Returns every whole cut input."""
        found = []
        for about in sorted(self.folder.glob(f"*/{_ABOUT}")):
            try:
                told = json.loads(about.read_text())
                used_at = about.stat().st_mtime
                size = sum(file.stat().st_size for file in about.parent.iterdir())
            except (OSError, ValueError):
                continue  # another process is removing it
            found.append(KeptInput(about.parent.name, about.parent, str(told["data"]), size, used_at))
        # Folders with a suffix are being cut or removed.
        return [kept for kept in found if not kept.folder.suffix]

    def count_users(self, key: str) -> int:
        """Counts the runs on record that use, or used, an input."""
        claims = self.folder.parent.glob(f"jobs/*/*/{CLAIM}")
        return sum(claim_of(claim.parent) == key for claim in claims)

    def leftover_folders(self) -> list[Path]:
        """Returns folders left by processes that were killed while they cut or removed."""
        found = [*self.folder.glob("*.part"), *self.folder.glob("*.gone")]
        return [folder for folder in found if not self._is_locked(folder.stem)]

    def remove_input(self, key: str, needed: Callable[[], bool]) -> bool:
        """Removes an input unless ``needed()``, which is asked when no run can begin to use it any more.

        Returns False where it is needed: a launch has claimed it or cuts it now.
        """
        with self._open_lock(key) as lock:
            if not (_try_lock(lock) and self._is_named(key, lock)) or needed():
                return False
            gone = self.folder / f"{key}.gone"
            for folder in (self.folder / key, self.folder / f"{key}.part"):
                if folder.exists():
                    shutil.rmtree(gone, ignore_errors=True)
                    folder.rename(gone)
                    shutil.rmtree(gone)
            shutil.rmtree(gone, ignore_errors=True)
            (self.folder / f"{key}.lock").unlink(missing_ok=True)
        return True

    # ---- locks ---------------------------------------------------------------------------------------

    @contextmanager
    def _hold_lock(self, key: str, check: Callable[[], None]) -> Iterator[None]:
        """Waits until no other process cuts or removes this input."""
        try:
            while True:
                with self._open_lock(key) as lock:
                    if _try_lock(lock) and self._is_named(key, lock):
                        yield
                        return
                check()
                sleep(_LOOK_EVERY_S)
        finally:
            with suppress(OSError):
                self.folder.rmdir()  # fails unless it is empty

    @contextmanager
    def _open_lock(self, key: str) -> Iterator[IO[str]]:
        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                opened = (self.folder / f"{key}.lock").open("a")
            except FileNotFoundError:  # a process that cut nothing has just removed the empty folder
                continue
            break
        with opened as lock:
            yield lock

    def _is_named(self, key: str, lock: IO[str]) -> bool:
        """Tells whether the lock is still the one that others will open: removing an input removes its
        lock.
        """
        try:
            return os.stat(self.folder / f"{key}.lock").st_ino == os.fstat(lock.fileno()).st_ino
        except FileNotFoundError:
            return False

    def _is_locked(self, key: str) -> bool:
        if not (self.folder / f"{key}.lock").exists():
            return False
        with self._open_lock(key) as lock:
            return not _try_lock(lock)

    # ---- contents --------------------------------------------------------------------------------

    def _fingerprint_source(self, source: str, check: Callable[[], None]) -> Fingerprints:
        """Fingerprints an input, and reads a large file for its digest only once."""
        from agileml.data.fingerprints import fingerprint_input

        remembered = self._load_digests()

        def known(name: str, stat: Stat) -> str | None:
            kept = remembered.get(name)
            return str(kept[1]) if kept is not None and tuple(kept[0]) == stat else None

        return fingerprint_input(source, known, int(wall_clock() * 1e9), check)

    def _remember_digests(self, found: Fingerprints) -> None:
        if not (found.settled and found.stats):
            return
        digests = {name: kept for name, kept in self._load_digests().items() if name not in found.stats}
        contents = [digest for _, digest in found.files]
        for (name, stat), digest in zip(found.stats.items(), contents, strict=True):
            digests[name] = [list(stat), digest]
        unfinished = self.folder / f"digests.{os.getpid()}.json"
        unfinished.write_text(json.dumps(dict(list(digests.items())[-_MOST_DIGESTS:])))
        unfinished.replace(self.folder / "digests.json")

    def _load_digests(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / "digests.json").read_text())
        except (OSError, ValueError):
            return {}
        return found


def claim_of(run_folder: Path) -> str | None:
    """Returns the key of the input that a run uses; None for a run without one."""
    try:
        return (run_folder / CLAIM).read_text().strip()
    except FileNotFoundError:
        return None


def key_of(job: TrainingJob, content: Fingerprints) -> str:
    """Returns the name of an input, which follows from all that cutting it depends on."""
    from agileml.data.fingerprints import digest_of, digest_of_package

    parts = {
        "files": content.files,
        "columns": dict(job.columns),
        "application": job.application.rpartition(":")[2],
        "arguments": dict(job.arguments),
        "shards": job.setup.shards,
        "source": _source_of(job),
        "agileml": digest_of_package(Path(agileml.__file__).parent),
    }
    return digest_of(parts)


def _source_of(job: TrainingJob) -> list[str]:
    job.make_application()
    return source_of_application(job.application, Path(job.program) if job.program else None)


def source_of_application(reference: str, program: Path | None) -> list[str]:
    """Returns the source of a loaded application, and of the modules beside it that it imports.

    ``program``: the file it was loaded from, if that is not a module.
    """
    from agileml.data.fingerprints import digest_of_package

    place = reference.rpartition(":")[0]
    if program is None:
        package = import_module(place.partition(".")[0])
        init = Path(package.__file__ or "")
        return [digest_of_package(init.parent)] if init.name == "__init__.py" else [_hash_file(init)]
    beside = Path(place).parent
    files = [
        Path(file) for module in tuple(sys.modules.values()) if (file := getattr(module, "__file__", None))
    ]
    near = sorted({file for file in files if _is_beside(file, beside)})
    return [_hash_file(program), *(f"{file.relative_to(beside)} {_hash_file(file)}" for file in near)]


def _is_beside(file: Path, folder: Path) -> bool:
    """Tells whether a file is the user's own module below ``folder``, and not installed there."""
    installed = "site-packages" in file.parts
    return folder in file.parents and file.suffix == ".py" and not installed and file.is_file()


def _hash_file(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
