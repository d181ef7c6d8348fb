"""A queue whose records cannot be kept: what was not written never was, and says so in one line."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from spotctl.errors import LedgerError
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.requests import Request
from spotctl.queue.lifecycle.run_queue import run_queue
from tests.scenarios.support.market import START
from tests.spotctl.full import no_file_longer_than
from tests.spotctl.queue.build import Watching, command, queue


def test_a_note_that_the_disk_has_no_room_for_was_never_written(folder: j.QueueFolder) -> None:
    run = folder.create_run()
    with closing(j.QueueJournal(run)) as journal:
        journal.write_note(j.QueueStarted(START, "{}"))
        length, before = run.journal_file.stat().st_size, journal.record
        with (
            no_file_longer_than(length + 9),
            pytest.raises(LedgerError, match=r"journal\.jsonl cannot be wr"),
        ):
            journal.write_note(j.RequestHandled(START, 1))
        assert journal.record == run.read_record() == before
        journal.write_note(j.RequestHandled(START, 2))
        assert journal.record == run.read_record() == before.with_note(j.RequestHandled(START, 2))


def test_a_request_that_the_disk_has_no_room_for_was_never_made(folder: j.QueueFolder) -> None:
    folder.leave_request(Request("a"))
    with (
        no_file_longer_than(40),
        pytest.raises(LedgerError, match="records of the queue night cannot be kept"),
    ):
        folder.leave_request(Request("b", "x" * 80))
    folder.leave_request(Request("c"))
    assert folder.requests_after(after=0) == ((1, Request("a")), (2, Request("c")))


def test_a_queue_whose_folder_cannot_be_made_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "name: night\nround: 6m\nquotas: {c4.xlarge: 2}"
    settings = queue(tmp_path, head, [(command(tmp_path, "a", steps=4, takes=10), "")]).settings
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "file"))
    told = "records of the queue night cannot be kept in .*: Not a directory; make room there"
    with pytest.raises(LedgerError, match=told):
        run_queue(settings, Watching())
    with pytest.raises(LedgerError, match=told):
        j.QueueFolder("night").leave_request(Request("a"))
