"""Records what the controller knows about one partition of the model and one shard of the input.

A partition has exactly one owner per epoch; its *status* says how far along that ownership is. The table of
edges lists every change of status. This module knows machines by name alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from agileml.protocol.commands import Route


class PartitionStatus(StrEnum):
    """The state of a partition on the way to its owner."""

    ABSENT = "absent"  # no server has orders to make it
    CREATING = "creating"  # its owner makes it, from initial values or from a checkpoint
    SERVED = "served"
    MOVING = "moving"  # its source, frozen, sends it to its owner
    FROZEN = "frozen"  # the owner-to-be died: the source alone has it, nobody serves it
    LOST = "lost"  # its server died: its backup has it at B, or else a checkpoint has it
    RESTORING = "restoring"  # its backup sends its owner the state at B


ON_ITS_WAY: Final = frozenset({PartitionStatus.CREATING, PartitionStatus.MOVING, PartitionStatus.RESTORING})

_NO_COPY: Final = "no copy of some partition is left, and everything is made again"

EDGES: Final[Mapping[tuple[PartitionStatus, PartitionStatus], str]] = {
    (PartitionStatus.ABSENT, PartitionStatus.CREATING): "a reliable server came up",
    (PartitionStatus.CREATING, PartitionStatus.SERVED): "its owner made it",
    (PartitionStatus.CREATING, PartitionStatus.ABSENT): "its owner died before training began",
    (PartitionStatus.SERVED, PartitionStatus.ABSENT): f"its owner died before training began, or {_NO_COPY}",
    (PartitionStatus.SERVED, PartitionStatus.MOVING): "the layout wants it elsewhere",
    (PartitionStatus.SERVED, PartitionStatus.LOST): "its owner died",
    (PartitionStatus.MOVING, PartitionStatus.SERVED): "it arrived",
    (PartitionStatus.MOVING, PartitionStatus.FROZEN): "its owner-to-be died",
    (PartitionStatus.MOVING, PartitionStatus.LOST): "its source died before it arrived",
    (
        PartitionStatus.MOVING,
        PartitionStatus.RESTORING,
    ): "another partition was lost, and everything returns to B",
    (PartitionStatus.FROZEN, PartitionStatus.MOVING): "its source sends it elsewhere, or serves it again",
    (
        PartitionStatus.FROZEN,
        PartitionStatus.RESTORING,
    ): "another partition was lost, and everything returns to B",
    (PartitionStatus.FROZEN, PartitionStatus.LOST): "its source was heard to be dead at the same time",
    (PartitionStatus.LOST, PartitionStatus.RESTORING): "its backup was told to send or serve it",
    (PartitionStatus.RESTORING, PartitionStatus.SERVED): "it arrived, at B",
    (PartitionStatus.RESTORING, PartitionStatus.LOST): "its owner-to-be died, or its backup",
    (PartitionStatus.LOST, PartitionStatus.ABSENT): _NO_COPY,
    (PartitionStatus.MOVING, PartitionStatus.ABSENT): _NO_COPY,
    (PartitionStatus.FROZEN, PartitionStatus.ABSENT): _NO_COPY,
    (PartitionStatus.RESTORING, PartitionStatus.ABSENT): _NO_COPY,
}
"""Every way from one status to another, and what happened. FROZEN and LOST never outlast a step."""


class IncomingBackup(Struct, frozen=True):
    """The machine that becomes the backup once the copy sent to it under ``epoch`` has arrived."""

    machine: str
    epoch: int


class Partition(Struct, frozen=True):
    """One of the N partitions of the model, and how its one owner came by it.

    ``completed`` and ``safe`` are clocks of the present generation. ``completed`` is the highest clock that
    the serving copy is known to hold. ``safe`` are the clocks to which training can return without any
    transient machine: B, and later clocks that end ranges.
    """

    number: int
    status: PartitionStatus = PartitionStatus.ABSENT
    owner: str | None = None
    """The machine that serves it, or will once it has arrived."""
    epoch: int = 0
    """The epoch in which ``owner`` became the owner."""
    source: str | None = None
    """The machine that holds a frozen copy while it is on its way."""
    backup: str | None = None
    detached: bool = False
    """No backup follows its owner, so it needs a copy. Its ``backup``, if any, stays at B or later."""
    incoming_backup: IncomingBackup | None = None
    route: Route | None = None
    """Where it was served last."""
    completed: int = 0
    safe: frozenset[int] = frozenset({0})

    @classmethod
    def absent_at(cls, number: int, clock: int) -> Self:
        """Returns a partition that is nowhere, and is to be made as it was at ``clock``."""
        return cls(number, completed=clock, safe=frozenset({clock}))

    @property
    def copy_holders(self) -> tuple[str, ...]:
        """Every machine that has a copy or will soon, without duplicates."""
        incoming = None if self.incoming_backup is None else self.incoming_backup.machine
        return tuple(
            {name: None for name in (self.owner, self.source, self.backup, incoming) if name is not None}
        )

    @property
    def new_backup(self) -> str | None:
        """The incoming backup, unless it is the present backup."""
        # That one gets a copy again, and must not discard the one that it has.
        incoming = None if self.incoming_backup is None else self.incoming_backup.machine
        return None if incoming == self.backup else incoming

    @property
    def durability_source(self) -> str | None:
        """The machine whose reports decide what is safe: the backup, or an owner that needs none."""
        return self.backup or (None if self.detached else self.owner)

    @property
    def recovery_source(self) -> str | None:
        """The machine that can produce its state at B while no server serves it."""
        return self.backup or self.source


class Shard(Struct, frozen=True):
    """One of the S shards of the input. Its previous owners may still have it in memory.

    ``delivered``: the last clock that a previous owner pushed before it left, after the generation in which
    it did.
    """

    owner: str | None = None
    previous: tuple[str, ...] = ()
    delivered: tuple[int, int] = (0, 0)

    def with_owner(self, owner: str | None) -> Shard:
        if owner == self.owner:
            return self
        earlier = (self.owner, *self.previous) if self.owner is not None else self.previous
        return replace(self, owner=owner, previous=tuple(name for name in earlier if name != owner))
