"""Defines the processes that Ray starts for a job: one actor per machine, and one for the elasticity
controller.

A machine's actor *is* its agent: the roles are its children and end with it, since each sees the end of a
pipe that only the actor holds open. So whatever ends the actor (Ray, its node's death, the end of the process
that called ``run``, SIGKILL) ends the machine. It is never restarted: what a machine held is gone with it.
The controller's actor is restarted by Ray, on the same node, where it finds its journal and listens where it
listened before. Each keeps what it has on its node's disk in a folder of its own, which goes when the actor
does.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import ray.util

from agileml.controller.process import ControllerProcess
from agileml.job_bundle import JobBundle
from agileml.node.agent.process_tree import machine_environment
from agileml.ray.cleanup import remove_afterwards
from agileml.role_agent import RoleAgent

_CONTROLLER: Final = "controller"
_RESTARTED_WITHIN_S: Final = 60
"""The time for which a controller's journal is kept, while its actor's caller lives: an actor that left in
order has removed it.
"""


class MachineActor:
    """Runs the agent of a machine. ``job``: the job's name, unique on the cluster."""

    def __init__(self, job: str, machine: str, cores: int, shipment: JobBundle, controller: str) -> None:
        os.environ.update(machine_environment())
        self._folder = shipment.unpack(_actor_folder(job, machine))
        self._life = remove_afterwards(self._folder.path)
        self._folder.machine_folder(machine).mkdir()
        self._folder.set_address(machine, _node_address())
        self._folder.write_coordinator_endpoint(controller)
        self._agent = RoleAgent(self._folder, machine, cores, logs=False)

    def ready(self) -> None:
        """Returns once the roles are started."""

    def run(self) -> int:
        """Runs until the job needs the machine no more; see ``RoleAgent.run``."""
        return self._agent.run()


class ControllerActor:
    """Runs the elasticity controller. Ray makes it again, with the same arguments, when its process dies."""

    def __init__(self, job: str, shipment: JobBundle) -> None:
        self._folder = shipment.unpack(_actor_folder(job, _CONTROLLER))
        self._life = remove_afterwards(self._folder.path, unless_taken_over_within_s=_RESTARTED_WITHIN_S)
        self._folder.machine_folder(_CONTROLLER).mkdir(exist_ok=True)
        self._folder.set_address(_CONTROLLER, _node_address())
        self._process = ControllerProcess(self._folder, _CONTROLLER)

    def endpoint(self) -> str:
        """Returns where it listens."""
        return self._folder.coordinator_endpoint() or ""

    def run(self) -> None:
        """Runs until the job is over; see ``ControllerProcess.run``."""
        self._process.run()
        self.leave()

    def leave(self) -> None:
        """Removes what is on the node's disk; the controller is not to be restarted any more."""
        shutil.rmtree(self._folder.path, ignore_errors=True)


def _node_address() -> str:
    """Returns the address at which other nodes reach this one."""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def _actor_folder(job: str, owner: str) -> Path:
    """Returns a folder on this node, the same for the same owner; no two nodes that share a disk share it."""
    return Path(tempfile.gettempdir()) / f"agileml-{job}-{owner}"
