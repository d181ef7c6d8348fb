"""Runs on disk: one process each, found again by name, and read back as they were written."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pricing_data.model.market import PriceHistory
from spotctl.control import entries as e
from spotctl.errors import LedgerError
from spotctl.records.ledger import Ledger
from spotctl.records.locks import JobLocked
from spotctl.records.run import Run, RunStore, default_root
from tests.spotctl.build import START, random_trace, terms

STARTED = e.JobStarted(START, terms())
CLOSED = e.Close(START, e.RunOutcome.DONE, 0, "the work is done")
HOLDS = """\
import sys
from pathlib import Path
from spotctl.records.run import RunStore
with RunStore(Path(sys.argv[1])).lock_job("nightly"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def runs(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path)


def begun(runs: RunStore, name: str, *more: e.Entry) -> Run:
    """A run of job ``name`` with an entry or more on record."""
    run = runs.create_run(name)
    ledger = ledger_of(run)
    for entry in (STARTED, *more):
        ledger.append(entry)
    ledger.commit()
    ledger.close()
    return run


def ledger_of(run: Run) -> Ledger:
    return Ledger.open_file(run.ledger_path)


# ---- one process at a time -------------------------------------------------------------------------


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the job "nightly"."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.process
def test_a_job_is_run_by_one_process_until_that_is_gone(
    runs: RunStore, other_process: subprocess.Popen[str]
) -> None:
    run = begun(runs, "nightly")
    assert run.is_live()
    with pytest.raises(JobLocked), runs.lock_job("nightly"):
        raise AssertionError("two processes run one job")
    with runs.lock_job("weekly"):
        pass
    other_process.kill()
    other_process.wait()
    assert not run.is_live()
    with runs.lock_job("nightly"):
        assert run.is_live()


def test_a_lock_is_free_again_when_its_block_is_left(runs: RunStore) -> None:
    run = begun(runs, "nightly")
    assert not run.is_live(), "nobody ever ran it"
    for _ in range(2):
        with runs.lock_job("nightly"), pytest.raises(JobLocked), runs.lock_job("nightly"):
            raise AssertionError("two run one job")
        assert not run.is_live()


def test_to_look_whether_a_job_runs_keeps_nobody_from_running_it(runs: RunStore) -> None:
    run = begun(runs, "nightly")
    with runs.lock_job("nightly"):
        pass
    enough = threading.Event()

    def look() -> None:
        while not enough.is_set():
            run.is_live()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(300):
            with runs.lock_job("nightly"):
                pass
    finally:
        enough.set()
        looking.join()


# ---- found again -----------------------------------------------------------------------------------


def test_runs_are_found_by_job_or_id_the_newest_first(runs: RunStore) -> None:
    first, second = begun(runs, "nightly"), begun(runs, "nightly")
    other = begun(runs, "weekly")
    assert first.folder != second.folder, "also within one second"
    assert runs.list_runs() == (first, second, other)
    assert runs.find_run("nightly") == second
    assert runs.find_run(first.id) in (first, other), "ids of two jobs may agree"
    assert runs.find_run("hourly") is None
    assert (second.name, second.id) == ("nightly", second.folder.name)


def test_the_newest_run_is_the_last_that_began_also_where_the_clock_was_set_back(
    runs: RunStore, tmp_path: Path
) -> None:
    """Else it would be taken for an old one: gone on with by nobody, and its machines for orphans."""
    long_ago = tmp_path / "jobs" / "nightly" / "20990101T235959Z-2"
    long_ago.mkdir(parents=True)
    ledger = ledger_of(Run(long_ago))
    for entry in (STARTED, CLOSED):
        ledger.append(entry)
    ledger.commit()
    ledger.close()
    run = begun(runs, "nightly")
    assert runs.find_run("nightly") == runs.find_unfinished("nightly") == run
    assert run.id == "20990102T000000Z"


def test_a_run_that_was_never_closed_is_unfinished(runs: RunStore) -> None:
    assert runs.find_unfinished("nightly") is None
    first = begun(runs, "nightly")
    assert runs.find_unfinished("nightly") == first
    begun(runs, "nightly", CLOSED)
    assert runs.find_unfinished("nightly") is None, "only the newest counts"
    third = begun(runs, "nightly")
    assert runs.find_unfinished("nightly") == third
    third.discard()
    assert runs.find_unfinished("nightly") is None


def test_a_folder_in_which_nothing_began_is_no_run(runs: RunStore) -> None:
    empty = runs.create_run("nightly")
    assert runs.list_runs() == ()
    with pytest.raises(LedgerError, match="the run never began"):
        empty.open_ledger()
    ledger_of(empty).close()
    assert runs.list_runs() == ()
    assert runs.find_unfinished("nightly") is None
    with pytest.raises(LedgerError, match="the run never began"):
        empty.fold_state()


def test_a_request_reaches_whoever_runs_it(runs: RunStore) -> None:
    run = begun(runs, "nightly")
    run.leave_request(e.UserRequest.CANCEL)
    ledger = ledger_of(run)
    assert ledger.requests_after(after=0) == ((1, "cancel"),)
    ledger.close()


def test_the_state_of_a_run_is_the_fold_of_its_record(runs: RunStore) -> None:
    state = begun(runs, "nightly", CLOSED).fold_state()
    assert (state.terms, state.ending.closed) == (STARTED.terms, CLOSED)


# ---- what was known before the start ---------------------------------------------------------------


def test_the_history_comes_back_to_the_last_bit(runs: RunStore) -> None:
    run, history = runs.create_run("nightly"), random_trace(seed=4).as_of(START)
    run.prices.save(history)
    again = run.prices.load_prices()
    assert again.markets == history.markets
    for market in history.markets:
        kept, was = again.series(market), history.series(market)
        assert np.array_equal(kept.times, was.times)
        assert kept.prices.tobytes() == was.prices.tobytes()


def test_an_empty_history_comes_back_empty(runs: RunStore) -> None:
    run = runs.create_run("nightly")
    run.prices.save(PriceHistory())
    assert run.prices.load_prices().markets == ()


@pytest.mark.parametrize("content", [None, b"", b"not an archive", b"PK\3\4 cut off"])
def test_a_history_that_is_missing_or_damaged_is_reported(runs: RunStore, content: bytes | None) -> None:
    run = runs.create_run("nightly")
    if content is not None:
        (run.folder / "prices.npz").write_bytes(content)
    with pytest.raises(LedgerError, match=r"prices\.npz cannot be read"):
        run.prices.load_prices()


# ---- where -----------------------------------------------------------------------------------------


def test_where_runs_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "mine"))
    assert default_root() == tmp_path / "mine"
    monkeypatch.delenv("SPOTCTL_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "spotctl"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_root() == tmp_path / ".local" / "state" / "spotctl"


def test_a_run_that_is_discarded_leaves_no_folder_of_sockets(runs: RunStore, tmp_path: Path) -> None:
    """The elastic trainer's have short names elsewhere, and a link to them in its own folder."""
    run, sockets = runs.create_run("refused"), tmp_path / "short"
    for folder in (sockets, run.training_folder):
        folder.mkdir()
    (run.training_folder / "sockets").symlink_to(sockets)
    run.discard()
    assert not sockets.exists()
    assert not run.folder.exists()
