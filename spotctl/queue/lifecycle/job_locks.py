"""What one process holds of the jobs that it runs: their locks and their open records."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from spotctl.errors import AlreadyRunning
from spotctl.records.run import JobLocked, Run, Runs
from spotctl.session.open import Recorded, reopen, settings_of


class Claims:
    """A claim is let go of when its job ends; all of them when the queue does, however that comes."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self._all = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all.close()

    def new(self) -> ExitStack:
        """A claim on nothing yet."""
        return self._all.enter_context(ExitStack())

    def on(self, job: str) -> ExitStack:
        """The claim on a job: nobody else runs it. Raises AlreadyRunning where another process does."""
        claim = self.new()
        try:
            claim.enter_context(self.runs.lock(job))
        except JobLocked:
            raise AlreadyRunning(f"{job} is running already, by another process") from None
        return claim


def reopened(run: Run, claim: ExitStack) -> Recorded:
    """A run as its record has it, open as long as the claim. Raises LedgerError where it cannot be read."""
    settings = settings_of(run)
    ledger = run.ledger()
    claim.callback(ledger.close)
    return reopen(run, ledger, settings)
