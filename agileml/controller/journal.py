"""Records step by step what the elasticity controller received, and the rules by which it acted.

A restarted controller folds its journal, and so regains every message it ever sent under its old number.
Other rules would derive other messages from the same journal. A peer that confirmed the old message of a
number would then never receive the new one. So the first line identifies the rules, and a controller with
other rules refuses the journal.
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
    """Raised when a journal was written under other rules than those of its reader."""


CONTROLLER: Final = ("controller", "protocol", "sync", "node/tier.py", "node/transport/reliable_link.py")
"""The folders and modules below the package ``agileml`` that decide what the controller does."""


def hash_rules(package: Path = Path(__file__).parents[1]) -> str:
    """Returns the SHA-256 of the code that decides what follows from events (``CONTROLLER``)."""
    # Any change counts, even in a comment: no test could tell which changes affect no decision.
    found = hashlib.sha256()
    for part in CONTROLLER:
        path = package / part
        for module in sorted(path.rglob("*.py")) if path.is_dir() else (path,):
            found.update(str(module.relative_to(package)).encode() + b"\0" + module.read_bytes() + b"\0")
    return found.hexdigest()


class ControllerJournal:
    """Keeps a file of JSON lines: first the rules, then one line for each step."""

    def __init__(self, path: Path, rules: str) -> None:
        """Opens the journal. Raises OtherRules where its first line is not ``rules``."""
        text = path.read_text() if path.exists() else ""
        # The controller acts on a line only once all of it is written. So half a line had no effect yet, and
        # its senders repeat what it held.
        whole = text[: text.rfind("\n") + 1]
        head, *self._lines = whole.splitlines() or [json.dumps({"rules": rules})]
        if json.loads(head) != {"rules": rules}:
            raise OtherRules(
                f"{path} was written by another version of agileml than the installed one, which cannot "
                "continue from it. A job that keeps checkpoints restarts from the newest; any other job must "
                "be launched again"
            )
        self._file = path.open("a")
        # Otherwise the next line would be appended to half of one, and neither could be read.
        self._file.truncate(len(whole.encode()))
        if not whole:
            self._write_line(head)

    def __iter__(self) -> Iterator[tuple[Entry, ...]]:
        """Yields the entries of each recorded step, oldest first."""
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
        # No fsync: the journal must outlive this process only. Whatever takes the machine takes its disk too.
        self._file.flush()
