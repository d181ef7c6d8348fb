"""Whoever reads what a run writes may take his time, or go away: the run goes on."""

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
        screen.finish()
    said = capsys.readouterr().err
    assert said == (
        "spotctl: standard output: Broken pipe; nothing more is written there, and the job goes on\n"
    )


def test_chatter_that_cannot_be_written_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as stream, redirect_stderr(stream):
        screen.note("one", "two")
        screen.tell("three")
        screen.event("still there")
        screen.finish()
    assert capsys.readouterr().out == "still there\n"


def test_events_wait_for_their_reader_and_nobody_for_the_events() -> None:
    reader, writer = os.pipe()
    events = [f"event {number} {'.' * 1000}" for number in range(1000)]
    with os.fdopen(writer, "w") as stream, redirect_stdout(stream), os.fdopen(reader) as read:
        for event in events:
            screen.event(event)  # the first 64 find room
        assert [read.readline().rstrip("\n") for _ in events] == events
        screen.finish()
