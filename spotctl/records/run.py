"""Finds runs on this computer: where they are kept, and whether a process runs them.

ROOT/jobs/NAME/lock              held by the process that runs the job: never two at once
ROOT/jobs/NAME/RUN/ledger.db     the record
ROOT/jobs/NAME/RUN/summary.json  what ``status`` and ``report`` show of a run that ended (``run_history.py``)
ROOT/jobs/NAME/RUN/prices.npz    prices and capacity of the run's markets, as its source had them at the start
ROOT/jobs/NAME/RUN/training/     the folder of its machines; machines/ in it has locks and logs

Most callers only look for runs, so nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spotctl.errors import LedgerError
from spotctl.home import default_root as default_root
from spotctl.records.locks import hold_lock, is_held
from spotctl.timesource import wall_clock

if TYPE_CHECKING:
    from spotctl.control.entries import UserRequest
    from spotctl.control.state import State
    from spotctl.records.ledger import Ledger
    from spotctl.records.price_file import PriceFile

_ID: Final = "%Y%m%dT%H%M%SZ"
"""Format of run ids; sorted as text they are sorted by time."""
_ANY_ID: Final = f"{'[0-9]' * 8}T{'[0-9]' * 6}Z*"


@dataclass(frozen=True, slots=True)
class Run:
    """Locates one run of a job: its folder, and what is in it."""

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
        """Returns the folder of its machines, and of an elastic training (``agileml.job.JobFolder``)."""
        return self.folder / "training"

    @property
    def machines_folder(self) -> Path:
        return self.training_folder / "machines"

    @property
    def scoring_lock(self) -> Path:
        """Returns the lock of the process that scores the run's model, after the run itself is closed."""
        return self.folder / "scoring"

    @property
    def prices(self) -> PriceFile:
        """Returns the file of the prices that the run began with."""
        from spotctl.records.price_file import PriceFile  # loads NumPy

        return PriceFile(self.folder / "prices.npz")

    def open_ledger(self) -> Ledger:
        """Opens the record. Raises LedgerError where there is none."""
        from spotctl.records.ledger import Ledger

        if not self.ledger_path.exists():
            raise LedgerError(f"{self.folder} holds no ledger: the run never began")
        return Ledger.open_file(self.ledger_path)

    def has_entries(self) -> bool:
        """Tells whether anything is on record: a process may die right after it made the folder."""
        if self.summary_path.exists():
            return True
        try:
            with closing(self.open_ledger()) as ledger:
                return ledger.last_entry_times() is not None
        except LedgerError:
            # There may be machines behind an unreadable record. Commands that need it report the error.
            return True

    def fold_state(self) -> State:
        """Returns the fold of the record, without estimates of evictions. Raises LedgerError."""
        from pricing_data.model.market import PriceHistory
        from spotctl.control.drive import fold_entries

        with closing(self.open_ledger()) as ledger:
            entries = ledger.read_entries()
        if not entries:
            raise LedgerError(f"{self.folder}: the run never began")
        return fold_entries(entries, PriceHistory())

    def began_at(self) -> float:
        """Returns the wall clock of its first entry. Raises LedgerError where there is none."""
        with closing(self.open_ledger()) as ledger:
            first = next(ledger.read_rows(), None)
        if first is None:
            raise LedgerError(f"{self.folder}: the run never began")
        return first.recorded

    def died_of(self) -> str | None:
        """Returns why processes of its machines died again and again; None where none did."""
        from agileml.node.agent.crash_reports import describe_last_death

        return describe_last_death(self.machines_folder)

    def is_live(self) -> bool:
        """Tells whether a process runs the job of this run now."""
        return is_held(self.folder.parent / "lock")

    def leave_request(self, ask: UserRequest) -> None:
        """Leaves a request for the process that runs the job."""
        with closing(self.open_ledger()) as ledger:
            ledger.leave_request(ask.value)

    def has_machines(self) -> bool:
        """Tells whether any machine was ever started."""
        return self.machines_folder.is_dir() and any(self.machines_folder.iterdir())

    def discard(self) -> None:
        """Deletes the run. Call it only before any machine was requested: its bill would be lost."""
        from agileml.job import JobFolder

        JobFolder(self.training_folder).remove_sockets()  # these are outside the run's folder
        shutil.rmtree(self.folder)


def _next_id(run_id: str) -> str:
    """Returns the id of a run that began one second after ``run_id``."""
    made = dt.datetime.strptime(run_id.partition("-")[0], _ID)
    return (made + dt.timedelta(seconds=1)).strftime(_ID)


class RunStore:
    """Finds and creates runs under one root folder."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()
        self._jobs = self.root / "jobs"

    def list_runs(self) -> tuple[Run, ...]:
        """Returns all runs with a record, oldest first within each job."""
        found = (Run(path.parent) for path in sorted(self._jobs.glob("*/*/ledger.db")))
        return tuple(run for run in found if run.has_entries())

    def find_run(self, name: str) -> Run | None:
        """Returns the newest run of the job ``name``, or the run of that id."""
        found = [run for run in self.list_runs() if name in (run.name, run.id)]
        return found[-1] if found else None

    def find_unfinished(self, name: str) -> Run | None:
        """Returns the newest run of job ``name`` if it was never closed; else None."""
        found = (Run(path.parent) for path in sorted((self._jobs / name).glob("*/ledger.db"), reverse=True))
        newest = next((run for run in found if run.has_entries()), None)
        return newest if newest is not None and newest.fold_state().ending.closed is None else None

    def create_run(self, name: str) -> Run:
        """Creates an empty run of the job. Its id is the time of its creation, in UTC."""
        from spotctl.records.ledger import sync_folder

        now = dt.datetime.fromtimestamp(wall_clock(), dt.UTC).strftime(_ID)
        # Also after the clock was set back, the newest run must have the last id: it is the one that is
        # resumed, and whose machines are no orphans.
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
        except FileNotFoundError:  # the last holder has just removed the folder; ``hold_lock`` makes it anew
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
    """Removes the folder of a job without runs, whose lock this process holds."""
    if [entry.name for entry in folder.iterdir()] == ["lock"]:
        (folder / "lock").unlink()
        with suppress(OSError):  # other jobs have runs, or another process has just locked this one
            folder.rmdir()
            folder.parent.rmdir()


def replay_runs() -> RunStore:
    """Returns the store of the runs in the replay world."""
    return RunStore(default_root() / "replays")
