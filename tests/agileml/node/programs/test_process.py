"""One program with its descendants: what reaches its log, and that all of it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from agileml.node.programs.process import ProgramProcess

pytestmark = pytest.mark.process

Start = Callable[..., ProgramProcess]
NAMES = iter(range(10_000))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[ProgramProcess] = []

    def starter(command: str, secrets: Mapping[str, str] | None = None) -> ProgramProcess:
        name = f"{tmp_path}/{next(NAMES)}"
        known = secrets or {}
        variables = {**os.environ, **known}
        begun.append(ProgramProcess(name, command, tmp_path, variables, tmp_path / "program.log", known))
        return begun[-1]

    yield starter
    for program in begun:
        program.kill()
        program.close()


def command_of(place: Path) -> bytes:
    try:
        return (place / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def finished(program: ProgramProcess) -> int:
    until = time.monotonic() + 60
    while program.is_running:
        assert time.monotonic() < until
        program.copy_output()
        time.sleep(0.01)
    program.close()
    assert program.status is not None
    return program.status


def test_what_it_writes_is_in_the_log_and_its_last_lines_are_known(start: Start, tmp_path: Path) -> None:
    program = start("for i in $(seq 30); do echo line $i; done; printf last >&2; exit 3")
    assert finished(program) == 3
    assert (tmp_path / "program.log").read_text().splitlines()[0] == "line 1"
    assert program.last_lines.splitlines() == [*(f"line {i}" for i in range(17, 31)), "last"]


def test_one_that_never_stops_writing_does_not_keep_its_agent(start: Start, tmp_path: Path) -> None:
    """The program writes like ``yes``, but ends after the minutes that its lines take to be read."""
    program = start("yes | head -c 50000000")
    until = time.monotonic() + 60
    while not (tmp_path / "program.log").stat().st_size:
        assert time.monotonic() < until
        program.copy_output()
    assert program.is_running
    program.kill()
    program.close()
    assert set(program.last_lines.splitlines()) == {"y"}


@pytest.mark.parametrize(
    "command",
    [
        'echo "key=$TOKEN;"',
        'printf "%s" "${TOKEN:0:4}"; sleep 0.1; printf "%s\\n" "${TOKEN:4}"',
        'head -c 200000 /dev/zero | tr "\\0" x; printf "$TOKEN"; head -c 200000 /dev/zero | tr "\\0" y',
        'echo "$TOKEN" >&2; exit 1',
        'echo "$KEYS" | tail -1',
    ],
)
def test_no_secret_reaches_the_log(command: str, start: Start, tmp_path: Path) -> None:
    secrets = {"TOKEN": "hunter2-very-secret", "KEYS": "-----BEGIN\nQUJDREVGRw"}
    program = start(command, secrets)
    finished(program)
    text = (tmp_path / "program.log").read_text()
    for value in ("hunter2-very-secret", "QUJDREVGRw"):
        assert value not in text
        assert value not in program.last_lines
    assert "[TOKEN]" in text or "[KEYS]" in text


def test_what_left_its_group_is_ended_too(start: Start) -> None:
    """A daemon in a session of its own, which its shell does not wait for."""
    program = start("setsid sleep 100123 > /dev/null 2>&1 & setsid sh -c 'sleep 100124; true' & sleep 0.2")
    time.sleep(0.1)
    program.kill()
    assert not [place for place in Path("/proc").glob("[0-9]*") if b"sleep\x0010012" in command_of(place)]


def test_a_signal_reaches_whatever_the_shell_started(start: Start, tmp_path: Path) -> None:
    """The shell may end at once; the program counts as running until its children are done."""
    stubborn = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo up; while true; do sleep 0.05; done"
    program = start(f'bash -c "{stubborn}"; true')
    while "up" not in (tmp_path / "program.log").read_text():
        program.copy_output()
        time.sleep(0.01)
    program.terminate()
    finished(program)
    assert (tmp_path / "program.log").read_text().splitlines()[-1] == "saved"
