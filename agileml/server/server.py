"""The parameter server of one machine, without sockets: messages and commands in, messages and events out.

Here is what is said, and when it is listened to; what comes of it is decided partition by partition, in
``copies``. What cannot be answered or carried out yet waits (``heldback``) and is tried again after every
change of its partition.

Rule 1: a request is answered only under the epoch of the present ownership (``requests``).
Rule 2: whoever is asked after something answers from what is here now, or waits here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows
from agileml.protocol.commands import (
    Advance,
    BackUp,
    Create,
    Forget,
    Handover,
    Restore,
    Rollback,
    SaveModel,
    WriteCheckpoint,
)
from agileml.protocol.events import Setup
from agileml.protocol.messages import (
    Arrived,
    EndOfLife,
    Inquiry,
    Install,
    Missing,
    Outgoing,
    Peer,
    ProtocolError,
    Push,
    PushInquiry,
    Read,
    Reply,
    Request,
    Transfer,
    TransferInquiry,
    Update,
)
from agileml.server.pending_requests import Asked, Came, HeldBack, Item
from agileml.server.replica import Role
from agileml.server.replicas import Copies

ServerCommand: TypeAlias = (
    Create | Handover | BackUp | Restore | Rollback | Forget | Advance | SaveModel | WriteCheckpoint
)


def no_checkpoints(folder: str, partition: int) -> Matrix:
    """Of a server that was given no way to read any."""
    raise ProtocolError(f"partition {partition} was to be read from {folder!r}, of a job without checkpoints")


class Server:
    """``initial(rows)`` makes the start values of global rows, float32 of shape (len(rows), columns);
    ``stored(folder, partition)`` reads a partition from a checkpoint."""

    def __init__(
        self,
        me: Peer,
        setup: Setup,
        shape: Shape,
        initial: Callable[[Rows], Matrix],
        stored: Callable[[str, int], Matrix] = no_checkpoints,
    ) -> None:
        self.me = me
        self._out: list[Outgoing] = []
        self._copies = Copies(me, setup, shape, initial, stored, self._out)
        self._waiting = HeldBack()

    def handle(self, sender: str, message: Request | Transfer) -> tuple[Outgoing, ...]:
        """Take a message from a worker or another server. ``sender`` is where answers go."""
        match message:
            case Read() | Update():
                return self._asked(sender, message)
            case Push() | Install() | EndOfLife():
                self._waiting.add(Came(sender, message))
            case Inquiry():
                self._out += [Reply(sender, unknown) for unknown in self._waiting.unknown(sender, message)]
                return self._settle(())
            case PushInquiry():
                self._copies.asked_for_push(sender, message)
            case TransferInquiry():
                self._asked_for_transfer(sender, message)
            case notice:
                self._copies.heard(notice)
        return self._settle((message.partition,))

    def command(self, command: ServerCommand) -> tuple[Outgoing, ...]:
        """Take a command from the elasticity controller."""
        match command:
            case Create():
                self._copies.create(command)
            case Forget():
                self._copies.forget(command)
                self._waiting.drop_pushes(command.partition)
            case Advance():
                self._copies.advance(command)
                return self._settle(self._copies.partitions)
            case WriteCheckpoint():
                self._copies.snapshot(command)
                return self._settle(())
            case SaveModel():
                self._waiting.add(command)
                return self._settle(())
            case _:
                self._waiting.add(command)
        return self._settle((command.partition,))

    def look_back(self) -> tuple[Outgoing, ...]:
        """Time has passed: ask other servers after what has had no answer since before the last time."""
        return tuple(self._copies.look_back())

    @property
    def peers(self) -> frozenset[str]:
        """The endpoints that something may still be on its way to; connections to others can be closed."""
        return self._copies.peers

    def role(self, partition: int) -> Role | None:
        """What this server is to a partition, for reports; None where it holds nothing of it."""
        return self._copies.role(partition)

    def _asked(self, sender: str, request: Read | Update) -> tuple[Outgoing, ...]:
        """What others wait for changes by it only where it completes a clock of a partition."""
        before = {part.partition: self._copies.clock(part.partition) for part in request.parts}
        self._waiting.ask(sender, request, self._copies.asked)
        moved = [partition for partition, clock in before.items() if self._copies.clock(partition) != clock]
        return self._settle(moved) if moved else self._said()

    def _settle(self, partitions: Iterable[int]) -> tuple[Outgoing, ...]:
        """Try what waits for these ``partitions``, about which something was said."""
        self._waiting.settle(partitions, self._attempt)
        return self._said()

    def _said(self) -> tuple[Outgoing, ...]:
        out = tuple(self._out)
        self._out.clear()
        return out

    def _attempt(self, item: Item | SaveModel) -> bool:
        """Whether the item is done with: carried out, answered or known to be stale."""
        match item:
            case Asked():
                return self._copies.asked(item)
            case Came():
                return self._copies.came(item)
            case SaveModel():
                return self._copies.save(item)
        return self._copies.ordered(item)

    def _asked_for_transfer(self, sender: str, asked: TransferInquiry) -> None:
        partition, epoch = asked.partition, asked.epoch
        if epoch <= self._copies.known_epoch(partition):
            self._out.append(Reply(sender, Arrived(partition, epoch)))
        elif not self._waiting.has_transfer(partition, epoch):
            self._out.append(Reply(sender, Missing(partition, epoch)))
