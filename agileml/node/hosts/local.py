"""Makes machines of this computer's processes: each is a process group that can be killed, frozen and thawed.

Whether a machine lives is read from the lock file in its folder, which all its roles hold open: process ids
are reused, locks are not. Whatever else a machine started carries its mark, and is ended with it. Nothing
here knows about training.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agileml.node.agent import process_tree
from agileml.node.agent.environment import machine_environment
from agileml.node.hosts.nominal_time import LifeBound, LifeRecord
from agileml.node.run_folder import RunFolder
from agileml.node.tier import Tier

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_GONE_WITHIN_S: Final = 10.0
"""The time that processes have to go after SIGKILL: a busy host takes its time to free what they had."""
_ENDS_ITSELF_WITHIN_S: Final = 1.0
"""The time that a machine has to end itself when told to; then it is killed."""


@dataclass(frozen=True, slots=True)
class MachineLocation:
    """Where a machine runs. ``address``: of the machine, if the job is on a network.

    ``enter``: a command that runs another command there. It replaces itself by that other command, so that
    its process is the agent's.
    """

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


HERE: Final = MachineLocation()


class LocalHost:
    """The machines of one prepared job folder, also those that an earlier process started."""

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None, agent: str = "") -> None:
        """``variables``: for the environment of the machines' processes. ``agent``: the module that machines
        run; a host without one lists and ends machines, and starts none.
        """
        self._folder = RunFolder(folder.resolve())
        self._agent = agent
        self._variables = dict(variables or {})
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start_machine(
        self, machine: str, tier: Tier, cores: int, where: MachineLocation = HERE, until: float = math.inf
    ) -> None:
        """Starts its agent.

        ``until``: the nominal moment at which it ends itself if nobody is there to do so. Raises ValueError
        for a name that was used before or cannot be a folder's.
        """
        if not self._agent:
            raise TypeError(f"a host without an agent was to start {machine}")
        place = self._folder.machine_folder(machine)
        if not _NAME.fullmatch(machine) or place.exists():
            raise ValueError(f"{machine!r} cannot name a new machine")
        place.mkdir()
        LifeBound(place).write(until)
        self._folder.set_address(machine, where.address)
        more = self.prepare_machine(machine, tier)
        with (place / "lock").open("wb") as lock, (place / "agent.log").open("ab") as log:
            # The lock belongs to the open file, which all processes of the machine inherit. So it is free
            # once the last of them is gone, however it went.
            fcntl.flock(lock, fcntl.LOCK_EX)
            number = lock.fileno()
            arguments = [str(self._folder.path), machine, str(cores), str(number), *more]
            self._children[machine] = subprocess.Popen(
                [*where.enter, sys.executable, "-m", self._agent, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **machine_environment(self.threads_per_process(cores)),
                    **self._variables,
                    **process_tree.mark_environment(str(place)),
                },
                start_new_session=True,
                pass_fds=(number,),
            )

    def prepare_machine(self, machine: str, tier: Tier) -> list[str]:
        """Puts what the agent needs into the machine's folder.

        Returns what the agent is told beside that folder, its name, its cores and its lock.
        """
        return []

    def threads_per_process(self, cores: int) -> int:
        """Returns the threads of each process of a machine with ``cores``. A role needs one; ``variables``
        may say otherwise.
        """
        return 1

    def was_started(self, machine: str) -> bool:
        """Whether a machine of that name was ever started."""
        return self._folder.machine_folder(machine).exists()

    def is_alive(self, machine: str) -> bool:
        """Whether any process of the machine is left."""
        place = self._folder.machine_folder(machine) / "lock"
        if not place.exists():
            return False
        with place.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several processes may look at once
            except BlockingIOError:
                return True
        if machine in self._children:
            self._children[machine].wait()  # it holds nothing any more, so its exit is a matter of moments
        return False

    def end_machines(self, machines: Iterable[str], at: float) -> None:
        """Takes machines away at the nominal moment ``at``, which they record themselves if they can.

        What does not end at once is killed.
        """
        alive = [machine for machine in machines if self.is_alive(machine)]
        for machine in alive:
            LifeBound(self._folder.machine_folder(machine)).write(at)
            self._tell_to_end(machine)
        until = time.monotonic() + _ENDS_ITSELF_WITHIN_S
        while time.monotonic() < until and any(self.is_alive(machine) for machine in alive):
            time.sleep(0.002)

    def _tell_to_end(self, machine: str) -> None:
        """Tells an agent to end, if it listens: others would end without a record."""
        group = self._process_group(machine)
        if group is not None and self.read_life(machine) is not None and self.is_alive(machine):
            with contextlib.suppress(ProcessLookupError):
                os.kill(group, signal.SIGTERM)

    def read_life(self, machine: str) -> LifeRecord | None:
        """Returns what the machine recorded of its life; None where it has not got so far."""
        return LifeRecord.read_record(self._folder.machine_folder(machine))

    def ended_at(self, machine: str) -> float | None:
        """Returns the nominal moment at which a machine ended by itself; None where it has not said so."""
        life = self.read_life(machine)
        return None if life is None else life.ended

    def kill(self, machine: str) -> None:
        """Sends SIGKILL to all of it at once, as a cloud takes it away. Returns when all of it is gone."""
        until, place = time.monotonic() + _GONE_WITHIN_S, str(self._folder.machine_folder(machine))
        # More than once: a process may fork at the moment when the others are killed.
        while self.is_alive(machine) or process_tree.signal_all(signal.SIGKILL, place):
            if time.monotonic() > until:
                raise TimeoutError(f"processes of {machine} survived SIGKILL for {_GONE_WITHIN_S} s")
            self._signal_machine(machine, signal.SIGKILL)
            time.sleep(0.005)

    def freeze(self, machine: str) -> None:
        """Stops all of it without ending it, as a machine that hangs."""
        self._signal_machine(machine, signal.SIGSTOP)

    def thaw(self, machine: str) -> None:
        self._signal_machine(machine, signal.SIGCONT)

    def alive_machines(self) -> list[str]:
        """Returns the machines that still have processes."""
        return [machine for machine in self._folder.machine_names() if self._has_processes(machine)]

    def _has_processes(self, machine: str) -> bool:
        return self.is_alive(machine) or process_tree.any_left(str(self._folder.machine_folder(machine)))

    def kill_all(self) -> None:
        """Kills all machines and removes their sockets. Raises TimeoutError last, where
        a machine survives.
        """
        try:
            self.kill_each(self.alive_machines())
        finally:
            self._folder.remove_sockets()

    def kill_each(self, machines: Iterable[str]) -> None:
        """Kills machines as ``kill`` does; one that survives protects none of the others."""
        survivors = []
        for machine in machines:
            try:
                self.kill(machine)
            except TimeoutError as error:
                survivors.append(error)
        if survivors:
            raise survivors[0]

    def _signal_machine(self, machine: str, number: signal.Signals) -> None:
        group = self._process_group(machine)
        if group is not None and self.is_alive(machine):  # so the number belongs to no other process
            with contextlib.suppress(ProcessLookupError):  # it ended this very moment
                os.killpg(group, number)
            process_tree.signal_all(number, str(self._folder.machine_folder(machine)))

    def _process_group(self, machine: str) -> int | None:
        """Returns the number of its process group: of our own child, or as its agent wrote it (None before
        that).
        """
        record = self._folder.machine_folder(machine) / "group"
        if machine in self._children:
            return self._children[machine].pid
        return int(record.read_text()) if record.exists() else None
