"""Reads what there is about a run: what its machines wrote, and what happened to it, in plain words.

Both are read as far as they go, and read on from there at the next call.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pricing_data.model.market import PriceHistory
from pricing_data.model.units import Instant
from spotctl.cli.format import event_text
from spotctl.control.drive import fold_entries
from spotctl.control.evolve import evolve
from spotctl.control.state import State
from spotctl.errors import LedgerError
from spotctl.records.run import Run


class LogFiles:
    """Reads all ``*.log`` files below a folder; files may appear and grow between two calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new_lines(self, most: int | None = None) -> Iterator[str]:
        """Yields whole lines that were not yielded before, file by file. An unfinished line waits for its
        end.

        ``most``: at most so many of the last lines of each file.
        """
        for path in sorted(self._folder.rglob("*.log")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            name = path.relative_to(self._folder).with_suffix("")
            lines = whole.decode(errors="replace").splitlines()
            for line in lines if most is None else lines[max(0, len(lines) - most) :]:
                yield f"{name}: {line}"


class RunStory:
    """Tells what happened to a run, from its ledger."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._seen = 0
        self._state: State | None = None

    @property
    def state(self) -> State:
        """Returns the state as of what was told. Raises LedgerError before anything was."""
        if self._state is None:
            raise LedgerError(f"{self._run.folder}: nothing of the run was read yet")
        return self._state

    def new_sentences(self) -> Iterator[tuple[Instant, str]]:
        """Yields times and sentences that were not yielded before."""
        ledger = self._run.open_ledger()
        try:
            for row in ledger.read_rows(after=self._seen):
                self._seen = row.number
                state = self._state
                self._state = (
                    fold_entries((row.entry,), PriceHistory()) if state is None else evolve(state, row.entry)
                )
                said = event_text.describe_entry(self._state, row.entry)
                if said is not None:
                    yield row.entry.at, said
        finally:
            ledger.close()
