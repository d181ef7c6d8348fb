"""Whoever reads what a run writes may go away: the run does not."""

from __future__ import annotations

import os
from contextlib import redirect_stderr, redirect_stdout

import pytest

from spotctl.cli import screen


def test_events_that_nobody_reads_end_nothing_and_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream, redirect_stdout(stream):
        for number in range(3):
            screen.event(f"event {number}")
    said = capsys.readouterr().err
    assert said == (
        "spotctl: standard output: Broken pipe; nothing more is written there, and the job goes on\n"
    )


def test_chatter_that_cannot_be_written_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as stream, redirect_stderr(stream):
        screen.note("one", "two")
        screen.event("still there")
    assert capsys.readouterr().out == "still there\n"
