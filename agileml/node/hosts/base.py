"""Defines what AgileML needs from a host of its processes: machines that start, live and end.

A *machine* is an agent with its roles (``supervisor.py``), wherever they are; it reports to the elasticity
controller that it is up. A host knows nothing of training. It reports machines that come or go by themselves
in its own way: a simulated market, a cluster's notices.
"""

from __future__ import annotations

from typing import Protocol

from agileml.node.tier import Tier


class Host(Protocol):
    """Starts and ends machines. Implemented by ``local.LocalHost`` and ``ray.host.RayHost``."""

    def start_machine(self, machine: str, tier: Tier, cores: int) -> None:
        """Starts a machine, without waiting for it. Raises ValueError for a name that was used before."""

    def is_alive(self, machine: str) -> bool:
        """Whether anything of the machine runs, or is still to start."""

    def kill(self, machine: str) -> None:
        """Ends it at once, as a cloud takes it away. Returns when it is gone; harmless when repeated."""

    def alive_machines(self) -> list[str]:
        """Returns the machines that are alive, sorted."""

    def kill_all(self) -> None:
        """Ends everything, and leaves nothing behind."""
