"""Holds the locks and open ledgers of the jobs that one process runs."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from spotctl.errors import AlreadyRunning
from spotctl.records.locks import JobLocked
from spotctl.records.run import Run, RunStore
from spotctl.session.open import RecordedRun, reopen_run, settings_of


class JobLocks:
    """Holds claims on jobs. Each ends with its job, and all of them end with the queue, even if it breaks."""

    def __init__(self, runs: RunStore) -> None:
        self.runs = runs
        self._all = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all.close()

    def new_claim(self) -> ExitStack:
        """Returns an empty claim."""
        return self._all.enter_context(ExitStack())

    def claim_job(self, job: str) -> ExitStack:
        """Locks a job, so that no other process runs it. Raises AlreadyRunning if one does."""
        claim = self.new_claim()
        try:
            claim.enter_context(self.runs.lock_job(job))
        except JobLocked:
            raise AlreadyRunning(f"{job} is running already, by another process") from None
        return claim


def reopen_claimed(run: Run, claim: ExitStack) -> RecordedRun:
    """Opens a recorded run until its claim ends. Raises LedgerError if its record is unreadable."""
    settings = settings_of(run)
    ledger = run.open_ledger()
    # Before anything is read from it: a damaged ledger has to be closed too.
    claim.callback(ledger.close)
    return reopen_run(run, ledger, settings)
