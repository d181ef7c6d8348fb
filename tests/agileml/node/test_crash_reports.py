"""Tests what the logs of machines say about why a training failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agileml.node.agent import crash_reports

BOOM = """Traceback (most recent call last):
  File "{ours}/hosts/training.py", line 123, in _process
    return self._app.process(shard, work.values, (work.shard, work.clock))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/mine.py", line {line}, in process
    raise RuntimeError("boom")
  File "{library}/numpy/linalg.py", line 9, in inv
    raise RuntimeError("boom")
RuntimeError: boom
"""
OURS = str(Path(crash_reports.__file__).parents[2])
LIBRARY = crash_reports._PYTHONS[0]


def machine(folder: Path, name: str, at_s: float, agent: str, **logs: str) -> None:
    (folder / name).mkdir()
    for role, text in {**logs, "agent": agent}.items():
        (folder / name / f"{role}.log").write_text(text)
    os.utime(folder / name / "agent.log", (at_s, at_s))


def boom(line: int) -> str:
    return BOOM.format(line=line, ours=OURS, library=LIBRARY)


def test_the_last_machine_that_was_given_up_says_what_its_process_died_of(tmp_path: Path) -> None:
    machine(
        tmp_path,
        "r1-1",
        3.0,
        crash_reports.format_give_up("worker", 5),
        worker=boom(7) + "some\n" + boom(8),
        server="",
    )
    machine(tmp_path, "s1-1", 2.0, crash_reports.format_give_up("server", 5), server=boom(9))
    machine(tmp_path, "s2-1", 4.0, "")
    told = "the worker of r1-1 died 5 times in a row, last of RuntimeError: boom (/home/me/mine.py, line 8)"
    assert crash_reports.describe_last_death(tmp_path) == told


def test_where_nobody_was_given_up_nothing_is_said(tmp_path: Path) -> None:
    assert crash_reports.describe_last_death(tmp_path / "none") is None
    machine(tmp_path, "s1-1", 1.0, "", worker=boom(1))
    assert crash_reports.describe_last_death(tmp_path) is None


def test_a_process_that_is_killed_says_nothing(tmp_path: Path) -> None:
    machine(tmp_path, "r1-1", 1.0, crash_reports.format_give_up("controller", 5))
    assert (
        crash_reports.describe_last_death(tmp_path)
        == "the controller of r1-1 died 5 times in a row, without saying why"
    )


def test_an_error_of_our_own_is_shown_where_it_was() -> None:
    ours = BOOM.format(line=1, ours=OURS, library=LIBRARY).replace("/home/me/mine.py", f"{OURS}/app.py")
    assert crash_reports.find_last_error(ours) == f"RuntimeError: boom ({LIBRARY}/numpy/linalg.py, line 9)"
    assert crash_reports.find_last_error("MemoryError\n") is None


def test_pythons_own_tracebacks_are_understood(tmp_path: Path) -> None:
    """The exception was raised while another was handled, and its message has two lines."""
    mine = tmp_path / "mine.py"
    mine.write_text("try:\n    {}[1]\nexcept KeyError:\n    raise ValueError('one\\ntwo')\n")
    ran = subprocess.run([sys.executable, mine], capture_output=True, text=True, check=False)
    assert crash_reports.find_last_error(ran.stderr) == f"ValueError: one ({mine}, line 4)"


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    machine(
        tmp_path,
        "r1-1",
        1.0,
        crash_reports.format_give_up("worker", 5),
        worker="x" * 200_000 + "\n" + boom(5),
    )
    told = crash_reports.describe_last_death(tmp_path)
    assert told is not None
    assert told.endswith("(/home/me/mine.py, line 5)")
