"""Shares cut input between runs: the same content is cut once, however often it is launched (decision 40).

ROOT/inputs/KEY/           shards and all else that agileml.data.shards reads, complete
ROOT/inputs/KEY/about.json names the data; its modification time is when a run last used the input
ROOT/inputs/KEY.part/      an input that is being cut, or was when its process was killed
ROOT/inputs/KEY.gone/      an input that is being removed, or was when its process was killed
ROOT/inputs/KEY.lock       held while the input is cut or removed
ROOT/inputs/digests.json   digests of files, valid while these are unchanged
ROOT/jobs/NAME/RUN/input   the KEY that a run uses

KEY is a digest of all that cutting depends on: the data, the columns, the application's source and arguments,
and the number of shards.
"""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any, Final

import agileml
from spotctl.records.locks import is_current, is_held, open_lock, try_lock
from spotctl.timesource import sleep, wall_clock

if TYPE_CHECKING:  # cutting loads DuckDB and NumPy, and most callers cut nothing
    from agileml.data.fingerprints import Fingerprints, Stat
    from agileml.job import TrainingJob
    from agileml.model_shape import Shape

CLAIM: Final = "input"
"""The file in a run's folder that holds the key of its input."""
_ABOUT: Final = "about.json"
_LOOK_EVERY_S: Final = 0.1
_MOST_DIGESTS: Final = 2000
"""How many files' digests are remembered: the latest."""


@dataclass(frozen=True, slots=True)
class KeptInput:
    """Describes one cut input. ``used_at``: when a run last began with it, in seconds since the epoch."""

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
        """Returns the folder of ``source`` cut for ``job``, and the model's shape; cuts it where needed.

        ``check`` is called now and then, and may raise to give up. Raises ApplicationError where the input
        is not what the application expects, or changes while it is read.
        """
        from agileml.data.shards import ShardReader
        from spotctl.records.ledger import sync_folder

        before = self._fingerprint_source(source, check)
        key = key_of(job, before)
        # Claimed, durably, before it is cut or found: so no ``prune`` in between removes it.
        (run_folder / CLAIM).write_text(key)
        sync_folder(run_folder)
        place = self.folder / key
        with self._hold_lock(key, check):
            try:
                if not (place / _ABOUT).exists():
                    self._cut_aside(job, source, key, before, check)
            except BaseException:
                self._lock_path(key).unlink()  # a refused input leaves nothing behind
                raise
            os.utime(place / _ABOUT)
            self._remember_digests(before)
            return str(place), ShardReader(place).shape

    def _cut_aside(
        self, job: TrainingJob, source: str, key: str, before: Fingerprints, check: Callable[[], None]
    ) -> None:
        """Cuts in a folder aside, which gets its name once it is complete and durable."""
        from agileml.api import ApplicationError
        from agileml.data.fingerprints import changed_since
        from agileml.data.sharding import cut_input
        from spotctl.records.ledger import sync_folder

        part = self.folder / f"{key}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            # Its temporary files lie there too, so the next launch or ``prune`` removes those of a dead one.
            cut_input(job.make_application(), source, job.setup.shards, part, check, job.columns, part)
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
        """Returns all complete inputs."""
        found = []
        for about in sorted(self.folder.glob(f"*/{_ABOUT}")):
            try:
                told = json.loads(about.read_text())
                used_at = about.stat().st_mtime
                size = sum(file.stat().st_size for file in about.parent.iterdir())
            except (OSError, ValueError):
                continue  # another process is removing it
            found.append(KeptInput(about.parent.name, about.parent, str(told["data"]), size, used_at))
        # A suffix marks an input that is being cut or removed.
        return [kept for kept in found if not kept.folder.suffix]

    def count_users(self, key: str) -> int:
        """Counts the runs on record that use, or used, an input."""
        claims = self.folder.parent.glob(f"jobs/*/*/{CLAIM}")
        return sum(claim_of(claim.parent) == key for claim in claims)

    def leftover_folders(self) -> list[Path]:
        """Returns folders left by processes that were killed while they cut or removed."""
        found = [*self.folder.glob("*.part"), *self.folder.glob("*.gone")]
        return [folder for folder in found if not is_held(self._lock_path(folder.stem))]

    def remove_input(self, key: str, needed: Callable[[], bool]) -> bool:
        """Removes an input unless it is in use; returns whether it did.

        A process that cuts it now uses it, and so does a run for which ``needed()`` returns true.
        """
        lock = self._lock_path(key)
        with open_lock(lock) as file:
            # ``needed`` comes last: with the lock held, no run can begin to use the input after it answers.
            if not (try_lock(file) and is_current(file, lock)) or needed():
                return False
            gone = self.folder / f"{key}.gone"
            for folder in (self.folder / key, self.folder / f"{key}.part"):
                if folder.exists():
                    shutil.rmtree(gone, ignore_errors=True)
                    folder.rename(gone)
                    shutil.rmtree(gone)
            shutil.rmtree(gone, ignore_errors=True)
            lock.unlink(missing_ok=True)
        return True

    # ---- locks ---------------------------------------------------------------------------------------

    def _lock_path(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    @contextmanager
    def _hold_lock(self, key: str, check: Callable[[], None]) -> Iterator[None]:
        """Waits until no other process cuts or removes this input."""
        lock = self._lock_path(key)
        try:
            while True:
                with open_lock(lock) as file:
                    if try_lock(file) and is_current(file, lock):
                        yield
                        return
                check()
                sleep(_LOOK_EVERY_S)
        finally:
            with suppress(OSError):
                self.folder.rmdir()  # fails unless it is empty

    # ---- contents --------------------------------------------------------------------------------

    def _fingerprint_source(self, source: str, check: Callable[[], None]) -> Fingerprints:
        """Fingerprints an input. A file that is unchanged since its last digest is not read again."""
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
    """Returns the key of a run's input; None for a run without one."""
    try:
        return (run_folder / CLAIM).read_text().strip()
    except FileNotFoundError:
        return None


def key_of(job: TrainingJob, content: Fingerprints) -> str:
    """Returns the key of an input: a digest of all that cutting it depends on."""
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
    """Returns digests of a loaded application's source, and of the modules beside it that it imports.

    ``program``: the file it was loaded from; None for an installed module, of which the whole package counts.
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
    """Tells whether a file is a module below ``folder`` that the user wrote, not one installed there."""
    installed = "site-packages" in file.parts
    return folder in file.parents and file.suffix == ".py" and not installed and file.is_file()


def _hash_file(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
