"""Keeps the ledger of one run: every fact and every command, in order, durable before any effect.

SQLite in WAL mode with ``synchronous=FULL``: once ``commit`` has returned, its entries survive SIGKILL and
power loss. One process writes (the run's lock sees to that); any number may read, and leave requests, at any
time: the file is only locked within ``commit``.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from pricing_data.model.units import Instant
from spotctl.control.entries import Command, Entry
from spotctl.errors import LedgerError
from spotctl.records.codec import CodecError, decode_entry, encode_entry
from spotctl.timesource import wall_clock

_VERSION: Final = 4
"""Counts up whenever what entries, terms or settings hold changes: no version reads another one's records."""
_SCHEMA: Final = f"""
PRAGMA user_version = {_VERSION};
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    command INTEGER NOT NULL,
    type TEXT NOT NULL,
    body TEXT NOT NULL,
    recorded REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS notes (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS asks (number INTEGER PRIMARY KEY, what TEXT NOT NULL, asked REAL NOT NULL);
"""
_COMMANDS: Final = tuple(cls.__name__ for cls in get_args(Command))


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """Holds an entry as it stands in the ledger. ``recorded``: wall clock, seconds since the epoch."""

    number: int
    entry: Entry
    recorded: float

    @property
    def is_command(self) -> bool:
        return type(self.entry).__name__ in _COMMANDS


class Ledger:
    """Reads and writes a ledger: ``Ledger.open_file(path)``, or ``Ledger.in_memory()`` to keep nothing."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None = None) -> None:
        self._db = connection
        self._path = path
        self._next = self._last_number() + 1
        self._entries: list[tuple[int, int, bool, str, str, float]] = []
        self._notes: list[tuple[str, str]] = []

    @classmethod
    def open_file(cls, path: Path) -> Ledger:
        """Opens or creates a ledger. Raises LedgerError where the file is no ledger or cannot be opened.

        A new ledger appears under its name when it is complete, so every process that finds it can read it.
        """
        try:
            if not path.exists():
                _create_file(path)
            return cls(_open_connection(path), path)
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"{path} cannot be opened as a ledger: {error}") from error

    @classmethod
    def in_memory(cls) -> Ledger:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.executescript(_SCHEMA)
        return cls(connection)

    def _last_number(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(number), 0) FROM entries").fetchone()[0])

    def append(self, entry: Entry) -> int:
        """Adds one entry and returns its number. Nobody sees it, and nothing keeps it, before ``commit``."""
        number, (kind, body) = self._next, encode_entry(entry)
        self._entries.append((number, entry.at, kind in _COMMANDS, kind, body, wall_clock()))
        self._next += 1
        return number

    def put_note(self, key: str, value: str) -> None:
        """Adds a fact about the recording itself (message numbers, sources), committed with the entries."""
        self._notes.append((key, value))

    def commit(self) -> None:
        """Makes everything since the last commit durable, all of it or none. Raises LedgerError if not."""
        if not self._entries and not self._notes:
            return
        try:
            self._write_pending()
        except sqlite3.Error as error:
            raise LedgerError(
                f"the record {self._path} cannot be written: {error}. What it has is whole: mend that, and "
                "give the same command again to go on"
            ) from error
        self._entries.clear()
        self._notes.clear()

    def _write_pending(self) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", self._entries)
            self._db.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?)", self._notes)
            self._db.execute("COMMIT")
        finally:  # a full disk ends a transaction by itself, other errors leave it open
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def read_note(self, key: str) -> str | None:
        """Returns a note, None where there is none. Raises LedgerError where it cannot be read."""
        try:
            row = self._db.execute("SELECT value FROM notes WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            raise self._read_error(error) from error
        return None if row is None else str(row[0])

    def read_rows(self, after: int = 0) -> Iterator[LedgerRow]:
        """Yields all rows with a number above ``after``. Raises LedgerError for an unreadable one."""
        asked = "SELECT number, type, body, recorded FROM entries WHERE number > ? ORDER BY number"
        try:
            for number, kind, body, recorded in self._db.execute(asked, (after,)):
                try:
                    yield LedgerRow(number, decode_entry(kind, body), recorded)
                except CodecError as error:
                    raise LedgerError(f"entry {number} of the ledger: {error}") from error
        except sqlite3.Error as error:
            raise self._read_error(error) from error

    def read_entries(self) -> tuple[Entry, ...]:
        return tuple(row.entry for row in self.read_rows())

    def last_entry_times(self) -> tuple[Instant, float] | None:
        """Returns (nominal time, wall clock) of the last entry; None while the ledger is empty."""
        asked = "SELECT at, recorded FROM entries ORDER BY number DESC LIMIT 1"
        try:
            row = self._db.execute(asked).fetchone()
        except sqlite3.Error as error:
            raise self._read_error(error) from error
        return None if row is None else (Instant(row[0]), float(row[1]))

    def has_entry(self, kind: str) -> bool:
        """Tells whether an entry of that type is on record. Raises LedgerError where it cannot be read."""
        asked = "SELECT 1 FROM entries WHERE type = ? LIMIT 1"
        try:
            return self._db.execute(asked, (kind,)).fetchone() is not None
        except sqlite3.Error as error:
            raise self._read_error(error) from error

    def leave_request(self, what: str) -> None:
        """Leaves a request for the process that runs the job. Any process may call it.

        Raises LedgerError where it cannot be written.
        """
        try:
            self._db.execute("INSERT INTO asks (what, asked) VALUES (?, ?)", (what, wall_clock()))
        except sqlite3.Error as error:
            raise LedgerError(
                f"{what} cannot be asked for, as the record {self._path} cannot be written: {error}"
            ) from error

    def requests_after(self, after: int) -> tuple[tuple[int, str], ...]:
        """Returns requests with a number above ``after``. Raises LedgerError where they cannot be read."""
        asked = "SELECT number, what FROM asks WHERE number > ? ORDER BY number"
        try:
            return tuple(self._db.execute(asked, (after,)))
        except sqlite3.Error as error:
            raise self._read_error(error) from error

    def close(self) -> None:
        self._db.close()

    def _read_error(self, error: sqlite3.Error) -> LedgerError:
        return LedgerError(f"the record {self._path} cannot be read: {error}")


def sync_folder(folder: Path) -> None:
    """Makes durable which files ``folder`` has, and their names."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _open_connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("SELECT number FROM entries LIMIT 1")
        written_by = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error:
        connection.close()
        raise
    if written_by != _VERSION:
        connection.close()
        raise LedgerError(
            f"{path} was written by another version of spotctl (format {written_by}, this one reads "
            f"{_VERSION}): use that version for its run, or remove {path.parent} to forget it"
        )
    return connection


def _create_file(path: Path) -> None:
    """Creates an empty ledger at ``path``, durable and whole.

    It is made aside, since SQLite does not wait for readers when it turns to WAL, but fails.
    """
    partial = path.with_name("ledger.partial.db")
    partial.unlink(missing_ok=True)
    connection = sqlite3.connect(partial, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(_SCHEMA)
    connection.close()
    os.replace(partial, path)
    sync_folder(path.parent)
