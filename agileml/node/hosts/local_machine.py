"""Looks for, signals and kills the processes of one machine of this computer.

Whether a machine lives is read from the lock file in its folder, which all its roles hold open: process ids
are reused, locks are not. Whatever else a machine started carries its mark.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from agileml.node.agent import process_tree
from agileml.node.hosts.nominal_time import LifeBound, LifeRecord

_GONE_WITHIN_S: Final = 10.0
"""The time that processes have to go after SIGKILL: a busy computer takes long to free their memory."""


class LocalMachine:
    """The processes of a machine. ``agent``: its first process, if this process started it."""

    def __init__(self, folder: Path, agent: subprocess.Popen[bytes] | None = None) -> None:
        self._folder = folder
        self._agent = agent

    @property
    def is_alive(self) -> bool:
        """Whether the agent or any role is left."""
        place = self._folder / "lock"
        if not place.exists():
            return False
        with place.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several processes may look at once
            except BlockingIOError:
                return True
        if self._agent is not None:
            self._agent.wait()  # short: without the lock it is about to exit, or has
        return False

    @property
    def has_processes(self) -> bool:
        """Whether anything is left that the machine started."""
        return self.is_alive or process_tree.any_left(str(self._folder))

    @property
    def process_group(self) -> int | None:
        """The number of the process group; None before the agent of another process recorded it."""
        if self._agent is not None:
            return self._agent.pid
        record = self._folder / "group"
        return int(record.read_text()) if record.exists() else None

    def read_life(self) -> LifeRecord | None:
        """Returns what the machine recorded of its life; None before its first record."""
        return LifeRecord.read_record(self._folder)

    def request_end(self, at: float) -> None:
        """Requests the agent to end the machine at the nominal moment ``at``, and to record that."""
        LifeBound(self._folder).write(at)
        group = self.process_group
        # An agent without a record does not handle SIGTERM yet, and would end without one.
        if group is not None and self.read_life() is not None and self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(group, signal.SIGTERM)

    def kill(self) -> None:
        """Kills all processes, and returns when they are gone. Raises TimeoutError if one survives."""
        until = time.monotonic() + _GONE_WITHIN_S
        # More than once: a process may fork while the others are being killed.
        while self.is_alive or process_tree.signal_all(signal.SIGKILL, str(self._folder)):
            if time.monotonic() > until:
                name = self._folder.name
                raise TimeoutError(f"processes of {name} survived SIGKILL for {_GONE_WITHIN_S} s")
            self.send_signal(signal.SIGKILL)
            time.sleep(0.005)

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal to all processes of the machine, if it lives."""
        group = self.process_group
        # While the machine lives, the number of its group belongs to no other process.
        if group is not None and self.is_alive:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.killpg(group, number)
            process_tree.signal_all(number, str(self._folder))
