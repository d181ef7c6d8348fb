"""A server's copies of partitions: what becomes of each as workers, other servers and the controller speak.

A copy is in one of three roles: serving (a ParamServ, or an ActivePS when it has a backup), backup (a
BackupPS), or frozen (handed over, kept until the new owner is known to have it). When something comes that
cannot be done yet it is said to be so; when to try it again is for ``server`` to know.

Rule 1: a message of an older generation is dropped; one of a newer generation waits for the roll-back it
knows of. A backup learns the generation from the first ``Push``, which says where it started from.
Rule 2: what travels to a backup or a new owner is applied in order of clocks, whoever sent it.
Rule 3: ranges for backups are sent one after the other (``held``).
Rule 4: whatever needs an answer from another server and has none for a while is asked after, and sent again
if it was lost (``outbox`` for partitions that move).

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


class Replicas:
    """``initial``, ``stored``: see ``server.Server``. ``out``: takes in what is to be sent, and told.

    Methods that return a truth value say whether the matter is done with: carried out, answered or stale.
    """

    def __init__(
        self,
        me: Peer,
        setup: Setup,
        shape: Shape,
        initial: Callable[[Rows], Matrix],
        stored: Callable[[str, int], Matrix],
        out: list[Outgoing],
    ) -> None:
        self._me = me
        self._setup = setup
        self._shape = shape
        self._initial = initial
        self._stored = stored
        self._held: dict[int, Replica] = {}
        self._left: dict[int, int] = {}  # the newest epoch under which a partition is known not to be here
        self._backed = (0, 0)  # generation, and the highest B it was told in it
        self._outbox = Transfers()
        self._out = out

    @property
    def open_endpoints(self) -> frozenset[str]:
        """The endpoints that something may still be on its way to; connections to others can be closed."""
        known = (peer for held in self._held.values() for peer in (held.backup, held.target))
        return self._outbox.receiver_endpoints | {peer.endpoint for peer in known if peer is not None}

    def role_of(self, partition: int) -> ReplicaRole | None:
        """What this server is to a partition, for reports; None where it holds nothing of it."""
        held = self._held.get(partition)
        return None if held is None else held.role

    def completed_clock(self, partition: int) -> int | None:
        """The completed clock of its copy here."""
        held = self._held.get(partition)
        return None if held is None else held.state.clock

    @property
    def partition_numbers(self) -> Iterable[int]:
        """Those of which there is a copy here."""
        return self._held.keys()

    def known_epoch(self, partition: int) -> int:
        """The newest epoch under which the partition is known to be here, or not to be."""
        held = self._held.get(partition)
        return self._left.get(partition, 0) if held is None else held.epoch

    # ---- from workers --------------------------------------------------------------------------

    def answer_request(self, asked: RequestPart) -> bool:
        """Answer it, if it can be answered now."""
        partition = asked.part.partition
        held, left = self._held.get(partition), self._left.get(partition, 0)
        said = answer_part(asked, held, left, self._setup)
        if isinstance(said, Answer):
            self._out.append(Reply(asked.sender, said))
        if held is not None and isinstance(said, UpdateDone):
            self._out += held.complete_clocks(self._me.machine, self._setup.lag_limit)
            self._out += held.next_push()
        return said is not WAIT

    # ---- from other servers --------------------------------------------------------------------

    def take_in(self, came: PeerMessage) -> bool:
        """Take it in, and let its sender know that it is here."""
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
        """What became of a range or a partition that was sent."""
        match notice:
            case PushDone() | Lacking():
                self._handle_push_notice(notice)
            case Arrived(partition, epoch):
                self._outbox.drop_transfer(partition, epoch)
            case Missing(partition, epoch):
                self._out += self._outbox.send_again(partition, epoch)

    def answer_push_inquiry(self, sender: str, asked: PushInquiry) -> None:
        """What the copy holds of it, if that is for this server to say."""
        held = self._held.get(asked.partition)
        said = None if held is None else held.answer_inquiry(asked)
        if said is not None:
            self._out.append(Reply(sender, said))

    def retry_unanswered(self) -> list[Outgoing]:
        """Time has passed: ask other servers after what has had no answer since before the last time."""
        asked: list[Outgoing] = [*self._outbox.retry_unanswered()]
        for partition, held in self._held.items():
            pushes = held.role is ReplicaRole.SERVING or self._outbox.ends_life(partition)
            if pushes and held.backup and held.sent > held.acked and not held.pushed_lately:
                asked.append(Send(held.backup, PushInquiry(partition, held.generation, held.sent)))
            held.pushed_lately = False
        return asked

    def _apply_push(self, sender: str, push: Push) -> bool:
        held = self._held.get(push.partition)
        if held is None:
            return False
        if held.role is not ReplicaRole.BACKUP:
            return held.generation >= push.generation and held.state.clock >= push.clock
        if not held.adopt_generation(push) or held.state.clock < push.since:
            return held.generation > push.generation
        if push.clock > held.state.clock:
            held.state.drop_pending()
            held.state.overwrite_rows(push.patch, push.clock)
            held.state.trim_undo(held.backed)
            self._out.append(BackedUp(self._me.machine, push.partition, held.generation, push.clock))
        done = PushDone(push.partition, push.generation, push.clock)
        self._out.append(Reply(sender, done))
        return True

    def _handle_push_notice(self, said: PushDone | Lacking) -> None:
        held = self._held.get(said.partition)
        if held is None:
            return
        if isinstance(said, PushDone):
            held.confirm_push(said)
            self._out += held.next_push()
        elif held.role is ReplicaRole.SERVING or self._outbox.ends_life(said.partition):
            self._out += held.push_again(said)

    def _apply_end_of_life(self, last: EndOfLife) -> bool:
        held = self._held.get(last.partition)
        if held is None or last.epoch <= held.epoch or held.role is not ReplicaRole.BACKUP:
            return last.epoch <= self.known_epoch(last.partition)
        if not held.adopt_generation(last) or held.state.clock < last.clock:
            return held.generation > last.generation
        held.state.drop_pending()
        held.state.split_last(last.undo)
        held.cuts.update(last.cuts)
        for late in last.pending:
            held.state.add_deltas(late.clock, (late.delta,))
        self._start_serving(held, last.epoch, None)
        return True

    def _install_partition(self, message: Install) -> bool:
        partition, held = message.partition, self._held.get(message.partition)
        stale = held is not None and message.generation < held.generation
        if stale or message.epoch <= self.known_epoch(partition):
            return True
        generation, advanced = self._backed
        backed = max(message.backed, advanced) if generation == message.generation else message.backed
        self._held[partition] = held = Replica.from_install(message, backed, self._setup)
        if message.serve:
            self._start_serving(held, message.epoch, message.backup)
        else:
            self._follow_as_backup(held, message.epoch)
        return True

    def _follow_as_backup(self, held: Replica, epoch: int) -> None:
        """As the backup of whoever sent it."""
        held.epoch = epoch
        self._out.append(Installed(self._me.machine, held.partition, epoch, held.state.clock))
        for clock in held.state.returnable_clocks:
            self._out.append(BackedUp(self._me.machine, held.partition, held.generation, clock))

    def _start_serving(self, held: Replica, epoch: int, backup: Peer | None) -> None:
        held.start_serving(epoch, backup)
        self._out.append(Installed(self._me.machine, held.partition, epoch, held.state.clock))
        if backup is not None:
            self._out += held.next_push()
            return
        for clock in held.state.keep_all():
            self._out.append(ClockCompleted(self._me.machine, held.partition, held.generation, clock))

    # ---- commands of the controller ------------------------------------------------------------

    def create_partition(self, command: Create) -> None:
        partition, clock = command.partition, command.clock
        if clock == 0:
            values = self._initial(partition_rows(self._shape, partition, self._setup.partitions))
        else:
            values = self._stored(command.folder, partition)
        values = values + np.float32(0)  # no -0.0, so that it does not matter what sums of deltas start from
        state = PartitionState(values, clock, self._setup.shards, self._setup.staleness)
        held = Replica(partition, state, ReplicaRole.SERVING, 0, command.generation, clock, clock)
        held.assume_backup_at(clock)
        self._outbox.drop_transfer(partition)
        self._held[partition] = held
        self._start_serving(held, command.epoch, None)

    def carry_out_move(self, move: Move) -> bool:
        """Send the copy on, or back, or take it back to a clock."""
        held = self._held.get(move.partition)
        if held is None:
            return move.epoch <= self._left.get(move.partition, 0)
        match move:
            case Handover():
                return self._hand_over(held, move)
            case BackUp():
                return self._back_up(held, move)
            case Restore():
                return self._restore_partition(held, move)
            case Rollback():
                return self._roll_back(held, move)

    def _hand_over(self, held: Replica, command: Handover) -> bool:
        if command.epoch <= held.epoch:
            return True
        if command.generation > held.generation:
            return False
        if command.target == self._me.machine:
            if held.backup != command.backup:
                held.assume_backup_at(held.backed)
            self._outbox.drop_transfer(command.partition)
            self._start_serving(held, command.epoch, command.backup)
            return True
        self._send_on(held, command, command.backup, keep=command.keep_backup, to_backup=command.to_backup)
        if command.keep_backup:
            for clock in held.state.returnable_clocks:
                self._out.append(BackedUp(self._me.machine, command.partition, held.generation, clock))
        return True

    def _back_up(self, held: Replica, command: BackUp) -> bool:
        """The copy goes first on the same way as what is pushed later."""
        if command.generation != held.generation or held.role is not ReplicaRole.SERVING:
            return command.generation < held.generation or command.epoch < held.epoch
        held.backup = command.target
        held.assume_backup_at(held.state.clock)
        held.state.keep_all()
        whole = held.make_install(command.epoch, held.acked)
        self._out.append(self._outbox.start_transfer(command.target, replace(whole, serve=False)))
        return True

    def _send_on(
        self, held: Replica, command: Handover | Restore, backup: Peer | None, *, keep: bool, to_backup: bool
    ) -> None:
        """Stop serving and send what the target lacks. Pending deltas stay, should it have to be repeated."""
        target = Peer(command.target, command.endpoint)
        held.role, held.target = ReplicaRole.BACKUP if keep else ReplicaRole.FROZEN, target
        held.epoch = self._left[command.partition] = command.epoch
        if to_backup:
            self._out += held.last_pushes()
            self._out.append(self._outbox.start_transfer(target, held.make_end_of_life(command.epoch)))
            return
        state = held.state
        acked = held.acked if backup == held.backup else held.backed
        whole = held.make_install(command.epoch, state.clock if keep else acked)
        self._out.append(
            self._outbox.start_transfer(target, replace(whole, pending=state.pending_deltas, backup=backup))
        )

    def _restore_partition(self, held: Replica, command: Restore) -> bool:
        if command.epoch <= held.epoch:
            return True
        self._return_to(held, command)
        if command.target == self._me.machine:
            self._start_serving(held, command.epoch, None)
        else:
            self._send_on(held, command, self._me, keep=True, to_backup=False)
        return True

    def _roll_back(self, held: Replica, command: Rollback) -> bool:
        """A frozen partition is served again: its hand-over is called off."""
        if command.generation <= held.generation:
            return True
        self._return_to(held, command)
        if held.role is ReplicaRole.FROZEN:
            self._start_serving(held, command.epoch, held.backup)
        held.epoch = max(held.epoch, command.epoch)
        return True

    def _return_to(self, held: Replica, command: Restore | Rollback) -> None:
        """What is on its way is of the past, and whoever has to get it anew will be sent it."""
        self._outbox.drop_transfer(command.partition)
        held.return_to(command.generation, command.clock)

    def discard_partition(self, command: Forget) -> None:
        partition, held = command.partition, self._held.get(command.partition)
        if held is not None and held.role is ReplicaRole.SERVING and held.epoch == command.epoch:
            raise ProtocolError(f"{self._me.machine} was told to forget partition {partition} it serves")
        if held is not None and held.epoch <= command.epoch:
            del self._held[partition]
        self._outbox.drop_transfer(partition, command.epoch)
        self._left[partition] = max(self._left.get(partition, 0), command.epoch)

    def advance_consistent(self, command: Advance) -> None:
        self._backed = max(self._backed, (command.generation, command.clock))
        for held in self._held.values():
            if held.generation <= command.generation:  # others began at a checkpoint, before that clock
                held.mark_backed(command.clock)
                self._out += held.next_push()

    def save_model(self, command: SaveModel) -> bool:
        kept = {p: self._held[p] for p in command.partitions if p in self._held}
        if any(held.generation > command.generation for held in kept.values()):
            return True
        if len(kept) < len(command.partitions):
            return False
        if any(held.state.clock < command.clock for held in kept.values()):
            return False
        for held in kept.values():
            held.state.roll_back(command.clock)  # after a stop some may be further than the last clock
            held.role = (
                ReplicaRole.FROZEN
            )  # whoever still wants to compute need not, and finds no undo to read by
        values = tuple((p, held.state.all_values()) for p, held in kept.items())
        self._out.append(Save(command.generation, command.clock, values))
        return True

    def take_snapshot(self, command: WriteCheckpoint) -> None:
        """A copy that came by the faster way may have replaced the one that was meant, and begin later."""
        held = {p: self._held[p].state for p in command.partitions if p in self._held}
        gone = [p for p in command.partitions if p not in held or not held[p].can_return_to(command.clock)]
        if gone:
            why = f"clock {command.clock} of partitions {gone} is not on {self._me.machine} any more"
            self._out.append(CheckpointRefused(self._me.machine, command.attempt, why))
            return
        states = tuple((p, state.values_at(command.clock)) for p, state in held.items())
        self._out.append(Snapshot(command.attempt, command.folder, command.clock, states))
