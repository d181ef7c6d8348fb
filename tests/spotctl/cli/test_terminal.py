"""At a terminal: the question before anything starts, and what Ctrl-C does to it."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.spotctl.cli.commandline import JOB

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
SPOTCTL = "from spotctl.cli.app import main; main()"
AT_A_TERMINAL = """
import os, pty, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever runs the tests may ignore it, and a terminal does not
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
"""
REACTION_S = 0.3
PATIENCE_S = 120
"""Longest silence of a command that is not waiting for an answer."""
ASKING = """
import os, signal, sys, time
from pathlib import Path
from spotctl.records.background import fork_behind
from spotctl.cli.watch.observers import RunLogLines, Screen
from spotctl.session.interrupts import Interrupts
from spotctl.records.ledger import Ledger
front = fork_behind(7)
asked, turns, kind = [], 0, sys.argv[1]
with (Screen("600x real time", front) if kind == "screen" else RunLogLines(front)) as watcher:
    interrupts = Interrupts(Ledger.in_memory(), watcher)
    left, watcher.leave_terminal = [], lambda why: (left.append(why), front.release_front(as_wanted=False))
    with interrupts.catch_signals():
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            asked = [ask.value for ask in interrupts()]
            turns += 1
            time.sleep(0.01)
            if not interrupts.is_asking:
                break
Path("answered").write_text(" ".join(asked + left) or "continue")
assert turns > 20, "the run went on while somebody was asked"
"""
WATCHING = """
from threading import Event
from spotctl.cli.watch.observers import Screen
from tests.spotctl.cli.story import told
with Screen("600x real time") as watcher:
    for state, entry in list(told())[:8]:
        watcher.on_entry(state, entry)
    watcher._live.refresh()
    answer = watcher.ask_interrupt(Event())
    watcher._live.refresh()
print("answered", answer)
"""
HANGING_UP = """
import signal, sys, time
from pathlib import Path
from spotctl.session.interrupts import handle_signals
heard = []
with handle_signals(heard.append):
    print("listening", flush=True)
    while not heard:
        time.sleep(0.01)
    print("to nobody", flush=True)
    print("to nobody", file=sys.stderr, flush=True)
    assert not sys.stdin.readline()
Path(sys.argv[1]).write_text(" ".join(signal.Signals(number).name for number in heard))
"""
CTRL_C = "\x03"


class Terminal:
    """The command at a terminal of its own. ``written``: all it has written; ``shown``: without colours."""

    def __init__(self, folder: Path, program: str, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPOTCTL_HOME": str(folder / "home")}
        environment |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
        environment.pop("NO_COLOR", None)
        self._process = subprocess.Popen(
            [sys.executable, "-c", AT_A_TERMINAL, sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=environment,
        )
        self.shown = self.written = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def until(self, text: str) -> Self:
        """Read until ``text`` was shown: a view that goes on and on is waited for no longer than silence."""
        by = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < by, (
                f"{text!r} was not shown within {PATIENCE_S} s:\n{self.shown[-4000:]}"
            )
            assert self._read(), f"it ended without showing {text!r}:\n{self.shown}"
        return self

    def type(self, text: str) -> Self:
        """As a person would: not in the very instant before the command begins to listen."""
        time.sleep(REACTION_S)
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()
        return self

    def end(self) -> int:
        """Read on until the command ends; its exit code."""
        while self._read():
            pass
        return self._process.wait()

    def _read(self) -> bool:
        assert self._process.stdout is not None
        heard, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        assert heard, f"it said nothing for {PATIENCE_S} s:\n{self.shown}"
        text = os.read(self._process.stdout.fileno(), 65536).decode(errors="replace")
        self.written += text
        self.shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "")
        return bool(text)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A launch in the replay world, about to ask whether to start."""
    (tmp_path / "nightly.yaml").write_text(JOB)
    (tmp_path / "ratings.csv").write_text("1,1,3.0\n")
    with Terminal(tmp_path, SPOTCTL, "launch", "nightly.yaml", "--world", "replay") as opened:
        yield opened.until("Start it? [y/N]: ")


