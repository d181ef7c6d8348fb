"""Whoever reads what a run writes may take his time, or go away: the run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout

import pytest

from spotctl.cli.format import output
from spotctl.cli.watch.line_writer import LineWriter


def test_events_that_nobody_reads_end_nothing_and_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream, redirect_stdout(stream):
        for number in range(3):
            output.write_event(f"event {number}")
    said = capsys.readouterr().err
    assert said == (
        "spotctl: standard output: Broken pipe; nothing more is written there, and the job goes on\n"
    )


def test_chatter_that_cannot_be_written_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as stream, redirect_stderr(stream):
        output.write_note("one", "two")
        output.write_event("still there")
    assert capsys.readouterr().out == "still there\n"


def test_lines_wait_for_their_reader_and_nobody_for_the_lines() -> None:
    reader, writer = os.pipe()
    events = [f"event {number} {'.' * 1000}" for number in range(1000)]
    with (
        os.fdopen(writer, "w") as stream,
        redirect_stdout(stream),
        os.fdopen(reader) as read,
        LineWriter() as lines,
    ):
        for event in events:
            lines.put_line(output.write_event, event)  # the first 64 find room
        assert [read.readline().rstrip("\n") for _ in events] == events


@pytest.mark.process
def test_ctrl_c_ends_the_wait_for_a_reader_and_says_that_the_run_is_over() -> None:
    """A process of its own, which must be able to end though a thread of it is still writing."""
    program = """
import sys
from spotctl.cli.format import output
from spotctl.cli.watch.line_writer import LineWriter
from spotctl.errors import Interrupted
try:
    with LineWriter() as lines:
        for _ in range(100):
            lines.put_line(output.write_event, "." * 1000)
        print("waits", file=sys.stderr, flush=True)
except Interrupted as told:
    print(told, file=sys.stderr)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "waits\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "the run is over; nobody has read all that was told of it\n"
        assert process.wait(30) == 0


def test_a_program_without_standard_output_goes_on() -> None:
    with redirect_stdout(None):
        output.write_event("to nobody")
