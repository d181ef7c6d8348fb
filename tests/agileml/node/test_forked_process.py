"""A forked child, in programs of one thread; and what a machine's roles make of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from agileml.node.agent.forked_process import FORK_IS_SAFE
from tests.agileml.processes.real_jobs import running_job

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not FORK_IS_SAFE, reason="nothing is forked on this system"),
]

_BEGIN = """
import os, sys, time
from agileml.node.agent.forked_process import ForkedProcess
nothing = os.open(os.devnull, os.O_RDONLY)
"""


def told(program: str, folder: Path) -> str:
    """Runs a program that forks and returns its output; its standard error goes to a file."""
    with (folder / "errors").open("wb") as errors:
        ran = subprocess.run(
            [sys.executable, "-c", _BEGIN + dedent(program)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=60,
            check=True,
        )
    return ran.stdout


def test_a_child_ends_with_its_function_and_is_told_apart_by_how(tmp_path: Path) -> None:
    said = told(
        """
        def fails(): raise ValueError("of the child")
        def lives(): time.sleep(60)
        print("once", end="")
        done, failed, alive = (ForkedProcess(run, nothing) for run in (int, fails, lives))
        print(done.wait(), failed.wait(), alive.poll())
        alive.kill()
        print(alive.wait(), alive.poll())
        alive.kill()
        """,
        tmp_path,
    )
    assert said == f"once0 1 None\n{-signal.SIGKILL} {-signal.SIGKILL}\n"
    assert "ValueError: of the child" in (tmp_path / "errors").read_text()


def test_it_has_the_files_that_it_was_given_and_no_others(tmp_path: Path) -> None:
    """Another child's standard input, kept open here, would hide from that one that the parent is gone."""
    said = told(
        f"""
        asked, answered = os.pipe()
        os.write(answered, b"heard")
        kept = os.dup(nothing)
        os.dup2(nothing, 99)
        out = os.open({str(tmp_path / "out")!r}, os.O_WRONLY | os.O_CREAT)

        def look():
            print("heard", sys.stdin.readline(5))
            print(*(number for number in range(200) if is_open(number)), "with", kept)
            print("an error", file=sys.stderr)

        def is_open(number):
            try:
                return bool(os.fstat(number))
            except OSError:
                return False

        print(ForkedProcess(look, asked, out, [kept]).wait())
        """,
        tmp_path,
    )
    assert said == "0\n"
    error, heard, opened = sorted((tmp_path / "out").read_text().splitlines(), key=len)
    assert (error, heard) == ("an error", "heard heard")
    files, kept = opened.split(" with ")
    assert files == f"0 1 2 {kept}"


def test_roles_are_forks_of_their_agent_at_first_and_programs_of_their_own_when_started_again(
    tmp_path: Path,
) -> None:
    with running_job(tmp_path) as job:
        job.train_on("r1", "t1")
        roles = {role: job.playing(role, "t1") for role in ("agent", "worker", "server")}
        assert [program(number) for (number,) in roles.values()] == 3 * ["agileml.role_agent"]
        job.kill_role("worker", "t1")
        while not (again := set(job.playing("worker", "t1")) - set(roles["worker"])):
            job.listen(0.05)
        assert program(*again) == "agileml.roles"


def program(process: int) -> str:
    """Returns the program that was started; the process may be a fork of it."""
    return Path(f"/proc/{process}/cmdline").read_text().split("\0")[2]
