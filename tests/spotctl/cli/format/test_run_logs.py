"""Lines of log files, as they come."""

from __future__ import annotations

from pathlib import Path

from spotctl.cli.format.run_logs import LogFiles


def test_lines_come_once_whole_and_after_the_name_of_their_file(tmp_path: Path) -> None:
    files = LogFiles(tmp_path)
    assert list(files.new_lines()) == []
    machine = tmp_path / "s1-0"
    machine.mkdir()
    (machine / "worker.log").write_text("ready\nclock 1")
    (tmp_path / "r1-0.log").write_bytes(b"caf\xff\n")
    assert list(files.new_lines()) == ["r1-0: caf\ufffd", "s1-0/worker: ready"]
    with (machine / "worker.log").open("a") as log:
        log.write(" done\nclock 2 done\n")
    assert list(files.new_lines()) == ["s1-0/worker: clock 1 done", "s1-0/worker: clock 2 done"]
    assert list(files.new_lines()) == []


def test_a_folder_that_is_not_there_yet_has_no_lines(tmp_path: Path) -> None:
    assert list(LogFiles(tmp_path / "later").new_lines()) == []
