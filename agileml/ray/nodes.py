"""Decides which nodes of a cluster are machines of the job, and what their coming and draining means. Pure.

A node's labels say its tier: ``tier`` (``reliable`` or ``transient``), or else Ray's own
``ray.io/market-type`` (``on-demand`` or ``spot``); nodes without either are left alone. ``allocation`` only
names the machines, for human readers. A node whose machine died gets another, a few times. Nothing here knows
Ray. That a machine *ended* is not read from its node but reported by its host, which also hears of processes
that die while their node lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from agileml.node.tier import Tier
from agileml.protocol.events import EvictionWarned, MachineJoined

_MARKETS: Final = {"on-demand": Tier.RELIABLE, "spot": Tier.TRANSIENT}
_MOST_SHORT_LIVES: Final = 3
"""The most short lives in a row on a node: where so many machines died, another would not fare better."""
_SHORT_LIFE_S: Final = 10.0
UNHURRIED_S: Final = 24 * 3600.0
"""The notice of a node that drains without a deadline."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is alive.

    ``drains_at``: the Unix time in seconds at which a draining node may vanish, infinite where nobody said
    when; None while it stays.
    """

    id: str
    cores: int
    labels: Mapping[str, str]
    drains_at: float | None = None

    @property
    def tier(self) -> Tier | None:
        """The node's tier; None if it is not meant for training. Raises ValueError for an unknown tier."""
        if self.label_mistake is not None:
            raise ValueError(self.label_mistake)
        named = self.labels.get("tier")
        return _MARKETS.get(self.labels.get("ray.io/market-type", "")) if named is None else Tier(named)

    @property
    def label_mistake(self) -> str | None:
        """The mistake in its label; None if there is none."""
        named = self.labels.get("tier")
        if named is None or named in list(Tier):
            return None
        return f"node {self.id} is labelled tier={named}; a tier is {' or '.join(Tier)}"


@dataclass(frozen=True, slots=True)
class Seat:
    """A machine of the job on a node."""

    machine: str
    node: Node
    tier: Tier
    since: float


@dataclass(frozen=True, slots=True)
class Roster:
    """The machines of a job on its nodes.

    ``seats``: by machine. Of these, ``joined``: those that run, ``warned``: those told to leave. ``had``:
    machines so far, by node; ``short_lives``: of these, the last in a row. Times are in seconds.
    """

    seats: Mapping[str, Seat] = field(default_factory=dict)
    joined: frozenset[str] = frozenset()
    warned: frozenset[str] = frozenset()
    had: Mapping[str, int] = field(default_factory=dict)
    short_lives: Mapping[str, int] = field(default_factory=dict)

    def seat_nodes(self, nodes: Iterable[Node], now: float) -> tuple[Roster, tuple[Seat, ...]]:
        """Gives every node that can compute and has no machine a new one; reliable ones come first.

        A node with a mistaken label is left alone: its operator may have meant something else.
        """
        taken = {seat.node.id for seat in self.seats.values()}
        new = [
            Seat(self._name_machine(node, tier), node, tier, now)
            for node in nodes
            if node.label_mistake is None and (tier := node.tier) is not None and node.cores > 0
            # A draining node is about to go, so a new machine there would be lost.
            if node.drains_at is None and node.id not in taken
            if self.short_lives.get(node.id, 0) < _MOST_SHORT_LIVES
        ]
        # Training cannot begin before a reliable machine is there.
        new.sort(key=lambda seat: (seat.tier is not Tier.RELIABLE, seat.machine))
        had = {**self.had, **{seat.node.id: self.had.get(seat.node.id, 0) + 1 for seat in new}}
        seats = {**self.seats, **{seat.machine: seat for seat in new}}
        return replace(self, seats=seats, had=had), tuple(new)

    def join_machine(self, machine: str) -> tuple[Roster, MachineJoined]:
        """Records that a machine's processes run."""
        seat = self.seats[machine]
        joined = MachineJoined(machine, seat.tier, seat.node.cores)
        return replace(self, joined=self.joined | {machine}), joined

    def warn_draining(self, nodes: Iterable[Node], now: float) -> tuple[Roster, tuple[EvictionWarned, ...]]:
        """Warns the machines whose nodes began to drain; those that drain by the same time are warned
        together.
        """
        drains_at = {node.id: node.drains_at for node in nodes if node.drains_at is not None}
        # By deadline: the controller plans once for machines that leave together.
        leaving: dict[float, list[str]] = {}
        for machine in sorted(self.joined - self.warned):
            node = self.seats[machine].node
            if node.id in drains_at:
                leaving.setdefault(drains_at[node.id], []).append(machine)
        warned = self.warned.union(*leaving.values())
        return replace(self, warned=warned), tuple(
            EvictionWarned(tuple(machines), min(max(deadline - now, 0.0), UNHURRIED_S))
            for deadline, machines in sorted(leaving.items())
        )

    def without_machine(self, machine: str, now: float, *, gave_up: bool = False) -> Roster:
        """Removes a machine that ended. While its node lives and stays it may have another, but not if it
        gave up by itself.
        """
        node, since = self.seats[machine].node.id, self.seats[machine].since
        # One long life clears the count: the node is sound.
        lives = self.short_lives.get(node, 0) + 1 if now - since < _SHORT_LIFE_S else 0
        return replace(
            self,
            seats={name: seat for name, seat in self.seats.items() if name != machine},
            joined=self.joined - {machine},
            warned=self.warned - {machine},
            short_lives={**self.short_lives, node: _MOST_SHORT_LIVES if gave_up else lives},
        )

    def _name_machine(self, node: Node, tier: Tier) -> str:
        """Returns a name that is unique in the job, and can be a folder's."""
        name = f"{node.labels.get('allocation', tier.value)}-{node.id[:12]}"
        return f"{name}.{self.had[node.id] + 1}" if node.id in self.had else name
