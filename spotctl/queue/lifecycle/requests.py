"""What is asked of a queue: lines of a file that any process may add to, numbered from 1.

A line that is no request of this version, because it was damaged or somebody else wrote it, asks for nothing
that could be done. It says so itself, and hides no other line.
"""

from __future__ import annotations

import fcntl
import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from agileml.node.programs.jsonl_log import Inbox, Outbox
from spotctl.control.codec import from_json, to_json
from spotctl.errors import LedgerError
from spotctl.queue.spec import Member, parse_member
from spotctl.records.ledger import sync_folder


@dataclass(frozen=True, slots=True)
class Request:
    """``member`` is to be added (as JSON), or ``job`` removed."""

    job: str
    member: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that cannot be read: in which file, and why."""

    file: Path
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: what was asked for here cannot be read ({self.why})"


Asked: TypeAlias = Request | Unreadable


@dataclass(frozen=True, slots=True)
class Requests:
    """The file ``path``, in a folder that exists."""

    path: Path

    def ask(self, request: Request, handled: int) -> None:
        """Add one, with a number above ``handled``, also where the file was lost. Raises OSError."""
        with self.path.with_name("requests.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with closing(Outbox(self.path, durable=True)) as box:
                while box.sent < handled:
                    box.send({})  # its number was used for what is lost
                box.send(to_json(request))
                sync_folder(self.path.parent)

    def after(self, number: int) -> tuple[tuple[int, Asked], ...]:
        """Those with a number above ``number``. Raises LedgerError where the file cannot be read at all."""
        try:
            return tuple((n, self._read(n, line)) for n, line in Inbox(self.path, number).lines())
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be read: {error}") from error

    def added(self, number: int, request: Request) -> Member:
        """The job that a request adds. Raises LedgerError where it is none of this version."""
        try:
            member = parse_member(request.member)
        except LedgerError as error:
            raise LedgerError(f"{self.path}:{number}: {request.job} cannot be added: {error}") from error
        if member.name != request.job:
            raise LedgerError(
                f"{self.path}:{number}: {request.job} cannot be added: it is called {member.name}"
            )
        return member

    def _read(self, number: int, line: bytes) -> Asked:
        try:
            return _request(json.loads(line))
        except (ValueError, TypeError) as error:
            return Unreadable(self.path, number, str(error))


def _request(line: Any) -> Request:
    request: Request = from_json(Request, line)
    if not isinstance(request.job, str) or not isinstance(request.member, str):
        raise TypeError("a job's name is text, and so is a job that is to be added")
    return request
