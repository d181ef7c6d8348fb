"""Runs one program with all its descendants: starts it, stops it, kills it, and logs its output.

A program is whatever a line of shell starts. It gets a process group of its own and a mark in its
environment, which finds processes that left the group. Secrets never reach the log: their names replace
their values, and also single lines of values with several lines.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agileml.node.agent import process_tree

VARIABLE: Final = "SPOTCTL_PROGRAM"
_LONGEST_LINE: Final = 1 << 16
_TAIL_LINES: Final = 15
_SHORTEST_PART: Final = 4
"""Characters. Shorter lines of a secret with several lines, such as a brace, occur in every log."""
_GONE_WITHIN_S: Final = 10.0
# A program that writes without end must not keep its agent from everything else.
_READ_FOR_S: Final = 0.1
"""The longest time to read output at once."""
# A process that still writes after the kill has hidden from us, and its pipe may never end.
_READ_AT_LAST_S: Final = 10.0
"""The same after the program has ended."""


class ProgramProcess:
    """A program, which runs from construction on. ``name`` is unique: it marks the program's processes."""

    def __init__(
        self,
        name: str,
        command: str,
        folder: Path,
        variables: Mapping[str, str],
        log: Path,
        secrets: Mapping[str, str],
    ) -> None:
        self._name = name
        self._log = log.open("ab")
        self._hidden = _secret_replacements(secrets)
        self._unfinished = b""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", command],
            cwd=folder,
            env={**variables, VARIABLE: name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        # The agent's loop never waits for output.
        os.set_blocking(self._output, False)

    @property
    def status(self) -> int | None:
        """The exit status of the shell, or 128 + the signal that ended it; None while it runs."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    @property
    def is_running(self) -> bool:
        """Whether any process of it is left, be it the shell or what the shell started."""
        return self._process.poll() is None or process_tree.any_left(self._name, VARIABLE)

    @property
    def last_lines(self) -> str:
        return "\n".join(self._tail)

    def terminate(self) -> None:
        """Requests the program to checkpoint and stop, by SIGTERM to its process group."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
        else:
            process_tree.signal_all(signal.SIGTERM, self._name, VARIABLE)

    def kill(self) -> None:
        """Kills all of it, and returns when nothing is left. Raises TimeoutError if a process survives."""
        until = time.monotonic() + _GONE_WITHIN_S
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        # Again until none carries the mark: a process may fork while the others are being killed.
        while self._process.poll() is None or process_tree.signal_all(signal.SIGKILL, self._name, VARIABLE):
            if time.monotonic() > until:
                raise TimeoutError(f"processes of {self._name} survived SIGKILL for {_GONE_WITHIN_S} s")
            time.sleep(0.005)

    def copy_output(self, within_s: float = _READ_FOR_S) -> None:
        """Moves the waiting output to the log, for at most ``within_s``; the next call moves the rest."""
        until = time.monotonic() + within_s
        with contextlib.suppress(BlockingIOError):
            while read := os.read(self._output, _LONGEST_LINE):
                self._log_complete_lines(read)
                if time.monotonic() > until:
                    break
        self._log.flush()

    def close(self) -> None:
        """Logs the rest of the output, after ``kill`` or the program's end. Harmless when repeated."""
        if self._log.closed:
            return
        self.copy_output(_READ_AT_LAST_S)
        if self._unfinished:
            self._log_line(self._unfinished)
            self._unfinished = b""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _log_complete_lines(self, read: bytes) -> None:
        """Logs complete lines only, so that no secret is cut in two; very long lines in pieces."""
        *lines, self._unfinished = re.split(rb"(?<=[\r\n])", self._unfinished + read)
        for line in lines:
            self._log_line(line)
        # The piece keeps back as many bytes as the longest secret has: it may end with a secret's beginning.
        if len(self._unfinished) > _LONGEST_LINE:
            safe = self._redact_secrets(self._unfinished)
            kept = max((len(value) for value, _ in self._hidden), default=1)
            self._log.write(safe[:-kept])
            self._unfinished = safe[-kept:]

    def _log_line(self, line: bytes) -> None:
        safe = self._redact_secrets(line)
        self._log.write(safe)
        if text := safe.decode(errors="replace").rstrip():
            self._tail.append(text)

    def _redact_secrets(self, line: bytes) -> bytes:
        for value, name in self._hidden:
            line = line.replace(value, name)
        return line


def _secret_replacements(secrets: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Returns each text to replace with its replacement, the longest first, as one may contain another."""
    found = {}
    for name, value in secrets.items():
        parts = [part for part in value.splitlines() if len(part.strip()) >= _SHORTEST_PART]
        for part in [value, *parts]:
            if part:
                found[part.encode()] = f"[{name}]".encode()
    return sorted(found.items(), key=lambda pair: -len(pair[0]))
