"""Who watches without a terminal: a log, a program."""

from __future__ import annotations

import json
from threading import Event

import pytest

from spotctl.cli.watch.observers import RunJsonLines, RunLogLines
from tests.spotctl.cli.story import entries, told


def test_a_log_has_a_line_for_what_is_worth_telling_and_goes_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with RunLogLines() as watcher:
        for state, entry in told():
            watcher.on_entry(state, entry)
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert shown.out == ""
    assert lines[0] == "2016-06-05T14:00:00Z requested: 1 x m4.xlarge in us-east-1a, on-demand (r1)"
    assert "2016-06-05T14:20:00Z clock 12 of 40" in lines
    assert "2016-06-05T14:50:00Z clock 40 of 40, objective 0.9134 after clock 12" in lines
    assert lines[-1] == "2016-06-05T14:52:00Z the work is done"


def test_json_lines_are_the_entries_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with RunJsonLines() as watcher:
        for state, entry in told():
            watcher.on_entry(state, entry)
    shown = capsys.readouterr()
    kinds = [json.loads(line)["event"] for line in shown.out.splitlines()]
    assert kinds == [type(entry).__name__ for entry in entries()]
    assert shown.err == ""


@pytest.mark.parametrize("watcher", [RunJsonLines(), RunLogLines()])
def test_where_nobody_can_be_asked_ctrl_c_is_a_graceful_cancel(watcher: RunJsonLines | RunLogLines) -> None:
    assert watcher.ask_interrupt(Event()) == "cancel"
