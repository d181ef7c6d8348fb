"""Makes machines of this computer's processes: each is a process group that can be killed, frozen and thawed.

Nothing here knows what machines are for: subclasses name the agent's module, and prepare machines for it.
"""

from __future__ import annotations

import fcntl
import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agileml.node.agent.process_tree import VARIABLE, machine_environment
from agileml.node.hosts.local_machine import LocalMachine
from agileml.node.hosts.nominal_time import LifeBound, LifeRecord
from agileml.node.run_folder import RunFolder
from agileml.node.tier import Tier

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ENDS_ITSELF_WITHIN_S: Final = 1.0
"""The time that a machine has to end itself on request."""


@dataclass(frozen=True, slots=True)
class MachineLocation:
    """Where a machine runs. ``address``: the machine's, if the job is on a network.

    ``enter``: a command that runs another command there. It has to replace itself by that command (exec), so
    that its process is the agent's.
    """

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


HERE: Final = MachineLocation()


class LocalHost:
    """The machines of one prepared job folder, also those that an earlier process started."""

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None, agent: str = "") -> None:
        """``variables``: added to the environment of the machines' processes. ``agent``: the module that
        machines run; a host without one lists and ends machines, and starts none.
        """
        self._folder = RunFolder(folder.resolve())
        self._agent = agent
        self._variables = dict(variables or {})
        self._started: dict[str, LocalMachine] = {}

    def start_machine(
        self, machine: str, tier: Tier, cores: int, where: MachineLocation = HERE, until: float = math.inf
    ) -> None:
        """Starts the machine's agent.

        ``until``: the nominal moment at which it ends itself if nobody is there to end it. Raises ValueError
        for a name that was used before, or that cannot name a folder.
        """
        if not self._agent:
            raise TypeError(f"{machine} cannot start: this host has no agent to run")
        place = self._folder.machine_folder(machine)
        if not _NAME.fullmatch(machine) or place.exists():
            raise ValueError(f"{machine!r} cannot name a new machine")
        place.mkdir()
        LifeBound(place).write(until)
        self._folder.set_address(machine, where.address)
        more = self.prepare_machine(machine, tier)
        with (place / "lock").open("wb") as lock, (place / "agent.log").open("ab") as log:
            # The lock belongs to the open file, which all processes of the machine inherit. So it is free
            # once the last of them is gone, however it ended.
            fcntl.flock(lock, fcntl.LOCK_EX)
            number = lock.fileno()
            arguments = [str(self._folder.path), machine, str(cores), str(number), *more]
            agent = subprocess.Popen(
                [*where.enter, sys.executable, "-m", self._agent, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **machine_environment(self.threads_per_process(cores)),
                    **self._variables,
                    VARIABLE: str(place),
                },
                start_new_session=True,
                pass_fds=(number,),
            )
        self._started[machine] = LocalMachine(place, agent)

    def prepare_machine(self, machine: str, tier: Tier) -> list[str]:
        """Puts what the agent needs into the machine's folder.

        Returns the agent's arguments beyond the job's folder, its name, its cores and its lock.
        """
        return []

    def threads_per_process(self, cores: int) -> int:
        """Returns the threads of each process of a machine with ``cores``: 1, as it runs many roles."""
        return 1

    def was_started(self, machine: str) -> bool:
        return self._folder.machine_folder(machine).exists()

    def is_alive(self, machine: str) -> bool:
        return self._machine(machine).is_alive

    def end_machines(self, machines: Iterable[str], at: float) -> None:
        """Has machines end themselves at the nominal moment ``at``, which they record.

        Returns when all have ended, or after a second at the latest: ``kill`` ends the rest.
        """
        alive = [machine for machine in map(self._machine, machines) if machine.is_alive]
        for machine in alive:
            machine.request_end(at)
        until = time.monotonic() + _ENDS_ITSELF_WITHIN_S
        while time.monotonic() < until and any(machine.is_alive for machine in alive):
            time.sleep(0.002)

    def read_life(self, machine: str) -> LifeRecord | None:
        """Returns what the machine recorded of its life; None before its first record."""
        return self._machine(machine).read_life()

    def ended_at(self, machine: str) -> float | None:
        """Returns the nominal moment at which a machine ended itself; None if it recorded none."""
        life = self.read_life(machine)
        return None if life is None else life.ended

    def kill(self, machine: str) -> None:
        """Kills a machine, as a cloud takes it away. Returns when it is gone, or raises TimeoutError."""
        self._machine(machine).kill()

    def freeze(self, machine: str) -> None:
        """Stops all processes of a machine, so that it hangs."""
        self._machine(machine).send_signal(signal.SIGSTOP)

    def thaw(self, machine: str) -> None:
        self._machine(machine).send_signal(signal.SIGCONT)

    def alive_machines(self) -> list[str]:
        """Returns the machines that still have processes, sorted."""
        return [name for name in self._folder.machine_names() if self._machine(name).has_processes]

    def kill_all(self) -> None:
        """Kills all machines and removes their sockets. Raises TimeoutError last, if one survives."""
        try:
            self.kill_each(self.alive_machines())
        finally:
            self._folder.remove_sockets()

    def kill_each(self, machines: Iterable[str]) -> None:
        """Kills machines as ``kill`` does. Raises TimeoutError last, if one survives."""
        survivors = []
        for machine in machines:
            try:
                self.kill(machine)
            except TimeoutError as error:
                survivors.append(error)
        if survivors:
            raise survivors[0]

    def _machine(self, name: str) -> LocalMachine:
        return self._started.get(name) or LocalMachine(self._folder.machine_folder(name))
