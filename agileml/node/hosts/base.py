"""What AgileML asks of whatever runs its processes: machines that start, live and end.

A *machine* is an agent with its roles (``supervisor.py``), wherever they are; it says by itself to the
elasticity controller that it is up. A host knows nothing of training. What it knows of machines that come or
go by themselves, it says in its own way: a simulated market, a cluster's notices.
"""

from __future__ import annotations

from typing import Protocol

from agileml.node.tier import Tier


class Host(Protocol):
    """Implemented by ``local.LocalHost`` and ``ray.host.RayHost``."""

    def start_machine(self, machine: str, tier: Tier, cores: int) -> None:
        """Start a machine, without waiting for it. Raises ValueError for a name that was used before."""

    def is_alive(self, machine: str) -> bool:
        """Whether anything of the machine runs, or is still to start."""

    def kill(self, machine: str) -> None:
        """End it at once, as a cloud takes it away. Returns when it is gone; harmless when repeated."""

    def alive_machines(self) -> list[str]:
        """The machines that are alive, sorted."""

    def kill_all(self) -> None:
        """Leave nothing behind."""
