"""Finds runs on this machine: where they are kept, and which process runs each.

ROOT/jobs/NAME/lock              held by the process that runs the job: never two at once
ROOT/jobs/NAME/RUN/ledger.db     the record
ROOT/jobs/NAME/RUN/summary.json  of a run that ended: what ``status`` and ``report`` show (``run_history.py``)
ROOT/jobs/NAME/RUN/prices.npz    prices and capacity of the run's markets, as its source had them at the start
ROOT/jobs/NAME/RUN/training/     the elastic trainer's folder; machines/ in it has locks and logs

Code that only looks for runs, or whether they go on, imports nothing heavy here.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from zipfile import BadZipFile

from spotctl.errors import LedgerError
from spotctl.home import default_root as default_root
from spotctl.timesource import sleep, stopwatch, wall_clock

if TYPE_CHECKING:
    import numpy as np

    from pricing_data.model.capacity_spells import Observations
    from pricing_data.model.market import Market, PriceHistory
    from spotctl.control.entries import UserRequest
    from spotctl.control.state import State
    from spotctl.records.ledger import Ledger

_ID: Final = "%Y%m%dT%H%M%SZ"
"""Format of run ids, whose order as text is that of time."""
_ANY_ID: Final = f"{'[0-9]' * 8}T{'[0-9]' * 6}Z*"
_LOOKS_TAKE_S: Final = 0.2
"""Seconds; more than enough for a process that only checks a lock to let go of it."""


class JobLocked(Exception):
    """Raised where another process runs this job now."""


@dataclass(frozen=True, slots=True)
class Run:
    """Locates one run of a job: a folder."""

    folder: Path

    @property
    def name(self) -> str:
        """Returns the job's name."""
        return self.folder.parent.name

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def ledger_path(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def summary_path(self) -> Path:
        return self.folder / "summary.json"

    @property
    def training_folder(self) -> Path:
        """Returns the folder of the elastic trainer (``agileml.job.JobFolder``)."""
        return self.folder / "training"

    @property
    def machines_folder(self) -> Path:
        return self.training_folder / "machines"

    @property
    def scoring_lock(self) -> Path:
        """Returns the lock of the process that scores the run's model, when all else of the run is over."""
        return self.folder / "scoring"

    def open_ledger(self) -> Ledger:
        """Opens the record. Raises LedgerError where there is none."""
        from spotctl.records.ledger import Ledger

        if not self.ledger_path.exists():
            raise LedgerError(f"{self.folder} holds no ledger: the run never began")
        return Ledger.open_file(self.ledger_path)

    def has_entries(self) -> bool:
        """Tells whether anything is on record: a process may die right after it made the folder.

        An unreadable record counts. There may be machines behind it, and a command about it reports the
        error.
        """
        if self.summary_path.exists():
            return True
        try:
            ledger = self.open_ledger()
        except LedgerError:
            return True
        try:
            return ledger.last_entry_times() is not None
        except LedgerError:
            return True
        finally:
            ledger.close()

    def fold_state(self) -> State:
        """Returns the fold of the record, without estimates of evictions."""
        from pricing_data.model.market import PriceHistory
        from spotctl.control.drive import fold_entries

        ledger = self.open_ledger()
        try:
            entries = ledger.read_entries()
        finally:
            ledger.close()
        if not entries:
            raise LedgerError(f"{self.folder}: the run never began")
        return fold_entries(entries, PriceHistory())

    def began_at(self) -> float:
        """Returns the wall clock of its first entry. Raises LedgerError where there is none."""
        ledger = self.open_ledger()
        try:
            first = next(ledger.read_rows(), None)
        finally:
            ledger.close()
        if first is None:
            raise LedgerError(f"{self.folder}: the run never began")
        return first.recorded

    def died_of(self) -> str | None:
        """Returns why processes of its machines died over and over; None where none did."""
        from agileml.node.agent.crash_reports import describe_last_death  # only this reads logs

        return describe_last_death(self.machines_folder)

    def is_live(self) -> bool:
        """Tells whether a process runs the job of this run now."""
        return is_held(self.folder.parent / "lock")

    def leave_request(self, ask: UserRequest) -> None:
        """Leaves a request for the process that runs it."""
        ledger = self.open_ledger()
        try:
            ledger.leave_request(ask.value)
        finally:
            ledger.close()

    def has_machines(self) -> bool:
        """Tells whether any machine was ever started."""
        return self.machines_folder.is_dir() and any(self.machines_folder.iterdir())

    def discard(self) -> None:
        """Deletes the run, which was refused before any machine was requested."""
        from agileml.job import JobFolder  # only a refusal needs it

        JobFolder(self.training_folder).remove_sockets()  # sockets are not below the run's folder
        shutil.rmtree(self.folder)

    def save_prices(self, trace: PriceHistory, capacity: Observations | None = None) -> None:
        """Saves what the run's market does from first to last, so that the run can be resumed and checked.

        It is durable on return: the record that needs it begins afterwards. Decisions see no more of it than
        ``as_of`` their moment.
        """
        import numpy as np

        from spotctl.records.ledger import sync_folder

        arrays: dict[str, np.ndarray] = {}
        for market in trace.markets:
            series = trace.series(market)
            key = _market_key(market)
            arrays[f"{key}/times"], arrays[f"{key}/prices"] = series.times, series.prices
        spells_of = {} if capacity is None else {m: capacity.spells(m) for m in capacity.markets}
        for market, spells in spells_of.items():
            arrays[f"{_market_key(market)}/spells"] = np.stack([spells.begins, spells.ends, spells.lost])
        partial = self.folder / "prices.partial.npz"
        with partial.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self.folder / "prices.npz")
        sync_folder(self.folder)

    def load_prices(self) -> PriceHistory:
        """Loads the run's prices. Raises LedgerError where they cannot be read."""
        from pricing_data.model.market import PriceHistory, Series

        found = self._load_arrays("times", "prices")
        return PriceHistory.from_series({market: Series(*columns) for market, columns in found.items()})

    def load_capacity(self) -> Observations:
        """Loads when the run's markets had capacity. Raises LedgerError where they cannot be read."""
        from pricing_data.model.capacity_spells import Observations, Spells

        found = self._load_arrays("spells")
        return Observations.from_spells(
            {market: Spells.from_columns(*spells) for market, (spells,) in found.items()}
        )

    def _load_arrays(self, *names: str) -> Mapping[Market, tuple[np.ndarray, ...]]:
        import numpy as np

        from pricing_data.model.market import Market

        path = self.folder / "prices.npz"
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                keys = {name.rpartition("/")[0] for name in arrays.files if name.endswith(f"/{names[0]}")}
                return {
                    Market(*key.split("/")): tuple(arrays[f"{key}/{name}"] for name in names)
                    for key in sorted(keys)
                }
        except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
            raise LedgerError(f"{path} cannot be read: {error}") from error


