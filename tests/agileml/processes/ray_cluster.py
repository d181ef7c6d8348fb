"""A real Ray cluster on this machine: a head, and nodes (a raylet each) that are added, drained and killed.

All of it listens on a loopback address; 127.0.0.1 itself would not do, since Ray puts the machine's
outward address in its place.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

ADDRESS = "127.0.0.2"
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "2",
}
OBJECT_STORE = 80 * 1024 * 1024
"""Bytes; hardly anything of ours goes there."""


class RayCluster:
    """Its head runs no machine; nodes are added as they are needed. ``nodes``: alive, by their names here."""

    def __init__(self) -> None:
        self._cluster: Any = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "include_dashboard": False,
                "node_ip_address": ADDRESS,
                "object_store_memory": OBJECT_STORE,
            },
        )
        self.address: str = self._cluster.address
        self.nodes: dict[str, Any] = {}

    def add(self, *names: str, cpus: int = 1, **labels: str) -> None:
        """Names that begin with "r" are reliable, others transient."""
        for name in names:
            tier = "reliable" if name.startswith("r") else "transient"
            self.nodes[name] = self._cluster.add_node(
                num_cpus=cpus,
                node_ip_address=ADDRESS,
                object_store_memory=OBJECT_STORE,
                labels={"tier": tier, **labels},
            )

    def id(self, name: str) -> str:
        return str(self.nodes[name].node_id)

    def drain(self, *names: str, seconds: int = 30) -> None:
        """Drains a node like an autoscaler that was told of a preemption."""
        for name in names:
            command = [str(Path(sys.executable).parent / "ray"), "drain-node", "--address", self.address]
            command += ["--node-id", self.id(name), "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
            command += ["--reason-message", "a test", "--deadline-remaining-seconds", str(seconds)]
            subprocess.run(command, check=True, capture_output=True)

    def raylet(self, name: str) -> int:
        """Its process id."""
        return int(self.nodes[name].all_processes["raylet"][0].process.pid)

    def kill(self, *names: str) -> None:
        """SIGKILL to the node's raylet, after which all that it started ends by itself."""
        for name in names:
            os.kill(self.raylet(name), signal.SIGKILL)
        for name in names:
            # An unreaped raylet would seem alive to its workers.
            self.nodes[name].all_processes["raylet"][0].process.wait()
            self._cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def remove(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.raylet(name), signal.SIGCONT)
            self._cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


@contextlib.contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    """A head, and this process connected to it."""
    os.environ.update(ENVIRONMENT)
    made = RayCluster()
    try:
        ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
        yield made
    finally:
        ray.shutdown()
        made.close()


def processes(job: str) -> dict[int, str]:
    """The living processes of a job, actors and their roles: id and command line.

    Roles name the job's folder; its actors are named by their classes.
    """
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if state != "Z" and job in command:
                found[int(entry.name)] = command
    return found


def wait_until_none(job: str, patience_s: float = 120.0) -> dict[int, str]:
    """Returns what is left of the job after at most so long."""
    until = time.monotonic() + patience_s
    while (left := processes(job)) and time.monotonic() < until:
        time.sleep(0.05)
    return left
