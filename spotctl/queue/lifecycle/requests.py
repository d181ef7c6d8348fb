"""Keeps the requests to a queue: lines of a file that any process may append to, numbered from 1.

A line that cannot be read, because it is damaged or from another version, is reported. The others still
count.
"""

from __future__ import annotations

import fcntl
import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from agileml.node.programs.jsonl_log import JsonlReader, JsonlWriter
from spotctl.errors import LedgerError
from spotctl.queue.spec import Member, parse_member
from spotctl.records.codec import from_json, to_json
from spotctl.records.ledger import sync_folder


@dataclass(frozen=True, slots=True)
class Request:
    """Requests to add ``member`` (as JSON) under the name ``job``; or to remove ``job``, if that is ""."""

    job: str
    member: str = ""


@dataclass(frozen=True, slots=True)
class UnreadableRequest:
    """Locates a line that cannot be read, and says why."""

    file: Path
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: what was asked for here cannot be read ({self.why})"


RequestLine: TypeAlias = Request | UnreadableRequest


@dataclass(frozen=True, slots=True)
class RequestFile:
    """Reads and appends to the file ``path``; its folder must exist."""

    path: Path

    def append_request(self, request: Request, handled: int) -> None:
        """Appends a request, with a number above ``handled`` even if the file was lost. Raises OSError."""
        # A lock of its own: two users may append at once, and the queue's lock is held while it runs.
        with self.path.with_name("requests.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with closing(JsonlWriter(self.path, durable=True)) as box:
                while box.sent < handled:
                    box.send({})  # the lost file used its number
                box.send(to_json(request))
                sync_folder(self.path.parent)

    def requests_after(self, number: int) -> tuple[tuple[int, RequestLine], ...]:
        """Returns requests with a number above ``number``. Raises LedgerError if the file cannot be read."""
        try:
            return tuple(
                (n, self._parse_line(n, line)) for n, line in JsonlReader(self.path, number).read_lines()
            )
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be read: {error}") from error

    def parse_added(self, number: int, request: Request) -> Member:
        """Returns the job that a request adds. Raises LedgerError if this version cannot read it."""
        try:
            member = parse_member(request.member)
        except LedgerError as error:
            raise LedgerError(f"{self.path}:{number}: {request.job} cannot be added: {error}") from error
        if member.name != request.job:
            raise LedgerError(
                f"{self.path}:{number}: {request.job} cannot be added: it is called {member.name}"
            )
        return member

    def _parse_line(self, number: int, line: bytes) -> RequestLine:
        try:
            return from_json(Request, json.loads(line))
        except (ValueError, TypeError) as error:
            return UnreadableRequest(self.path, number, str(error))
