"""Trains a job on the nodes of a Ray cluster: the loop that ties nodes, machines and controller together.

Nodes that come become machines. Nodes that drain are warned of, and their machines ended as soon as that
costs nothing, which lets Ray take the node. Machines that end otherwise are lost. One that hangs is ended,
and its node gets another.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Final

from ray.exceptions import RayError

from agileml.client import TrainingClient
from agileml.data.trained_model import TrainingFailed
from agileml.job import JobFolder
from agileml.job_bundle import JobBundle
from agileml.node.tier import Tier
from agileml.protocol.commands import Failed, Finished, SafeToKill
from agileml.protocol.events import MachineLost, MachineReleased, StopRequested
from agileml.protocol.telemetry import MachineGivenUp, Upward
from agileml.ray.cluster_api import living_nodes
from agileml.ray.host import RayHost
from agileml.ray.nodes import Node, Roster

_LOOK_EVERY_S: Final = 0.5
"""The time between two looks at the nodes: a drain is noticed so much later, and clouds announce it 30 s or
more ahead.
"""
_LISTEN_S: Final = 0.1
"""How long the loop listens to the controller before it looks at machines again."""
_ENDS_ITSELF_WITHIN_S: Final = 10.0
"""How long a machine that was given up has to end: one that lives says then whether its roles died over and
over.
"""
_CAUSES_WITHIN_S: Final = 3.0
"""How long machines that gave up have to report it, once the job has failed."""


class RayTraining:
    """Trains while it is iterated over, and yields what happens; leaves nothing on the cluster once it is
    closed.

    ``name``: unique on the cluster. ``home``: the node that is to carry the elasticity controller; another
    one does where that has died and nobody had noticed. Raises TrainingFailed where there is none.
    """

    def __init__(self, folder: JobFolder, name: str, home: Node) -> None:
        self._roster = Roster()
        self._look_at = 0.0
        self._over = False
        self._strange: set[str] = set()
        """Nodes that were told to be left alone."""
        self._given_up: dict[str, float] = {}
        """Machines that the controller has lost, and until when they may end by themselves."""
        self._host = RayHost(name, JobBundle.from_folder(folder))
        # The list of nodes may be older than a node's death.
        while (endpoint := self._host.start_controller(home)) is None:
            home = choose_controller_node()
        self._home = home
        folder.controller_record.write_text(home.id)
        folder.write_coordinator_endpoint(endpoint)
        self._client = TrainingClient(folder.path)

    def __iter__(self) -> Iterator[Upward]:
        """Yields what the job reports until the model is saved. Raises TrainingFailed where it cannot be."""
        while not self._over:
            yield from self.poll(_LISTEN_S)

    def poll(self, timeout_s: float) -> list[Upward]:
        """Follows the cluster once, and returns what the job reported meanwhile. Raises as iterating does."""
        # Nodes are asked for less often than machines: the call goes to Ray's head.
        if not self._over and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_EVERY_S
            self._follow_nodes()
        if not self._over:
            self._follow_machines()
        heard = self._client.poll(timeout_s)
        if (silent := self._client.hanging_controller) is not None:
            self._client.send_events(MachineLost(silent))  # which makes the client say what is left
        for said in heard:
            match said:
                case SafeToKill(machine):
                    self._release_machine(machine)
                case MachineGivenUp(machine):
                    self._given_up[machine] = time.monotonic() + _ENDS_ITSELF_WITHIN_S
                case Failed(why, checkpoint):
                    raise TrainingFailed("; ".join([why, *self._find_causes()]), checkpoint)
                case Finished():
                    self._over = True
        return heard

    def stop(self) -> None:
        """Saves the model at the newest consistent clock and ends; go on iterating until it has."""
        self._client.send_events(StopRequested())

    def leave_cluster(self, patience_s: float = 10.0) -> None:
        """Confirms to the controller that all is heard, so that it tells every machine to end in order."""
        until = time.monotonic() + patience_s
        while self._host.alive_machines() and time.monotonic() < until:
            self._client.poll(_LISTEN_S)

    def close(self) -> None:
        """Ends whatever still runs. Harmless when repeated."""
        self._client.close()
        self._host.kill_all()

    def _follow_nodes(self) -> None:
        nodes = living_nodes()
        for node in nodes:
            if node.label_mistake is not None and node.id not in self._strange:
                self._strange.add(node.id)
                warnings.warn(f"{node.label_mistake}; it takes no part in the training", stacklevel=2)
        if self._home.id not in {node.id for node in nodes}:
            self._client.send_events(MachineLost(self._home.id))  # which makes the client say what is left
        self._roster, new = self._roster.seat_nodes(nodes, time.time())
        for seat in new:
            self._host.start_machine(seat.machine, seat.tier, seat.node.cores, seat.node)
        self._roster, warned = self._roster.warn_draining(nodes, time.time())
        self._client.send_events(*warned)

    def _follow_machines(self) -> None:
        for machine in [name for name, until in self._given_up.items() if time.monotonic() > until]:
            del self._given_up[machine]
            self._host.start_killing(machine)
        joins = []
        for machine in self._host.take_started():
            self._roster, joined = self._roster.join_machine(machine)
            joins.append(joined)
        self._client.send_events(*joins)
        try:
            housed = self._host.controller_has_a_node()
            ended = self._host.take_ended()
        except RayError as error:
            raise TrainingFailed(f"an actor of the job failed: {error}") from error
        if not housed:
            self._client.send_events(MachineLost(self._home.id))
        for end in ended:
            self._roster = self._roster.without_machine(end.machine, time.time(), gave_up=end.gave_up)
        self._client.send_events(*(MachineLost(end.machine) for end in ended))

    def _find_causes(self) -> list[str]:
        """Returns the machines that may be why the job failed; they end when the controller does."""
        self.leave_cluster(_CAUSES_WITHIN_S)
        gave_up = [end.machine for end in self._host.take_ended() if end.gave_up]
        return [f"on {machine} a process died over and over, Ray's logs say of what" for machine in gave_up]

    def _release_machine(self, machine: str) -> None:
        """Ends a machine, so that nothing of ours is on its node: Ray takes a draining node that is idle."""
        if machine in self._roster.seats:
            self._host.kill(machine)
            self._roster = self._roster.without_machine(machine, time.time())
            self._client.send_events(MachineReleased(machine))


def choose_controller_node() -> Node:
    """Returns the reliable node that has the smallest id. Raises TrainingFailed where there is none."""
    nodes = living_nodes()
    reliable = [
        node for node in nodes if node.tier is Tier.RELIABLE and node.cores and node.drains_at is None
    ]
    if not reliable:
        alive = "; ".join(f"{node.id[:12]}: {_describe_node(node)}" for node in nodes)
        raise TrainingFailed(
            "no node of this Ray cluster has CPUs and the label tier=reliable (or Ray's own "
            "ray.io/market-type=on-demand); start one with: ray start --address=... --labels=tier=reliable. "
            f"There are: {alive}"
        )
    return min(reliable, key=lambda node: node.id)


def _describe_node(node: Node) -> str:
    own = {name: value for name, value in node.labels.items() if name != "ray.io/node-id"}
    return f"{node.cores} CPUs, labels {own}"
