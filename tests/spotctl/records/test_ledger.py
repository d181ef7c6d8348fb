"""The record of a run: in order, whole, durable when ``commit`` returns, and open to others at any time."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from pricing_data.model.units import Instant, UsdPerHour
from spotctl.control import entries as e
from spotctl.errors import LedgerError
from spotctl.records.ledger import Ledger
from tests.spotctl.build import MARKETS, START

WOKE = e.Woke(START)
PRICE = e.PriceChanged(Instant(START + 1), MARKETS[0], UsdPerHour(0.1 + 0.2))
ACQUIRE = e.Acquire(Instant(START + 2), "s1", MARKETS[0], 2, UsdPerHour(0.5))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def written(path: Path, *entries: e.Entry) -> Ledger:
    ledger = Ledger.open_file(path)
    for entry in entries:
        ledger.append(entry)
    ledger.commit()
    return ledger


def test_entries_come_back_as_they_were_in_their_order(path: Path) -> None:
    ledger = written(path, WOKE, PRICE)
    assert ledger.append(ACQUIRE) == 3
    ledger.commit()
    ledger.close()
    again = Ledger.open_file(path)
    assert again.read_entries() == (WOKE, PRICE, ACQUIRE)
    assert [(row.number, row.is_command) for row in again.read_rows()] == [(1, False), (2, False), (3, True)]
    assert [row.entry for row in again.read_rows(after=1)] == [PRICE, ACQUIRE]
    assert again.append(WOKE) == 4
    again.close()


def test_its_last_entry_tells_when_it_was_recorded(path: Path) -> None:
    ledger = Ledger.open_file(path)
    assert ledger.last_entry_times() is None
    ledger.append(PRICE)
    ledger.commit()
    last = ledger.last_entry_times()
    assert last is not None
    assert last == (PRICE.at, next(ledger.read_rows()).recorded)
    ledger.close()


def test_nothing_is_on_record_before_the_commit_and_all_of_it_after(path: Path) -> None:
    ledger, reader = Ledger.open_file(path), Ledger.open_file(path)
    ledger.append(WOKE)
    ledger.put_note("settings", "some")
    assert (reader.read_entries(), reader.read_note("settings")) == ((), None)
    ledger.commit()
    assert (reader.read_entries(), reader.read_note("settings")) == ((WOKE,), "some")
    ledger.append(PRICE)
    ledger.close()
    assert reader.read_entries() == (WOKE,)
    reader.close()


def test_a_record_of_another_version_is_refused_and_left_as_it_is(path: Path) -> None:
    written(path, WOKE).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(
        LedgerError, match=r"another version of spotctl \(format 1, this one reads \d+\).*remove"
    ):
        Ledger.open_file(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    connection.close()


def test_what_cannot_be_written_is_said_and_what_was_written_stays(path: Path) -> None:
    """As when the disk is full: SQLite is told here to stop at the size that the file has."""
    written(path, WOKE).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA max_page_count={connection.execute('PRAGMA page_count').fetchone()[0]}")
    full = Ledger(connection, path)
    for _ in range(1000):
        full.append(ACQUIRE)
    with pytest.raises(LedgerError, match=r"ledger\.db cannot be written: database or disk is full"):
        full.commit()
    full.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA max_page_count={connection.execute('PRAGMA page_count').fetchone()[0]}")
    asked = Ledger(connection, path)
    with pytest.raises(LedgerError, match=r"down cannot be asked for, .*ledger\.db cannot be written"):
        _ask_often(asked)
    asked.close()
    again = Ledger.open_file(path)
    assert again.read_entries() == (WOKE,)
    again.close()


def test_after_a_commit_that_failed_others_can_write_and_the_next_one_has_it_all(path: Path) -> None:
    """The disk is full, and then it is not."""
    written(path, WOKE).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA max_page_count={connection.execute('PRAGMA page_count').fetchone()[0]}")
    full, other = (
        Ledger(connection, path),
        Ledger(sqlite3.connect(path, timeout=0, isolation_level=None), path),
    )
    lines = [full.append(ACQUIRE) for _ in range(1000)]
    full.put_note("asks", "1")
    with pytest.raises(LedgerError, match="disk is full"):
        full.commit()
    other.leave_request("down")
    assert full.requests_after(after=0) == ((1, "down"),)
    connection.execute("PRAGMA max_page_count=100000")
    assert full.append(PRICE) == lines[-1] + 1
    full.commit()
    assert other.read_entries() == (WOKE, *[ACQUIRE] * 1000, PRICE)
    assert other.read_note("asks") == "1"
    full.close()
    other.close()


def test_a_commit_that_failed_holds_nobody_up(path: Path) -> None:
    """As of two that both took the next number: the second one is refused, and lets go of the record."""
    written(path, WOKE).close()
    one, two = (Ledger(sqlite3.connect(path, timeout=0, isolation_level=None), path) for _ in range(2))
    for ledger in (one, two):
        ledger.append(PRICE)
    one.commit()
    for _ in range(2):
        with pytest.raises(LedgerError, match="UNIQUE constraint failed"):
            two.commit()
    one.append(ACQUIRE)
    one.commit()
    assert two.read_entries() == (WOKE, PRICE, ACQUIRE)
    one.close()
    two.close()


def _ask_often(ledger: Ledger) -> None:
    for _ in range(1000):
        ledger.leave_request("down")


def test_a_note_is_replaced_by_a_later_one(path: Path) -> None:
    ledger = Ledger.open_file(path)
    ledger.put_note("asks", "1")
    ledger.put_note("asks", "2")
    ledger.commit()
    assert ledger.read_note("asks") == "2"
    ledger.close()


@pytest.mark.process
def test_what_is_committed_survives_a_kill(path: Path) -> None:
    writes = (
        "import os, signal, sys; from pathlib import Path; from spotctl.records.ledger import Ledger\n"
        "from spotctl.control import entries as e\n"
        "ledger = Ledger.open_file(Path(sys.argv[1]))\n"
        "ledger.append(e.Woke(1)); ledger.append(e.Woke(2)); ledger.commit(); ledger.append(e.Woke(3))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", writes, str(path)], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    ledger = Ledger.open_file(path)
    assert ledger.read_entries() == (e.Woke(Instant(1)), e.Woke(Instant(2)))
    assert ledger.append(WOKE) == 3
    ledger.close()


def test_requests_are_left_and_found_in_order_however_long_the_writer_waits(path: Path) -> None:
    running, other = written(path, WOKE), Ledger.open_file(path)
    running.append(PRICE)  # and now nothing happens for a long time
    other.leave_request("cancel")
    other.leave_request("down")
    assert running.requests_after(after=0) == ((1, "cancel"), (2, "down"))
    assert running.requests_after(after=1) == ((2, "down"),)
    running.commit()
    assert other.read_entries() == (WOKE, PRICE)
    running.close()
    other.close()


_READER = """
import sys, time
from pathlib import Path
from spotctl.records.ledger import Ledger