def _next_id(run_id: str) -> str:
    """Returns the id of the second after that of another run."""
    made = dt.datetime.strptime(run_id.partition("-")[0], _ID)
    return (made + dt.timedelta(seconds=1)).strftime(_ID)


def _market_key(market: Market) -> str:
    return "/".join((market.cloud, market.region, market.zone, market.instance_type))


class RunStore:
    """Finds and creates runs under one root folder."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()
        self._jobs = self.root / "jobs"

    def list_runs(self) -> tuple[Run, ...]:
        """Returns every run that began, oldest first within each job."""
        found = (Run(path.parent) for path in sorted(self._jobs.glob("*/*/ledger.db")))
        return tuple(run for run in found if run.has_entries())

    def find_run(self, name: str) -> Run | None:
        """Returns the newest run of the job ``name``, or the run of that id."""
        found = [run for run in self.list_runs() if name in (run.name, run.id)]
        return found[-1] if found else None

    def find_unfinished(self, name: str) -> Run | None:
        """Returns the newest run of job ``name``, if it was never closed."""
        found = (Run(path.parent) for path in sorted((self._jobs / name).glob("*/ledger.db"), reverse=True))
        newest = next((run for run in found if run.has_entries()), None)
        return newest if newest is not None and newest.fold_state().ending.closed is None else None

    def create_run(self, name: str) -> Run:
        """Creates an empty run of the job. Its id is the moment it was made, UTC, to the second.

        Where the clock was set back it is still later than all others: the newest run is the one that is
        resumed, and whose machines are nobody's orphans.
        """
        from spotctl.records.ledger import sync_folder

        now = dt.datetime.fromtimestamp(wall_clock(), dt.UTC).strftime(_ID)
        newest = max((entry.name for entry in (self._jobs / name).glob(_ANY_ID)), default="")
        folder = self._jobs / name / (now if now > newest else _next_id(newest))
        folder.mkdir(parents=True)
        sync_folder(folder.parent)
        return Run(folder)

    @contextmanager
    def lock_job(self, name: str) -> Iterator[None]:
        """Makes this the one process that runs job ``name``. Raises JobLocked where another one does."""
        folder = self._jobs / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "lock").touch()
        except FileNotFoundError:  # the last holder has removed it meanwhile
            pass
        except OSError as error:
            raise LedgerError(
                f"records of {name} cannot be kept in {folder}: {error.strerror}; make room there, or let "
                "SPOTCTL_HOME name another folder"
            ) from error
        with hold_lock(folder / "lock"):
            try:
                yield
            finally:
                _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    """Removes the folder of a job without runs, whose lock this process holds: a refused launch leaves
    nothing.
    """
    if [entry.name for entry in folder.iterdir()] == ["lock"]:
        (folder / "lock").unlink()
        with suppress(OSError):  # other jobs have runs, or a process begins one of this job just now
            folder.rmdir()
            folder.parent.rmdir()


def replay_runs() -> RunStore:
    """Returns all runs of the replay world."""
    return RunStore(default_root() / "replays")


@contextmanager
def hold_lock(lock: Path) -> Iterator[None]:
    """Holds ``lock`` alone. Raises JobLocked, with its folder's name, where another process does."""
    until = stopwatch() + _LOOKS_TAKE_S
    while True:
        with _open_lock(lock) as file:
            while not _try_lock(file, fcntl.LOCK_EX):
                if stopwatch() > until:
                    raise JobLocked(lock.parent.name)
                sleep(_LOOKS_TAKE_S / 20)
            if _is_still(file, lock):
                yield
                return


def _open_lock(lock: Path) -> IO[str]:
    while True:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the last holder of the lock removed its folder
            return lock.open("a")


def _is_still(file: IO[str], lock: Path) -> bool:
    """Tells whether ``file`` is still what ``lock`` names: its last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), lock.stat())
    except FileNotFoundError:
        return False


def is_held(lock: Path) -> bool:
    """Tells whether a lock is held, by sharing it for a moment: checks share it, and its users try again."""
    if not lock.exists():
        return False
    with lock.open("r") as file:  # reading is enough, as a user without write access may check
        return not _try_lock(file, fcntl.LOCK_SH)


def _try_lock(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
