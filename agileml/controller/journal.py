"""Records step by step what the elasticity controller was told, and the rules by which it acted.

A restarted controller folds its journal, and so has every message it ever sent under its old number. Other
rules would make other messages of the same journal, and each peer would believe to know what it never heard.
So the first line identifies the rules, and no others read on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from agileml.controller.links import Entry
from agileml.protocol.wire import control_from_json, control_to_json


class OtherRules(Exception):
    """Raised when a journal was written by other rules than those that were to read it."""


CONTROLLER: Final = ("controller", "protocol", "sync", "node/tier.py", "node/transport/reliable_link.py")
"""The folders and modules below the package ``agileml`` that decide what the controller does."""


def hash_rules(package: Path = Path(__file__).parents[1]) -> str:
    """Returns the SHA-256 of all that decides what follows from events: ``CONTROLLER`` in ``package``.

    Any change counts, since nobody can say which one changes no decision.
    """
    found = hashlib.sha256()
    for part in CONTROLLER:
        path = package / part
        for module in sorted(path.rglob("*.py")) if path.is_dir() else (path,):
            found.update(str(module.relative_to(package)).encode() + b"\0" + module.read_bytes() + b"\0")
    return found.hexdigest()


class ControllerJournal:
    """A file of JSON lines: the rules, and then one line a step, which survives the death of the process
    before anybody acts on it.
    """

    def __init__(self, path: Path, rules: str) -> None:
        """Opens the journal. Raises OtherRules where others than ``rules`` wrote what is there."""
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a line that was being written was never acted on
        head, *self._lines = whole.splitlines() or [json.dumps({"rules": rules})]
        if json.loads(head) != {"rules": rules}:
            raise OtherRules(
                f"{path} was written by another version of agileml than is installed now, and what that made "
                "of it cannot be known. A job that keeps checkpoints begins again from the newest; another "
                "has to be launched again"
            )
        self._file = path.open("a")
        # Else the next line would be appended to the half of one.
        self._file.truncate(len(whole.encode()))
        if not whole:
            self._write_line(head)

    def __iter__(self) -> Iterator[tuple[Entry, ...]]:
        """Yields what was recorded before, step by step."""
        for line in self._lines:
            yield tuple(
                Entry(entry["peer"], entry["number"], control_from_json(entry["event"]))
                for entry in json.loads(line)
            )

    def record_step(self, entries: Sequence[Entry]) -> None:
        """Appends the entries that are acted on together."""
        line = [
            {"peer": entry.peer, "number": entry.number, "event": control_to_json(entry.event)}
            for entry in entries
        ]
        self._write_line(json.dumps(line))

    def close(self) -> None:
        self._file.close()

    def _write_line(self, line: str) -> None:
        self._file.write(line + "\n")
        # No fsync: the journal has to outlive this process. What takes the machine takes the controller's
        # disk too.
        self._file.flush()
