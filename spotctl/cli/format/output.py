"""Writes output: data to standard output, chatter to standard error, colour only for people."""

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

    from spotctl.cli.format.text_tables import TextTable

_PLAIN_WIDTH: Final = 160
_LOOK_EVERY_S: Final = 0.1


def for_people() -> bool:
    """Tells whether a person reads: a terminal that takes colour and redrawing, on both streams."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and sys.stderr.isatty() and not plain


def can_ask() -> bool:
    """Tells whether a person can answer a question."""
    # Questions go to standard error, as standard output may be a pipe.
    return sys.stdin.isatty() and sys.stderr.isatty()


def show_picture(picture: RenderableType) -> None:
    """Draws on standard output; plain text unless a person reads."""
    from rich.console import Console

    if for_people():
        from spotctl.cli.format.narrow_tables import fit_to_width

        console = Console(markup=False, highlight=False)
        console.print(fit_to_width(picture, console.width))
    else:
        write_data(render_text(picture))


def show_rows(rows: TextTable) -> None:
    """Writes a table of many rows to standard output; within its width where that is a terminal."""
    if for_people():
        write_data(rows.to_text(shutil.get_terminal_size().columns, styled=True))
    else:
        write_data(rows.to_text())


def render_text(picture: RenderableType) -> str:
    """Renders a picture without colour, wide enough that nothing is cut, and without trailing spaces."""
    from rich.console import Console

    from spotctl.cli.format.narrow_tables import least_width

    # A fixed width: what a script or a mail shows must not depend on the terminal it began in.
    width = max(_PLAIN_WIDTH, least_width(picture))
    console = Console(markup=False, highlight=False, color_system=None, width=width)
    with console.capture() as capture:
        console.print(picture)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def stderr_console() -> Console:
    """Returns a console on standard error, for what is redrawn in place."""
    from rich.console import Console

    return Console(stderr=True, markup=False, highlight=False)


def write_data(text: str) -> None:
    """Writes data to standard output, at once: another program may be reading line by line."""
    print(text, flush=True)


def write_event(text: str) -> None:
    """Writes a line of a run to standard output. If its reader is gone the run goes on all the same."""
    if (why := _write_line(text, sys.stdout)) is not None:
        write_note(f"spotctl: standard output: {why}; nothing more is written there, and the job goes on")


def write_note(*lines: str) -> None:
    """Writes chatter to standard error, as long as that is possible."""
    for line in lines:
        _write_line(line, sys.stderr)


def _write_line(line: str, stream: TextIO | None) -> str | None:
    """Writes ``line``; returns why that failed, after which ``stream`` leads nowhere, or None.

    A file is written past the stream's own buffer: a thread that waits for a reader would keep that locked,
    and the program could not end.
    """
    if stream is None:  # Python's value where the program began with the stream closed
        return None
    try:
        number = stream.fileno()
    except io.UnsupportedOperation:
        print(line, file=stream)
        return None
    try:
        # What ``print`` left in the buffer has to come first.
        stream.flush()
        # Part of a line may be written when a pipe is full, so the rest is written again.
        left = f"{line}\n".encode(stream.encoding, "replace")
        while left:
            left = left[os.write(number, left) :]
    except OSError as error:
        # Later writes to the closed reader would fail one after the other, or raise SIGPIPE.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
        return error.strerror or str(error)
    return None


def ask_choice(question: str, answers: Mapping[str, str], withdrawn: Event) -> str | None:
    """Asks a question until a key of ``answers`` is typed; an empty line is the first of them.

    Returns None at the end of input, and once it is ``withdrawn``. Any thread may call it.
    """
    write_note(question)
    for key, meaning in answers.items():
        write_note(f"  {key}  {meaning}")
    while True:
        print(f"[{'/'.join(answers)}] ", end="", file=sys.stderr, flush=True)
        typed = _read_line(withdrawn)
        # An empty line has its newline; nothing at all is the end of input, or a withdrawn question.
        if not typed:
            write_note("")
            return None
        if (key := typed.strip() or next(iter(answers))) in answers:
            return key
        write_note(f"found {key!r}, expected one of {', '.join(answers)}")


def _read_line(withdrawn: Event) -> str:
    """Reads a line that a person types; empty at the end of input, and once it is withdrawn."""
    while not withdrawn.is_set():
        try:
            # Polled, as ``readline`` alone could not be interrupted when the question is withdrawn.
            if not select.select([sys.stdin], [], [], _LOOK_EVERY_S)[0]:
                continue
            if has_terminal():  # otherwise the shell reads what is typed
                return sys.stdin.readline()
            withdrawn.wait(_LOOK_EVERY_S)
        except (OSError, ValueError):  # the terminal is gone
            return ""
    return ""
