"""Runs the agent of one machine: it starts its roles, restarts them, and ends them with itself.

``python -m agileml.node.agent.supervisor FOLDER MACHINE CORES LOCK [controller]``, in a process session of
its own. Every process of the machine inherits the open lock file LOCK, so the lock is free exactly when all
of them are gone. The agent lives by lease: without a word from the controller it ends, and so does the
machine. Where the job has nominal time and nobody drives it, the agent also ends at the machine's bound, and
once the driver has been away for longer than the job allows (``nominal_time.py``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import zmq

from agileml import roles
from agileml.job import JobFolder
from agileml.node.agent.crash_reports import format_give_up
from agileml.node.agent.forked_process import FORK_IS_SAFE, ForkedProcess
from agileml.node.hosts.nominal_time import AgentLifetime, MachineEnded, raise_ended
from agileml.node.liveness import SilenceTimer
from agileml.protocol.endpoints import ControlEnd
from agileml.protocol.events import MachineLost, ServerLost, WorkerLost
from agileml.protocol.telemetry import EndMachine

ROLES: Final = ("server", "worker")
"""The roles of every machine."""
TAKEN: Final = 4
"""The exit status of a machine that ended itself, as its provider would have, or because nobody drove the
job.
"""
GAVE_UP: Final = 3
"""The exit status of a machine one of whose roles died over and over."""
_LINK: Final = "the controller's link"
"""The name under which the agent listens to the controller; its own role may be called "controller" too."""
_MOST_DEATHS: Final = 5
"""After so many deaths in a row, each after a short life, the machine is given up."""
_SHORT_LIFE_S: Final = 10.0
"""A life so short counts for a role that was killed, or hung."""
_SHORT_LIFE_TO_AN_ERROR_S: Final = 300.0
"""The same for a role that ended by an error of its own: it reads its input before it can meet the same error
again.
"""


@dataclass(slots=True)
class _Role:
    process: subprocess.Popen[bytes] | ForkedProcess
    incarnation: int
    started_at: float
    deaths: int
    pulse: socket.socket
    """The other end of its standard input."""


class RoleAgent:
    """Starts and watches the roles of one machine.

    ``inherited_files``: open files that all processes of the machine inherit. ``logs``: roles' output goes
    to files in the machine's folder; otherwise where the agent's own goes. ``forks``: this process has one
    thread, so that the roles may go on from what it has imported; those started again later never do.
    """

    def __init__(
        self,
        folder: JobFolder,
        machine: str,
        cores: int,
        plays: tuple[str, ...],
        inherited_files: tuple[int, ...] = (),
        *,
        logs: bool,
        forks: bool = False,
    ) -> None:
        self._folder = folder
        self._machine = machine
        self._cores = cores
        self._inherited_files = inherited_files
        self._logs = logs
        self._forks = forks
        if forks:
            roles.preload_roles()
        self._gave_up = False
        self._lifetime = AgentLifetime(folder.path, machine)
        self._timing = folder.read_job().timing
        self._poller = zmq.Poller()
        self._silence = SilenceTimer(time.monotonic(), 2 * self._timing.repeat_s, (_LINK,))
        self._roles = {role: self._start_role(role, incarnation=1, deaths=0) for role in plays}
        self._forks = False  # from now on there will be threads
        self._context = zmq.Context(1)
        self._control = ControlEnd(self._context, folder, f"agent/{machine}", self._timing.repeat_s)
        self._poller.register(self._control.socket, zmq.POLLIN)

    def run(self) -> int:
        """Runs until the controller ends it, is gone or silent for a lease, or the machine's time is up.

        Returns an exit status: ``GAVE_UP`` where a role died over and over.
        """
        status = None
        while status is None:
            self._control.flush()
            self._poller.poll(self._lifetime.limit_wait_ms(self._control.wait_ms()))
            awake_at = time.monotonic()
            self._silence.wake_up(awake_at)
            words = tuple(self._control.receive())
            self._control.confirm()
            if self._control.heard_at >= awake_at:
                self._silence.mark_heard(_LINK)
            if any(isinstance(word, EndMachine) for word in words) and "controller" not in self._roles:
                status = GAVE_UP if self._gave_up else 0
            # The job is over, or its controller is gone for good: nobody needs this machine.
            elif self._silence.silent_s(_LINK) > self._timing.lease_s:
                self._folder.remove_sockets()
                status = 1
            elif self._lifetime.is_over():
                self._control.queue_message(MachineLost(self._machine))
                status = TAKEN
            else:
                status = self._watch_roles()
        self.end_roles()
        self._control.flush(at_once=True)
        # The last word, such as that the machine is lost, may still be in the socket.
        self._context.destroy(linger=100)
        if status == TAKEN and "controller" in self._roles:
            self._folder.remove_sockets()  # nobody listens there any more
        return status

    def end_roles(self) -> None:
        """Ends all roles, and records when that was."""
        for role in self._roles.values():
            self._end_role(role)
        self._lifetime.record_end()

    def _watch_roles(self) -> int | None:
        """Restarts what died. Returns an exit status when the machine is to end."""
        for name, role in tuple(self._roles.items()):
            self._read_pulse(name, role)
            code = role.process.poll()
            if code is None and self._silence.silent_s(name) < self._timing.silence_s:
                continue
            self._end_role(role)
            if name == "controller" and code == 0:
                self._folder.remove_sockets()
                return 0
            deaths = deaths_in_a_row(role.deaths, time.monotonic() - role.started_at, code)
            if deaths >= _MOST_DEATHS:
                where = f"see {name}.log" if self._logs else "see what it printed"
                print(f"{format_give_up(name, deaths)}; {where}", file=sys.stderr)
                if name == "controller":
                    return 1
                self._give_machine_up()
                return None
            # The controller is not told of its own deaths: its journal brings it back.
            if name != "controller":
                lost = ServerLost if name == "server" else WorkerLost
                self._control.queue_message(lost(self._machine, role.incarnation))
            self._roles[name] = self._start_role(name, role.incarnation + 1, deaths)
        return None

    def _read_pulse(self, name: str, role: _Role) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while role.pulse.recv(64):
                self._silence.mark_heard(name)

    def _give_machine_up(self) -> None:
        """Declares the machine lost, and waits for the controller to end it (as it will end itself)."""
        for name in self._roles.keys() - {"controller"}:
            self._end_role(self._roles.pop(name))
        self._gave_up = True
        self._control.queue_message(MachineLost(self._machine))

    def _end_role(self, role: _Role) -> None:
        """Ends a role. Harmless when repeated, or when it ended by itself."""
        if role.pulse in self._poller:
            self._poller.unregister(role.pulse)
        role.pulse.close()
        role.process.kill()
        role.process.wait()

    def _start_role(self, role: str, incarnation: int, deaths: int) -> _Role:
        arguments = [role, str(self._folder.path), self._machine, str(incarnation), str(self._cores)]
        pulse, its_end = socket.socketpair()
        pulse.setblocking(False)
        process: subprocess.Popen[bytes] | ForkedProcess
        with self._open_log(role) as log, its_end:
            if self._forks:
                out = None if log is None else log.fileno()
                process = ForkedProcess(
                    partial(roles.main, *arguments), its_end.fileno(), out, self._inherited_files
                )
            else:
                process = subprocess.Popen(
                    [sys.executable, "-m", "agileml.roles", *arguments],
                    stdin=its_end.fileno(),
                    stdout=log,
                    stderr=log,
                    pass_fds=self._inherited_files,
                )
        self._poller.register(pulse, zmq.POLLIN)  # its end wakes the agent as well
        self._silence.mark_heard(role, self._timing.lease_s)  # a lease for its first sign of life
        return _Role(process, incarnation, time.monotonic(), deaths, pulse)

    def _open_log(self, role: str) -> AbstractContextManager[BinaryIO | None]:
        return (
            (self._folder.machine_folder(self._machine) / f"{role}.log").open("ab")
            if self._logs
            else nullcontext()
        )


def deaths_in_a_row(before: int, lived_s: float, code: int | None) -> int:
    """Returns the number of deaths in a row with this one.

    ``code``: the exit status, below 0 where a signal killed it; None where it hung.
    """
    by_itself = code is not None and code > 0
    short = lived_s < (_SHORT_LIFE_TO_AN_ERROR_S if by_itself else _SHORT_LIFE_S)
    return before + 1 if short else 1


def main(folder: str, machine: str, cores: str, lock: str, *more: str) -> int:
    job = JobFolder(Path(folder))
    group = job.machine_folder(machine) / "group"
    group.with_suffix(".part").write_text(str(os.getpgrp()))
    group.with_suffix(".part").replace(group)  # a host that kills the machine reads a complete file or none
    plays, inherited = (*ROLES, *more), (int(lock),)
    agent = RoleAgent(job, machine, int(cores), plays, inherited, logs=True, forks=FORK_IS_SAFE)
    signal.signal(signal.SIGTERM, raise_ended)
    try:
        return agent.run()
    except MachineEnded:
        agent.end_roles()
        return TAKEN


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