def test_the_plan_is_shown_before_the_question_and_no_starts_nothing(
    terminal: Terminal, tmp_path: Path
) -> None:
    assert "expected cost" in terminal.shown
    assert "reads ratings.csv (without a header" in terminal.shown
    assert terminal.type("n\n").end() == 3
    assert "not started" in terminal.shown
    assert not (tmp_path / "home").exists()


def test_ctrl_c_at_the_question_is_130(terminal: Terminal, tmp_path: Path) -> None:
    assert terminal.type(CTRL_C).end() == 130
    assert "interrupted; nothing was started" in terminal.shown
    assert not (tmp_path / "home").exists()


def test_yes_runs_the_job_and_shows_the_bill(terminal: Terminal) -> None:
    assert terminal.type("y\n").end() == 0
    assert "nightly             the work is done" in terminal.shown
    assert "cheapest on demand" in terminal.shown


@pytest.mark.parametrize(
    ("kind", "typed", "answer", "code"),
    [
        ("screen", "g\n", "continue", 0),
        ("screen", "\n", "continue", 0),
        ("screen", "c\n", "cancel", 0),
        ("screen", "d\n", "down", 0),
        ("screen", "l\n", "it was left running", 7),
        ("screen", CTRL_C, "cancel", 0),
        ("plain", "g\n", "continue", 0),
        ("plain", CTRL_C, "cancel", 0),
    ],
)
def test_what_can_be_answered_to_ctrl_c(
    tmp_path: Path, kind: str, typed: str, answer: str, code: int
) -> None:
    """A second Ctrl-C while being asked is a graceful cancel; an empty line goes on."""
    with Terminal(tmp_path, ASKING, kind) as terminal:
        terminal.until("[g/c/d/l] ").type(typed)
        assert terminal.end() == code
    by = time.monotonic() + PATIENCE_S
    while not (tmp_path / "answered").exists():  # who was left running goes on behind
        assert time.monotonic() < by
        time.sleep(0.02)
    assert (tmp_path / "answered").read_text() == answer


def test_another_answer_is_asked_for_again(tmp_path: Path) -> None:
    with Terminal(tmp_path, ASKING, "screen") as terminal:
        terminal.until("[g/c/d/l] ").type("x\n").until("found 'x', expected one of g, c, d, l")
        assert terminal.type("c\n").end() == 0


def test_a_terminal_that_is_closed_is_heard_and_written_to_no_more(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    with Terminal(tmp_path, HANGING_UP, str(heard)) as terminal:
        terminal.until("listening")
    limit = time.monotonic() + PATIENCE_S
    while not (heard.exists() and heard.read_text()):
        assert time.monotonic() < limit, "what was at the terminal ended without a word"
        time.sleep(0.05)
    assert heard.read_text().split()[0] == "SIGHUP"


def test_what_ignores_a_closed_terminal_goes_on_ignoring_it() -> None:
    """As under nohup."""
    code = (
        "import os, signal\n"
        "from spotctl.session.interrupts import handle_signals\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "heard = []\n"
        "with handle_signals(heard.append):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "print([signal.Signals(number).name for number in heard])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['SIGTERM']"


def on_the_screen(written: str) -> list[str]:
    """What a terminal shows after this: of all that rich writes, cursors go up and lines are erased."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.startswith("\x1b") and part.endswith("A"):
            row = max(0, row - int(part[2:-1] or 1))
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith("\x1b") and part != "\r":
            lines[row] += part
    return lines


def test_after_going_on_the_view_stands_there_once(tmp_path: Path) -> None:
    with Terminal(tmp_path, WATCHING) as terminal:
        terminal.until("[g/c/d]")
        terminal.type("g\n")
        terminal.until("answered continue")
        headers = [line for line in on_the_screen(terminal.written) if "prices: " in line]
    assert len(headers) == 1, "\n".join(on_the_screen(terminal.written))
