"""Where output goes: data to standard output, chatter to standard error, colour only for people."""

from __future__ import annotations

import io
import os
import select
import shutil
import sys
from typing import TYPE_CHECKING, Final, TextIO

from spotctl.records.background import has_terminal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from threading import Event

    from rich.console import Console, RenderableType

    from spotctl.cli.format.text_tables import Rows

_PLAIN_WIDTH: Final = 160
_LOOK_EVERY_S: Final = 0.1


def for_people() -> bool:
    """Whether somebody looks: a terminal that takes colour and redrawing, on both streams."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and sys.stderr.isatty() and not plain


def can_ask() -> bool:
    """Whether a question can be put to somebody."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def show(picture: RenderableType) -> None:
    """Draw on standard output; plain text when nobody looks."""
    from rich.console import Console

    if for_people():
        from spotctl.cli.format.narrow_tables import fitting

        console = Console(markup=False, highlight=False)
        console.print(fitting(picture, console.width))
    else:
        data(text(picture))


def show_rows(rows: Rows) -> None:
    """Write a table of many rows to standard output; within its width where that is a terminal."""
    if for_people():
        data(rows.text(shutil.get_terminal_size().columns, styled=True))
    else:
        data(rows.text())


def text(picture: RenderableType) -> str:
    """A picture without colour, wide enough that nothing of it is cut, and without trailing spaces."""
    from rich.console import Console

    from spotctl.cli.format.narrow_tables import least_width

    width = max(_PLAIN_WIDTH, least_width(picture))
    console = Console(markup=False, highlight=False, color_system=None, width=width)
    with console.capture() as capture:
        console.print(picture)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def canvas() -> Console:
    """Standard error, for what is redrawn in place."""
    from rich.console import Console

    return Console(stderr=True, markup=False, highlight=False)


def data(text: str) -> None:
    """Write data to standard output, at once: another program may be reading line by line."""
    print(text, flush=True)


def event(text: str) -> None:
    """Write a line of a run to standard output. Nobody may read it any more: the run goes on all the same."""
    if (why := _written(text, sys.stdout)) is not None:
        note(f"spotctl: standard output: {why}; nothing more is written there, and the job goes on")


def note(*lines: str) -> None:
    """Write chatter to standard error, as long as it can be."""
    for line in lines:
        _written(line, sys.stderr)


def _written(line: str, stream: TextIO | None) -> str | None:
    """Why ``line`` could not be written; from then on ``stream`` leads nowhere. None where it was.

    A file is written to past the stream's own buffer: whoever waits for a reader would keep that locked, and
    the program could not end.
    """
    if stream is None:  # as Python has it where the program began with the stream closed
        return None
    try:
        number = stream.fileno()
    except io.UnsupportedOperation:
        print(line, file=stream)
        return None
    try:
        stream.flush()
        left = f"{line}\n".encode(stream.encoding, "replace")
        while left:
            left = left[os.write(number, left) :]
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
        return error.strerror or str(error)
    return None


def choose(question: str, answers: Mapping[str, str], withdrawn: Event) -> str | None:
    """Put a question until a key of ``answers`` is typed; an empty line is the first of them.

    None at the end of input, and once it is ``withdrawn``. May be called in any thread.
    """
    note(question)
    for key, meaning in answers.items():
        note(f"  {key}  {meaning}")
    while True:
        print(f"[{'/'.join(answers)}] ", end="", file=sys.stderr, flush=True)
        typed = _line(withdrawn)
        if not typed:
            note("")
            return None
        if (key := typed.strip() or next(iter(answers))) in answers:
            return key
        note(f"found {key!r}, expected one of {', '.join(answers)}")


def _line(withdrawn: Event) -> str:
    """A line that somebody types; empty at the end of input, and once nobody waits for it."""
    while not withdrawn.is_set():
        try:
            if not select.select([sys.stdin], [], [], _LOOK_EVERY_S)[0]:
                continue
            if has_terminal():  # else what is typed is the shell's
                return sys.stdin.readline()
            withdrawn.wait(_LOOK_EVERY_S)
        except (OSError, ValueError):  # the terminal is gone
            return ""
    return ""
