"""Makes, moves, rolls back and discards replicas, as the controller commands.

A command that cannot be carried out yet is reported as such; when to try it again is for ``server`` to know.
The rules are those of ``replicas``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from agileml.node.arrays import Matrix
from agileml.protocol.commands import BackUp, Create, Forget, Handover, Restore, Rollback
from agileml.protocol.messages import EndOfLife, Install, Outgoing, Peer, ProtocolError
from agileml.server.backup_ranges import BackupRanges
from agileml.server.partition import PartitionState
from agileml.server.pending_requests import Move
from agileml.server.replica import Replica, ReplicaRole
from agileml.server.replicas import Replicas
from agileml.server.transfers import Transfers
from agileml.sync.base import Barrier


class ReplicaMoves:
    """Carries out commands on the server ``me``.

    ``first_values(command)``: the values that a partition is made with; ``transfers``: what is on its way
    from here; ``out``: receives what is to be sent and reported.
    """

    def __init__(
        self,
        me: Peer,
        replicas: Replicas,
        transfers: Transfers,
        barrier: Barrier,
        first_values: Callable[[Create], Matrix],
        out: list[Outgoing],
    ) -> None:
        self._me = me
        self._replicas = replicas
        self._transfers = transfers
        self._barrier = barrier
        self._first_values = first_values
        self._out = out

    def create_partition(self, command: Create) -> None:
        # No -0.0, so that it does not matter what sums of deltas start from.
        values = self._first_values(command) + np.float32(0)
        state = PartitionState(values, command.clock, self._barrier)
        ranges = BackupRanges(state, backed=command.clock)
        ranges.assume_backup_at(command.clock)
        replica = Replica(
            command.partition, state, ReplicaRole.SERVING, 0, command.generation, command.clock, ranges
        )
        # One may be left from before the last copies were lost.
        self._transfers.drop_transfer(command.partition)
        self._replicas.add_replica(replica)
        self._start_serving(replica, command.epoch, None)

    def carry_out_move(self, move: Move) -> bool:
        """Sends the replica on, or back, or rolls it back to a clock."""
        replica = self._replicas.find_replica(move.partition)
        if replica is None:
            return move.epoch <= self._replicas.left_epoch(move.partition)
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
            if replica.ranges.backup != command.backup:
                replica.ranges.assume_backup_at(replica.ranges.backed)
            self._transfers.drop_transfer(command.partition)
            self._start_serving(replica, command.epoch, command.backup)
            return True
        self._send_on(replica, command, command.backup, keep=command.keep_backup, to_backup=command.to_backup)
        if command.keep_backup:
            self._out += replica.report_backed_up(self._me.machine)
        return True

    def _back_up(self, replica: Replica, command: BackUp) -> bool:
        """Makes ``target`` the backup. Its copy goes first, over the connection that later pushes take."""
        # A copy of another generation would carry clocks that were rolled back.
        if command.generation != replica.generation or replica.role is not ReplicaRole.SERVING:
            return command.generation < replica.generation or command.epoch < replica.epoch
        replica.ranges.backup = command.target
        replica.ranges.assume_backup_at(replica.state.clock)
        replica.state.undo.keep_all()
        whole = _make_install(replica, command.epoch, replica.ranges.acked)
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
        replica.epoch = command.epoch
        self._replicas.mark_left(command.partition, command.epoch)
        if to_backup:
            self._out += replica.last_pushes()
            # After these: it leaves out what the last range tells the backup already.
            last = _make_end_of_life(replica, command.epoch)
            self._out.append(self._transfers.start_transfer(target, last))
            return
        state = replica.state
        acked = replica.ranges.acked if backup == replica.ranges.backup else replica.ranges.backed
        whole = _make_install(replica, command.epoch, state.clock if keep else acked)
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
            self._start_serving(replica, command.epoch, replica.ranges.backup)
        replica.epoch = max(replica.epoch, command.epoch)
        return True

    def _return_to(self, replica: Replica, command: Restore | Rollback) -> None:
        """Returns to the command's clock. What is on its way is outdated, and is sent anew to those that need
        it.
        """
        self._transfers.drop_transfer(command.partition)
        replica.return_to(command.generation, command.clock)

    def discard_partition(self, command: Forget) -> None:
        partition = command.partition
        replica = self._replicas.find_replica(partition)
        if replica is not None and replica.role is ReplicaRole.SERVING and replica.epoch == command.epoch:
            raise ProtocolError(f"{self._me.machine} was told to forget partition {partition} it serves")
        if replica is not None and replica.epoch <= command.epoch:
            self._replicas.remove_replica(partition)
        self._transfers.drop_transfer(partition, command.epoch)
        self._replicas.mark_left(partition, command.epoch)

    def _start_serving(self, replica: Replica, epoch: int, backup: Peer | None) -> None:
        self._out += replica.start_serving(self._me.machine, epoch, backup)


def _make_install(replica: Replica, epoch: int, acked: int) -> Install:
    """Returns the whole replica, to be served, but for the deltas that are still to be summed."""
    state = replica.state
    return Install(
        replica.partition,
        epoch,
        replica.generation,
        replica.base,
        replica.ranges.backed,
        acked,
        state.clock,
        tuple(sorted(replica.ranges.cuts)),
        state.all_values(),
        state.undo.steps,
        pending=(),
        backup=None,
    )


def _make_end_of_life(replica: Replica, epoch: int) -> EndOfLife:
    """Returns what the backup lacks beside the ranges. What it overwrote for a range, it knows itself."""
    state = replica.state
    return EndOfLife(
        replica.partition,
        epoch,
        replica.generation,
        replica.base,
        state.clock,
        tuple(sorted(replica.ranges.cuts)),
        () if replica.ranges.alone == state.clock else state.undo.steps[-1:],
        state.pending_deltas,
    )
