"""Holds a server's replicas of partitions, and what becomes of each as others speak.

A replica is in one of three roles: serving (a ParamServ, or an ActivePS when it has a backup), backup (a
BackupPS), or frozen (handed over, kept until the new owner is known to have it). A message that cannot be
carried out yet is reported as such; when to try it again is for ``server`` to know.

Rule 1: a message of an older generation is dropped; one of a newer generation waits for the roll-back it
knows of. A backup learns the generation from the first ``Push``, which says where it started from.

Rule 2: what travels to a backup or a new owner is applied in order of clocks, whichever server sent it.

Rule 3: ranges for backups are sent one after the other (``replica``).

Rule 4: a message to another server that has had no answer for a while is asked after, and sent again if it
was lost (``transfers`` for partitions that move).

Source: Harlap 4.2.2 and 4.2.3. Values rather than deltas go to the backup, see ``messages.Push``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from msgspec.structs import replace

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
from agileml.protocol.events import BackedUp, CheckpointRefused, ClockCompleted, Installed, Setup
from agileml.protocol.messages import (
    Answer,
    Arrived,
    EndOfLife,
    Install,
    Lacking,
    Missing,
    Notice,
    Outgoing,
    Peer,
    ProtocolError,
    Push,
    PushDone,
    PushInquiry,
    Reply,
    Save,
    Send,
    Snapshot,
    UpdateDone,
)
from agileml.server.partition import PartitionState
from agileml.server.pending_requests import Move, PeerMessage, RequestPart
from agileml.server.reads_and_updates import WAIT, answer_part
from agileml.server.replica import Replica, ReplicaRole
from agileml.server.transfers import Transfers
from agileml.sync.base import Barrier


class Replicas:
    """All replicas on one server.

    ``initial``, ``stored``: see ``server.Server``. ``out``: receives what is to be sent and reported. Methods
    that return a truth value say whether the message is done with: carried out, answered or stale.
    """

    def __init__(
        self,
        me: Peer,
        setup: Setup,
        barrier: Barrier,
        shape: Shape,
        initial: Callable[[Rows], Matrix],
        stored: Callable[[str, int], Matrix],
        out: list[Outgoing],
    ) -> None:
        self._me = me
        self._setup = setup
        self._barrier = barrier
        self._shape = shape
        self._initial = initial
        self._stored = stored
        self._replicas: dict[int, Replica] = {}
        self._left: dict[int, int] = {}  # the newest epoch under which a partition is known not to be here
        self._backed = (0, 0)  # generation, and the highest B it was told in it
        self._transfers = Transfers()
        self._out = out

    @property
    def open_endpoints(self) -> frozenset[str]:
        """The endpoints that something may still be on its way to; connections to others can be closed."""
        known = (peer for replica in self._replicas.values() for peer in (replica.backup, replica.target))
        return self._transfers.receiver_endpoints | {peer.endpoint for peer in known if peer is not None}

    def role_of(self, partition: int) -> ReplicaRole | None:
        """Returns this server's role for a partition, for reports; None where it has no replica of it."""
        replica = self._replicas.get(partition)
        return None if replica is None else replica.role

    def completed_clock(self, partition: int) -> int | None:
        """Returns the completed clock of its replica here."""
        replica = self._replicas.get(partition)
        return None if replica is None else replica.state.clock

    @property
    def partition_numbers(self) -> Iterable[int]:
        """The partitions that have a replica here."""
        return self._replicas.keys()

    def known_epoch(self, partition: int) -> int:
        """Returns the newest epoch under which the partition is known to be here, or not to be."""
        replica = self._replicas.get(partition)
        return self._left.get(partition, 0) if replica is None else replica.epoch

    # ---- from workers --------------------------------------------------------------------------

    def answer_request(self, asked: RequestPart) -> bool:
        """Answers the part, if it can be answered now."""
        partition = asked.part.partition
        replica, left = self._replicas.get(partition), self._left.get(partition, 0)
        said = answer_part(asked, replica, left, self._barrier)
        if isinstance(said, Answer):
            self._out.append(Reply(asked.sender, said))
        if replica is not None and isinstance(said, UpdateDone):
            self._out += replica.complete_clocks(self._me.machine, self._barrier)
            self._out += replica.next_push()
        return said is not WAIT

    # ---- from other servers --------------------------------------------------------------------

    def take_in(self, came: PeerMessage) -> bool:
        """Applies a message of another server, and confirms it to its sender."""
        match came.message:
            case Push():
                return self._apply_push(came.sender, came.message)
            case Install():
                done = self._install_partition(came.message)
            case EndOfLife():
                done = self._apply_end_of_life(came.message)
        if done:
            self._out.append(Reply(came.sender, Arrived(came.message.partition, came.message.epoch)))
        return done

    def handle_notice(self, notice: Notice) -> None:
        """Handles the answer to a range or a partition that was sent."""
        match notice:
            case PushDone() | Lacking():
                self._handle_push_notice(notice)
            case Arrived(partition, epoch):
                self._transfers.drop_transfer(partition, epoch)
            case Missing(partition, epoch):
                self._out += self._transfers.send_again(partition, epoch)

    def answer_push_inquiry(self, sender: str, asked: PushInquiry) -> None:
        """Answers what the replica holds of a push, if that is for this server to say."""
        replica = self._replicas.get(asked.partition)
        said = None if replica is None else replica.answer_inquiry(asked)
        if said is not None:
            self._out.append(Reply(sender, said))

    def retry_unanswered(self) -> list[Outgoing]:
        """Asks other servers after what has had no answer since before the last call."""
        asked: list[Outgoing] = [*self._transfers.retry_unanswered()]
        for partition, replica in self._replicas.items():
            pushes = replica.role is ReplicaRole.SERVING or self._transfers.ends_life(partition)
            if pushes and replica.backup and replica.sent > replica.acked and not replica.pushed_lately:
                asked.append(Send(replica.backup, PushInquiry(partition, replica.generation, replica.sent)))
            replica.pushed_lately = False
        return asked

    def _apply_push(self, sender: str, push: Push) -> bool:
        replica = self._replicas.get(push.partition)
        if replica is None:
            return False
        # No backup any more. The push is done with if this replica already has all that it brings.
        if replica.role is not ReplicaRole.BACKUP:
            return replica.generation >= push.generation and replica.state.clock >= push.clock
        if not replica.adopt_generation(push) or replica.state.clock < push.since:
            return replica.generation > push.generation
        if push.clock > replica.state.clock:
            replica.state.drop_pending()
            replica.state.overwrite_rows(push.patch, push.clock)
            replica.state.trim_undo(replica.backed)
            self._out.append(BackedUp(self._me.machine, push.partition, replica.generation, push.clock))
        done = PushDone(push.partition, push.generation, push.clock)
        self._out.append(Reply(sender, done))
        return True

    def _handle_push_notice(self, said: PushDone | Lacking) -> None:
        replica = self._replicas.get(said.partition)
        if replica is None:
            return
        if isinstance(said, PushDone):
            replica.confirm_push(said)
            self._out += replica.next_push()
        elif replica.role is ReplicaRole.SERVING or self._transfers.ends_life(said.partition):
            self._out += replica.push_again(said)

    def _apply_end_of_life(self, last: EndOfLife) -> bool:
        replica = self._replicas.get(last.partition)
        if replica is None or last.epoch <= replica.epoch or replica.role is not ReplicaRole.BACKUP:
            return last.epoch <= self.known_epoch(last.partition)
        if not replica.adopt_generation(last) or replica.state.clock < last.clock:
            return replica.generation > last.generation
        replica.state.drop_pending()
        replica.state.split_last(last.undo)
        replica.cuts.update(last.cuts)
        for late in last.pending:
            replica.state.add_deltas(late.clock, (late.delta,))
        self._start_serving(replica, last.epoch, None)
        return True

    def _install_partition(self, message: Install) -> bool:
        partition, replica = message.partition, self._replicas.get(message.partition)
        stale = replica is not None and message.generation < replica.generation
        if stale or message.epoch <= self.known_epoch(partition):
            return True
        # An Advance may have overtaken the partition on its way here.
        generation, advanced = self._backed
        backed = max(message.backed, advanced) if generation == message.generation else message.backed
        self._replicas[partition] = replica = Replica.from_install(message, backed, self._barrier)
        if message.serve:
            self._start_serving(replica, message.epoch, message.backup)
        else:
            self._follow_as_backup(replica, message.epoch)
        return True

    def _follow_as_backup(self, replica: Replica, epoch: int) -> None:
        """Becomes the backup of the server that sent it."""
        replica.epoch = epoch
        self._out.append(Installed(self._me.machine, replica.partition, epoch, replica.state.clock))
        for clock in replica.state.returnable_clocks:
            self._out.append(BackedUp(self._me.machine, replica.partition, replica.generation, clock))

    def _start_serving(self, replica: Replica, epoch: int, backup: Peer | None) -> None:
        replica.start_serving(epoch, backup)
        self._out.append(Installed(self._me.machine, replica.partition, epoch, replica.state.clock))
        if backup is not None:
            self._out += replica.next_push()
            return
        # Without a backup this replica is the durable one: the controller must know all that it can return
        # to.
        for clock in replica.state.keep_all():
            self._out.append(ClockCompleted(self._me.machine, replica.partition, replica.generation, clock))

    # ---- commands of the controller ------------------------------------------------------------

    def create_partition(self, command: Create) -> None:
        partition, clock = command.partition, command.clock
        if clock == 0:
            values = self._initial(partition_rows(self._shape, partition, self._setup.partitions))
        else:
            values = self._stored(command.folder, partition)
        values = values + np.float32(0)  # no -0.0, so that it does not matter what sums of deltas start from
        state = PartitionState(values, clock, self._barrier)
        replica = Replica(partition, state, ReplicaRole.SERVING, 0, command.generation, clock, clock)
        replica.assume_backup_at(clock)
        self._transfers.drop_transfer(partition)
        self._replicas[partition] = replica
        self._start_serving(replica, command.epoch, None)

    def carry_out_move(self, move: Move) -> bool:
        """Sends the replica on, or back, or rolls it back to a clock."""
        replica = self._replicas.get(move.partition)
        if replica is None:
            return move.epoch <= self._left.get(move.partition, 0)
        match move:
            case Handover():
                return self._hand_over(replica, move)
            case BackUp():
                return self._back_up(replica, move)
            case Restore():
                return self._restore_partition(replica, move)
            case Rollback():
                return self._roll_back(replica, move)

    def _hand_over(self, replica: Replica, command: Handover) -> bool:
        if command.epoch <= replica.epoch:
            return True
        if command.generation > replica.generation:
            return False
        if command.target == self._me.machine:
            # All that a new backup is known to hold is B.
            if replica.backup != command.backup:
                replica.assume_backup_at(replica.backed)
            self._transfers.drop_transfer(command.partition)
            self._start_serving(replica, command.epoch, command.backup)
            return True
        self._send_on(replica, command, command.backup, keep=command.keep_backup, to_backup=command.to_backup)
        if command.keep_backup:
            for clock in replica.state.returnable_clocks:
                self._out.append(BackedUp(self._me.machine, command.partition, replica.generation, clock))
        return True

    def _back_up(self, replica: Replica, command: BackUp) -> bool:
        """Makes ``target`` the backup. Its copy goes first, over the connection that later pushes take."""
        # A copy of another generation would carry clocks that were rolled back.
        if command.generation != replica.generation or replica.role is not ReplicaRole.SERVING:
            return command.generation < replica.generation or command.epoch < replica.epoch
        replica.backup = command.target
        replica.assume_backup_at(replica.state.clock)
        replica.state.keep_all()
        whole = replica.make_install(command.epoch, replica.acked)
        self._out.append(self._transfers.start_transfer(command.target, replace(whole, serve=False)))
        return True

    def _send_on(
        self,
        replica: Replica,
        command: Handover | Restore,
        backup: Peer | None,
        *,
        keep: bool,
        to_backup: bool,
    ) -> None:
        """Stops serving and sends what the target lacks. Pending deltas stay, should it
        have to be repeated.
        """
        target = Peer(command.target, command.endpoint)
        replica.role, replica.target = ReplicaRole.BACKUP if keep else ReplicaRole.FROZEN, target
        replica.epoch = self._left[command.partition] = command.epoch
        if to_backup:
            self._out += replica.last_pushes()
            self._out.append(self._transfers.start_transfer(target, replica.make_end_of_life(command.epoch)))
            return
        state = replica.state
        acked = replica.acked if backup == replica.backup else replica.backed
        whole = replica.make_install(command.epoch, state.clock if keep else acked)
        self._out.append(
            self._transfers.start_transfer(
                target, replace(whole, pending=state.pending_deltas, backup=backup)
            )
        )

    def _restore_partition(self, replica: Replica, command: Restore) -> bool:
        if command.epoch <= replica.epoch:
            return True
        self._return_to(replica, command)
        if command.target == self._me.machine:
            self._start_serving(replica, command.epoch, None)
        else:
            self._send_on(replica, command, self._me, keep=True, to_backup=False)
        return True

    def _roll_back(self, replica: Replica, command: Rollback) -> bool:
        """Rolls a replica back. A frozen one is served again: its hand-over is called off."""
        if command.generation <= replica.generation:
            return True
        self._return_to(replica, command)
        if replica.role is ReplicaRole.FROZEN:
            self._start_serving(replica, command.epoch, replica.backup)
        replica.epoch = max(replica.epoch, command.epoch)
        return True

    def _return_to(self, replica: Replica, command: Restore | Rollback) -> None:
        """Returns to the command's clock. What is on its way is outdated, and is sent anew to those that need
        it.
        """
        self._transfers.drop_transfer(command.partition)
        replica.return_to(command.generation, command.clock)

    def discard_partition(self, command: Forget) -> None:
        partition, replica = command.partition, self._replicas.get(command.partition)
        if replica is not None and replica.role is ReplicaRole.SERVING and replica.epoch == command.epoch:
            raise ProtocolError(f"{self._me.machine} was told to forget partition {partition} it serves")
        if replica is not None and replica.epoch <= command.epoch:
            del self._replicas[partition]
        self._transfers.drop_transfer(partition, command.epoch)
        self._left[partition] = max(self._left.get(partition, 0), command.epoch)

    def advance_consistent(self, command: Advance) -> None:
        self._backed = max(self._backed, (command.generation, command.clock))
        for replica in self._replicas.values():
            if replica.generation <= command.generation:  # others began at a checkpoint, before that clock
                replica.mark_backed(command.clock)
                self._out += replica.next_push()

    def save_model(self, command: SaveModel) -> bool:
        kept = {p: self._replicas[p] for p in command.partitions if p in self._replicas}
        if any(replica.generation > command.generation for replica in kept.values()):
            return True
        if len(kept) < len(command.partitions):
            return False
        if any(replica.state.clock < command.clock for replica in kept.values()):
            return False
        for replica in kept.values():
            replica.state.roll_back(command.clock)  # after a stop some may be beyond the last clock
            # Nobody needs to read any more, and later clocks have no undo left to read by.
            replica.role = ReplicaRole.FROZEN
        values = tuple((p, replica.state.all_values()) for p, replica in kept.items())
        self._out.append(Save(command.generation, command.clock, values))
        return True

    def take_snapshot(self, command: WriteCheckpoint) -> None:
        """Takes the partitions' values at the command's clock, or refuses.

        A copy that arrived by the faster way may have replaced the intended one, and begin later.
        """
        replica = {p: self._replicas[p].state for p in command.partitions if p in self._replicas}
        gone = [
            p for p in command.partitions if p not in replica or not replica[p].can_return_to(command.clock)
        ]
        if gone:
            why = f"clock {command.clock} of partitions {gone} is not on {self._me.machine} any more"
            self._out.append(CheckpointRefused(self._me.machine, command.attempt, why))
            return
        states = tuple((p, state.values_at(command.clock)) for p, state in replica.items())
        self._out.append(Snapshot(command.attempt, command.folder, command.clock, states))
