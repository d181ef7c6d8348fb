"""Runs machines on a Ray cluster: actors placed by label, whose ends Ray reports.

Ray notices the end of an actor's process at once, and that of a whole node when its health checks fail.
Nothing here knows about training.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError, RayError, RayTaskError

from agileml.job_bundle import JobBundle
from agileml.node.tier import Tier
from agileml.ray.actors import ControllerActor, MachineActor
from agileml.ray.nodes import Node
from agileml.role_agent import GAVE_UP

_GONE_WITHIN_S: Final = 30.0
"""Longer than Ray takes by default to find that a node is dead."""
_LEAVES_WITHIN_S: Final = 3.0
"""How long the controller has to remove its folder; a shell of its own does so where it cannot
(``cleanup.py``).
"""


@dataclass(frozen=True, slots=True)
class MachineEnd:
    """The end of a machine. ``gave_up``: it ended by itself, as its roles died over and over."""

    machine: str
    gave_up: bool


@dataclass(slots=True)
class _RayMachine:
    actor: Any
    ready: Any
    """An object that is there once the machine's processes are started."""
    over: Any
    """An object that is there, or an error, once its actor is done."""
    up: bool = False


class RayHost:
    """The machines of one prepared job, on the cluster that this process is connected to.

    ``job``: a name for it, unique on the cluster. All of it ends with this process.
    """

    def __init__(self, job: str, shipment: JobBundle) -> None:
        self._job = job
        self._shipment = shipment
        self._machines: dict[str, _RayMachine] = {}
        self._ended: set[str] = set()
        self._any_came_up = False
        self._endpoint = ""
        self._controllers = 0
        self._controller: Any = None
        self._control_over: Any = None

    def start_controller(self, node: Node) -> str | None:
        """Starts the controller on this node, to which it stays bound. Returns where it listens.

        None where the node turns out to be dead: what is bound to it can be placed nowhere. Raises RayError
        if the controller cannot be started.
        """
        self._controllers += 1
        controller: Any = (
            ray.remote(ControllerActor)
            .options(
                # Names are unique on a cluster, so each attempt needs another.
                name=f"agileml-{self._job}-controller-{self._controllers}",
                num_cpus=0,
                max_restarts=-1,
                max_task_retries=-1,
                max_concurrency=2,  # so that ``leave`` can be called while ``run`` runs
                label_selector=_select_node(node),
            )
            .remote(self._job, self._shipment)
        )
        try:
            self._endpoint = ray.get(controller.endpoint.remote())
        except ActorUnschedulableError:
            return None
        self._controller = controller
        self._control_over = controller.run.remote()
        return self._endpoint

    def controller_has_a_node(self) -> bool:
        """Whether Ray can keep it running where it is bound to. Raises RayError if it failed for good."""
        # ``run`` never returns while the controller lives, so anything done is an end or an error.
        done, _ = ray.wait([self._control_over], timeout=0)
        try:
            ray.get(done)
        except ActorUnschedulableError:
            return False  # which Ray may know before its list of nodes does
        return True

    def start_machine(self, machine: str, tier: Tier, cores: int, where: Node | None = None) -> None:
        """Starts a machine. ``where``: the node; None: any with the label ``tier`` and enough CPUs free."""
        if machine in self._machines or machine in self._ended:
            raise ValueError(f"{machine!r} cannot name a new machine")
        # By node where it is known: two nodes may carry the same labels.
        labels = {"tier": tier.value} if where is None else _select_node(where)
        actor: Any = (
            ray.remote(MachineActor)
            .options(name=f"agileml-{self._job}-{machine}", num_cpus=cores, label_selector=labels)
            .remote(self._job, machine, cores, self._shipment, self._endpoint)
        )
        self._machines[machine] = _RayMachine(actor, actor.ready.remote(), actor.run.remote())

    def take_started(self) -> list[str]:
        """Returns the machines whose processes started since the last call."""
        new = [
            name
            for name, machine in self._machines.items()
            if not machine.up and _is_available(machine.ready)
        ]
        for name in new:
            self._machines[name].up = self._any_came_up = True
        return new

    def take_ended(self) -> list[MachineEnd]:
        """Returns the machines that ended since the last call. Raises RayError if none can be made.

        Where an actor's process or node dies, that is an end. Where our own code fails in it, as for want of
        room on its disk, it is one as well once some machine has come up: the others may fare better.
        """
        over = {machine.over: name for name, machine in self._machines.items()}
        if not over:
            return []
        done, _ = ray.wait(list(over), num_returns=len(over), timeout=0)
        # All statuses are read before any handle is dropped, which would end an actor.
        ends = [MachineEnd(over[one], self._exit_status(over[one], one) == GAVE_UP) for one in done]
        for end in ends:
            self._drop_machine(end.machine)
        return ends

    def is_alive(self, machine: str) -> bool:
        known = self._machines.get(machine)
        return known is not None and not ray.wait([known.over], timeout=0)[0]

    def kill(self, machine: str) -> None:
        if machine in self._machines:
            self._end_actors([self._machines[machine]])
            self._drop_machine(machine)

    def start_killing(self, machine: str) -> None:
        """Kills a machine without waiting: ``take_ended`` says when it is gone. Harmless when repeated.

        Ray ends an actor that hangs by SIGKILL, after a few seconds in which it could have ended by itself.
        """
        if machine in self._machines:
            ray.kill(self._machines[machine].actor, no_restart=True)

    def alive_machines(self) -> list[str]:
        return sorted(machine for machine in self._machines if self.is_alive(machine))

    def kill_all(self) -> None:
        """Kills all machines, and the controller."""
        self._end_actors(list(self._machines.values()))
        for machine in tuple(self._machines):
            self._drop_machine(machine)
        if self._controller is not None:
            # A controller on a dead node never answers.
            ray.wait([self._controller.leave.remote()], timeout=_LEAVES_WITHIN_S)
            ray.kill(self._controller, no_restart=True)
            self._controller = None

    def _end_actors(self, machines: list[_RayMachine]) -> None:
        for machine in machines:
            ray.kill(machine.actor, no_restart=True)
        waiting = [machine.over for machine in machines]
        if waiting:
            _, left = ray.wait(waiting, num_returns=len(waiting), timeout=_GONE_WITHIN_S)
            if left:
                raise TimeoutError(f"{len(left)} actors survived being killed for {_GONE_WITHIN_S} s")

    def _exit_status(self, machine: str, over: Any) -> int | None:
        """Returns the agent's exit status; None where it was not there to return any."""
        try:
            status: int = ray.get(over)
        except ActorUnschedulableError:
            return None  # its node was gone before it started
        except RayActorError as error:
            if error.actor_init_failed:
                self._note_failure(machine, error)
            return None
        except RayTaskError as error:
            self._note_failure(machine, error)
            return None
        return status

    def _note_failure(self, machine: str, error: RayError) -> None:
        if not self._any_came_up:
            raise error
        warnings.warn(f"machine {machine} failed: {error}", stacklevel=2)

    def _drop_machine(self, machine: str) -> None:
        """Drops a machine whose actor has nothing to do any more; without its handle Ray ends its process."""
        ray.kill(self._machines.pop(machine).actor, no_restart=True)
        self._ended.add(machine)


def _select_node(node: Node) -> dict[str, str]:
    return {"ray.io/node-id": node.id}


def _is_available(reference: Any) -> bool:
    """Whether the object is there and no error."""
    if not ray.wait([reference], timeout=0)[0]:
        return False
    try:
        ray.get(reference)
    except RayError:
        return False
    return True
