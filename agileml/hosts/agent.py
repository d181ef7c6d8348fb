"""The agent of one machine: starts its roles, starts them again, and ends them with itself.

``python -m agileml.hosts.agent FOLDER MACHINE CORES LOCK [controller]``, in a process session of its own.
Every process of the machine inherits the open lock file LOCK, so the lock is free exactly when all of them
are gone. The agent lives by lease: without a word from the controller it ends, and so does the machine.
Lives without NumPy, to be up quickly.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zmq

from agileml.events import MachineLost, ServerLost, WorkerLost
from agileml.hosts.job import JobFolder
from agileml.hosts.sockets import ControlEnd
from agileml.telemetry import EndMachine

_MOST_DEATHS: Final = 5
"""In a row, each within ``_SHORT_LIFE_S``: then the machine is given up."""
_SHORT_LIFE_S: Final = 10.0


@dataclass(slots=True)
class _Role:
    process: subprocess.Popen[bytes]
    incarnation: int
    started_at: float
    deaths: int


class Agent:
    def __init__(
        self, folder: JobFolder, machine: str, cores: int, lock: int, roles: tuple[str, ...]
    ) -> None:
        self._folder = folder
        self._machine = machine
        self._cores = cores
        self._lock = lock
        self._timing = folder.job().timing
        group = folder.machine(machine) / "group"
        group.with_suffix(".part").write_text(str(os.getpgrp()))
        group.with_suffix(".part").replace(group)  # whoever kills the machine reads it whole, or not yet
        self._poller = zmq.Poller()
        self._roles = {role: self._start(role, incarnation=1, deaths=0) for role in roles}
        self._context = zmq.Context(1)
        endpoint = folder.controller_endpoint()
        self._control = ControlEnd(self._context, endpoint, f"agent/{machine}", self._timing.repeat_s)
        self._poller.register(self._control.socket, zmq.POLLIN)

    def run(self) -> int:
        """Until the controller says so, has ended, or was silent for a lease. Returns an exit status."""
        status = None
        while status is None:
            self._control.flush()
            self._poller.poll(self._control.wait_ms())
            words = tuple(self._control.receive())
            self._control.confirm()
            if any(isinstance(word, EndMachine) for word in words) and "controller" not in self._roles:
                status = 0
            elif time.monotonic() - self._control.heard_at > self._timing.lease_s:
                self._folder.remove_sockets()
                status = 1
            else:
                status = self._watch_roles()
        self._control.flush()
        for role in self._roles.values():
            self._end_role(role)
        self._context.destroy(linger=100)
        return status

    def _watch_roles(self) -> int | None:
        """Start again what died; an exit status when the machine is to end."""
        for name, role in tuple(self._roles.items()):
            code = role.process.poll()
            if code is None:
                continue
            self._end_role(role)
            if name == "controller" and code == 0:
                self._folder.remove_sockets()
                return 0
            short = time.monotonic() - role.started_at < _SHORT_LIFE_S
            deaths = role.deaths + 1 if short else 1
            if deaths >= _MOST_DEATHS:
                print(f"gave up: {name} died {deaths} times in a row; see {name}.log", file=sys.stderr)
                if name == "controller":
                    return 1
                self._give_up()
                return None
            if name != "controller":
                lost = ServerLost if name == "server" else WorkerLost
                self._control.tell(lost(self._machine, role.incarnation))
            self._roles[name] = self._start(name, role.incarnation + 1, deaths)
        return None

    def _give_up(self) -> None:
        """Declare the machine lost, and wait for the controller to end it (as it will end itself)."""
        for name in self._roles.keys() - {"controller"}:
            self._end_role(self._roles.pop(name))
        self._control.tell(MachineLost(self._machine))

    def _end_role(self, role: _Role) -> None:
        """Harmless when repeated, or when it ended by itself."""
        if role.process.stdin in self._poller:
            self._poller.unregister(role.process.stdin)
        role.process.kill()
        role.process.wait()

    def _start(self, role: str, incarnation: int, deaths: int) -> _Role:
        arguments = [role, str(self._folder.path), self._machine, str(incarnation), str(self._cores)]
        with (self._folder.machine(self._machine) / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "agileml.hosts.roles", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(self._lock,),
            )
        # Its end breaks the pipe to its standard input, which wakes the agent.
        self._poller.register(process.stdin, zmq.POLLERR)
        return _Role(process, incarnation, time.monotonic(), deaths)


def main(folder: str, machine: str, cores: str, lock: str, *more: str) -> int:
    return Agent(JobFolder(Path(folder)), machine, int(cores), int(lock), ("server", "worker", *more)).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