folder, count = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
for number in range(count):
    while not (path := folder / str(number) / "ledger.db").exists():
        time.sleep(0)
    for _ in range(3):
        Ledger.open_file(path).close()
"""


def test_a_ledger_can_be_read_from_the_moment_it_is_there(tmp_path: Path) -> None:
    count = 40
    for number in range(count):
        (tmp_path / str(number)).mkdir()
    command = [sys.executable, "-c", _READER, str(tmp_path), str(count)]
    with ExitStack() as stack:
        readers = []
        for _ in range(3):
            reader = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(reader.kill)
            readers.append(reader)
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
        for number in range(count):
            written(tmp_path / str(number) / "ledger.db", WOKE, PRICE).close()
        assert [reader.wait(timeout=60) for reader in readers] == [0, 0, 0]


def test_a_file_that_is_no_ledger_is_refused(path: Path, tmp_path: Path) -> None:
    path.write_text("not a database, and long enough to be looked at: " * 10)
    with pytest.raises(LedgerError, match=r"ledger\.db"):
        Ledger.open_file(path)
    with pytest.raises(LedgerError, match="nowhere"):
        Ledger.open_file(tmp_path / "nowhere" / "ledger.db")


def test_a_record_that_lacks_its_tables_is_said_to_be_unreadable_whatever_is_asked(path: Path) -> None:
    written(path, WOKE).close()
    ledger = Ledger.open_file(path)
    with sqlite3.connect(path) as connection:
        for table in ("notes", "asks", "entries"):
            connection.execute(f"DROP TABLE {table}")
    connection.close()
    for ask in (
        lambda: ledger.read_note("asks"),
        lambda: ledger.requests_after(after=0),
        ledger.last_entry_times,
        ledger.read_entries,
    ):
        with pytest.raises(LedgerError, match=r"ledger\.db cannot be read: no such table"):
            ask()
    ledger.close()


def test_an_entry_of_another_version_is_reported_with_its_number(path: Path) -> None:
    written(path, WOKE, PRICE).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entries SET type = 'Forgotten' WHERE number = 2")
    connection.close()
    ledger = Ledger.open_file(path)
    with pytest.raises(LedgerError, match="entry 2 of the ledger: 'Forgotten'"):
        ledger.read_entries()
    ledger.close()
