"""Implements the parameter server of one machine, without sockets: messages and commands in, messages and
events out.

This module decides which message is handled when. What follows, ``replicas`` decides for requests of
workers, ``replica_moves`` for commands, and ``peer_traffic`` for messages of other servers.
What cannot be answered or carried out yet waits (``pending_requests``) and is tried again after every change
of its partition.

Rule 1: a request is answered only under the epoch of the present ownership (``reads_and_updates``).

Rule 2: an inquiry is answered from what is here now, or waits here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from agileml.model_shape import Shape, partition_rows
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
from agileml.server.peer_traffic import PeerTraffic
from agileml.server.pending_requests import Item, PeerMessage, PendingRequests, RequestPart
from agileml.server.replica import ReplicaRole
from agileml.server.replica_moves import ReplicaMoves
from agileml.server.replicas import Replicas
from agileml.server.transfers import Transfers
from agileml.sync.base import Barrier

ServerCommand: TypeAlias = (
    Create | Handover | BackUp | Restore | Rollback | Forget | Advance | SaveModel | WriteCheckpoint
)


def refuse_checkpoint_read(folder: str, partition: int) -> Matrix:
    """Raises ProtocolError: stands in for a reader on a server that was given none."""
    raise ProtocolError(f"partition {partition} was to be read from {folder!r}, of a job without checkpoints")


class Server:
    """Handles messages and commands for the replicas of one machine.

    ``initial(rows)`` makes the start values of global rows, float32 of shape (len(rows), columns);
    ``stored(folder, partition)`` reads a partition from a checkpoint.
    """

    def __init__(
        self,
        me: Peer,
        setup: Setup,
        barrier: Barrier,
        shape: Shape,
        initial: Callable[[Rows], Matrix],
        stored: Callable[[str, int], Matrix] = refuse_checkpoint_read,
    ) -> None:
        self.me = me
        self._out: list[Outgoing] = []
        self._setup = setup
        self._shape = shape
        self._initial = initial
        self._stored = stored
        self._transfers = Transfers()
        self._replicas = Replicas(me.machine, barrier, self._out)
        self._peers = PeerTraffic(me.machine, self._replicas, self._transfers, barrier, self._out)
        self._moves = ReplicaMoves(me, self._replicas, self._transfers, barrier, self._make_values, self._out)
        self._waiting = PendingRequests()

    def handle_message(self, sender: str, message: Request | Transfer) -> tuple[Outgoing, ...]:
        """Takes a message from a worker or another server. ``sender`` is where answers go."""
        match message:
            case Read() | Update():
                return self._handle_request(sender, message)
            case Push() | Install() | EndOfLife():
                self._waiting.add_item(PeerMessage(sender, message))
            case Inquiry():
                self._out += [
                    Reply(sender, unknown) for unknown in self._waiting.find_unknown(sender, message)
                ]
                return self._retry_waiting(())
            case PushInquiry():
                self._peers.answer_push_inquiry(sender, message)
            case TransferInquiry():
                self._answer_transfer_inquiry(sender, message)
            case notice:
                self._peers.handle_notice(notice)
        return self._retry_waiting((message.partition,))

    def handle_command(self, command: ServerCommand) -> tuple[Outgoing, ...]:
        """Takes a command from the elasticity controller."""
        match command:
            case Create():
                self._moves.create_partition(command)
            case Forget():
                self._moves.discard_partition(command)
                self._waiting.drop_pushes(command.partition)
            case Advance():
                self._replicas.advance_consistent(command)
                # B concerns every partition: reads wait for it, so as not to run too far ahead.
                return self._retry_waiting(self._replicas.partition_numbers)
            case WriteCheckpoint():
                # Now or never: the next Advance drops what leads back to this clock.
                self._replicas.take_snapshot(command)
                return self._retry_waiting(())
            case SaveModel():
                self._waiting.add_item(command)
                return self._retry_waiting(())
            case _:
                self._waiting.add_item(command)
        return self._retry_waiting((command.partition,))

    def retry_unanswered(self) -> tuple[Outgoing, ...]:
        """Asks other servers after what has had no answer since before the last call."""
        return tuple(self._peers.retry_unanswered())

    @property
    def open_endpoints(self) -> frozenset[str]:
        """The endpoints that something may still be on its way to; connections to others can be closed."""
        known = (peer for r in self._replicas.all_replicas for peer in (r.ranges.backup, r.target))
        return self._transfers.receiver_endpoints | {peer.endpoint for peer in known if peer is not None}

    def role_of(self, partition: int) -> ReplicaRole | None:
        """Returns this server's role for a partition, for reports; None where it has no replica of it."""
        replica = self._replicas.find_replica(partition)
        return None if replica is None else replica.role

    def _handle_request(self, sender: str, request: Read | Update) -> tuple[Outgoing, ...]:
        """Handles a worker's request. Other waiting items are retried only where it completes a clock of a
        partition.
        """
        # A request that completes no clock releases nothing that waits, and most of them do not.
        before = {part.partition: self._replicas.completed_clock(part.partition) for part in request.parts}
        self._waiting.try_request(sender, request, self._replicas.answer_request)
        moved = [
            partition
            for partition, clock in before.items()
            if self._replicas.completed_clock(partition) != clock
        ]
        return self._retry_waiting(moved) if moved else self._take_outgoing()

    def _retry_waiting(self, partitions: Iterable[int]) -> tuple[Outgoing, ...]:
        """Tries what waits for these ``partitions``, which a message or command was about."""
        self._waiting.retry_partitions(partitions, self._attempt_item)
        return self._take_outgoing()

    def _take_outgoing(self) -> tuple[Outgoing, ...]:
        out = tuple(self._out)
        self._out.clear()
        return out

    def _attempt_item(self, item: Item | SaveModel) -> bool:
        """Returns whether the item is done with: carried out, answered or known to be stale."""
        match item:
            case RequestPart():
                return self._replicas.answer_request(item)
            case PeerMessage():
                return self._peers.take_in(item)
            case SaveModel():
                return self._replicas.save_model(item)
        return self._moves.carry_out_move(item)

    def _make_values(self, command: Create) -> Matrix:
        """Returns the values that a partition is made with: its start values, or those of a checkpoint."""
        if command.clock == 0:
            return self._initial(partition_rows(self._shape, command.partition, self._setup.partitions))
        return self._stored(command.folder, command.partition)

    def _answer_transfer_inquiry(self, sender: str, asked: TransferInquiry) -> None:
        partition, epoch = asked.partition, asked.epoch
        if epoch <= self._replicas.known_epoch(partition):
            self._out.append(Reply(sender, Arrived(partition, epoch)))
        elif not self._waiting.has_transfer(partition, epoch):
            self._out.append(Reply(sender, Missing(partition, epoch)))
