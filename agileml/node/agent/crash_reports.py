"""Finds out from logs why a machine's processes died over and over.

A training whose application fails loses one machine after the other by it, and finally fails for want of
machines. The user needs to read the error instead.
"""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path
from typing import Final

_GAVE_UP: Final = re.compile(r"gave up: (\w+) died (\d+) times in a row")
_TRACEBACK: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(r'  File "(.+)", line (\d+), in ')
_READ_BYTES: Final = 2**16
"""How much of a log's end is read: a traceback is shorter."""
_OURS: Final = str(Path(__file__).parents[2])
_PYTHONS: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def format_give_up(role: str, deaths: int) -> str:
    """Returns the agent's message about a role that it does not start any more."""
    return f"gave up: {role} died {deaths} times in a row"


def describe_last_death(machines: Path) -> str | None:
    """Returns the machine that was given up last, which of its processes died, and its last error, in a line.

    ``machines``: the folder of the machines' folders. None where none was given up.
    """
    found = [
        (log, given_up)
        for log in machines.glob("*/agent.log")
        if (given_up := _GAVE_UP.search(_read_tail(log)))
    ]
    if not found:
        return None
    log, given_up = max(found, key=lambda pair: pair[0].stat().st_mtime)
    error = find_last_error(_read_tail(log.with_name(f"{given_up[1]}.log")))
    because = "without saying why" if error is None else f"last of {error}"
    return f"the {given_up[1]} of {log.parent.name} died {given_up[2]} times in a row, {because}"


def find_last_error(log: str) -> str | None:
    """Returns the last exception of a log and its place, in a line: in the author's
    file where there is one.
    """
    _, found, rest = log.rpartition(_TRACEBACK)
    if not found:
        return None
    lines = rest.splitlines()[1:]
    frames = [(frame[1], frame[2]) for line in lines if (frame := _FRAME.match(line))]
    error = next((line for line in lines if line and not line.startswith(" ")), None)
    if error is None or not frames:
        return error
    # The innermost frame is often in NumPy; the author wants to know which line of theirs called it.
    theirs = [(file, line) for file, line in frames if not file.startswith((_OURS, "<", *_PYTHONS))]
    file, line = (theirs or frames)[-1]
    return f"{error} ({file}, line {line})"


def _read_tail(log: Path) -> str:
    """Returns the end of a log; empty where there is no such file."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _READ_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
