"""Runs the roles of a training on one machine: starts them, restarts them, and ends them with itself.

``python -m agileml.role_agent FOLDER MACHINE CORES LOCK [controller]``, in a process session of its own.
Every process of the machine inherits the open lock file LOCK, so the lock is free exactly when all of them
are gone. The agent itself is ``node.agent.machine_agent``.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections import deque
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
from agileml.node.agent.machine_agent import (
    COORDINATOR,
    LEASE_OVER,
    TAKEN,
    MachineAgent,
    close_context,
    end_by_sigterm,
    record_process_group,
)
from agileml.node.agent.notices import notices_of_environment
from agileml.node.hosts.nominal_time import AgentLifetime
from agileml.node.liveness import SilenceTimer
from agileml.protocol.endpoints import ControlEnd
from agileml.protocol.events import EvictionWarned, MachineLost, ServerLost, WorkerLost
from agileml.protocol.telemetry import Control, EndMachine

ROLES: Final = ("server", "worker")
"""The roles of every machine."""
GAVE_UP: Final = 3
"""The exit status of a machine one of whose roles died over and over."""
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


class RoleWorkload:
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
        poller: zmq.Poller,
        silence: SilenceTimer,
        inherited_files: tuple[int, ...] = (),
        *,
        logs: bool,
        forks: bool = False,
    ) -> None:
        self.outbox: deque[Control] = deque()
        self._folder = folder
        self._machine = machine
        self._cores = cores
        self._inherited_files = inherited_files
        self._logs = logs
        self._forks = forks
        if forks:
            roles.preload_roles()
        self._gave_up = False
        self._timing = folder.read_job().timing
        self._poller = poller
        self._silence = silence
        self._roles = {role: self._start_role(role, incarnation=1, deaths=0) for role in plays}
        self._forks = False  # from now on there will be threads

    @property
    def has_controller(self) -> bool:
        """Whether the elasticity controller runs on this machine."""
        return "controller" in self._roles

    def obey_order(self, order: Control) -> int | None:
        if isinstance(order, EndMachine) and not self.has_controller:
            return GAVE_UP if self._gave_up else 0
        return None

    def wait_ms(self, wait_ms: int) -> int:
        return wait_ms  # the other ends of its roles wake the agent

    def outlives_lease(self) -> bool:
        """Returns False: the job is over or its controller gone for good, and nobody needs the machine."""
        return False

    def mark_taken(self) -> None:
        self.outbox.append(MachineLost(self._machine))

    def end(self) -> None:
        for role in self._roles.values():
            self._end_role(role)

    def run_turn(self, lifetime: AgentLifetime) -> int | None:
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
                self.outbox.append(lost(self._machine, role.incarnation))
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
        self.outbox.append(MachineLost(self._machine))

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


class RoleAgent:
    """The agent of a training's machine, whose roles are started. See ``RoleWorkload`` for the arguments."""

    def __init__(
        self,
        folder: JobFolder,
        machine: str,
        cores: int,
        plays: tuple[str, ...] = ROLES,
        inherited_files: tuple[int, ...] = (),
        *,
        logs: bool,
        forks: bool = False,
    ) -> None:
        self._folder = folder
        timing, poller = folder.read_job().timing, zmq.Poller()
        silence = SilenceTimer(time.monotonic(), 2 * timing.repeat_s, (COORDINATOR,))
        lifetime = AgentLifetime(folder.path, machine)
        # Before ZeroMQ starts its threads: the roles are forks of this process.
        self._workload = RoleWorkload(
            folder, machine, cores, plays, poller, silence, inherited_files, logs=logs, forks=forks
        )
        self._context = zmq.Context(1)
        self._agent = MachineAgent(
            self._workload,
            ControlEnd(self._context, folder, f"agent/{machine}", timing.repeat_s),
            lifetime,
            poller,
            silence,
            timing.lease_s,
            notices_of_environment(),
            lambda seconds: EvictionWarned((machine,), seconds),
        )

    def run(self) -> int:
        """Runs until the controller ends it, is gone or silent for a lease, or the machine's time is up.

        Returns an exit status: ``GAVE_UP`` where a role died over and over.
        """
        leads = self._workload.has_controller
        status = self._agent.run()
        close_context(self._context)
        if status == LEASE_OVER or (status == TAKEN and leads):
            self._folder.remove_sockets()  # nobody listens there any more
        return status


def main(folder: str, machine: str, cores: str, lock: str, *more: str) -> int:
    job = JobFolder(Path(folder))
    record_process_group(job.machine_folder(machine))
    plays, inherited = (*ROLES, *more), (int(lock),)
    agent = RoleAgent(job, machine, int(cores), plays, inherited, logs=True, forks=FORK_IS_SAFE)
    end_by_sigterm()
    return agent.run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
