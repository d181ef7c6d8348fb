"""Takes in what other servers send: ranges for backups, partitions that move, and answers to both.

A message that cannot be carried out yet is reported as such; when to try it again is for ``server`` to know.
The rules are those of ``replicas``.
"""

from __future__ import annotations

from agileml.protocol.events import BackedUp
from agileml.protocol.messages import (
    Arrived,
    EndOfLife,
    Install,
    Lacking,
    Missing,
    Notice,
    Outgoing,
    Push,
    PushDone,
    PushInquiry,
    Reply,
    Send,
)
from agileml.server.pending_requests import PeerMessage
from agileml.server.replica import Replica, ReplicaRole
from agileml.server.replicas import Replicas
from agileml.server.transfers import Transfers
from agileml.sync.base import Barrier


class PeerTraffic:
    """The traffic of the server of ``machine`` with others.

    ``transfers``: what is on its way from here; ``out``: receives what is to be sent and reported. Methods
    that return a truth value say whether the message is done with: applied or stale.
    """

    def __init__(
        self,
        machine: str,
        replicas: Replicas,
        transfers: Transfers,
        barrier: Barrier,
        out: list[Outgoing],
    ) -> None:
        self._machine = machine
        self._replicas = replicas
        self._transfers = transfers
        self._barrier = barrier
        self._out = out

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
        replica = self._replicas.find_replica(asked.partition)
        said = None if replica is None else replica.answer_inquiry(asked)
        if said is not None:
            self._out.append(Reply(sender, said))

    def retry_unanswered(self) -> list[Outgoing]:
        """Asks other servers after what has had no answer since before the last call."""
        asked: list[Outgoing] = [*self._transfers.retry_unanswered()]
        for replica in self._replicas.all_replicas:
            partition, ranges = replica.partition, replica.ranges
            pushes = replica.role is ReplicaRole.SERVING or self._transfers.ends_life(partition)
            if pushes and ranges.backup and ranges.lacks_answer:
                asked.append(Send(ranges.backup, PushInquiry(partition, replica.generation, ranges.sent)))
            ranges.pushed_lately = False
        return asked

    def _apply_push(self, sender: str, push: Push) -> bool:
        replica = self._replicas.find_replica(push.partition)
        if replica is None:
            return False
        # No backup any more. The push is done with if this replica already has all that it brings.
        if replica.role is not ReplicaRole.BACKUP:
            return replica.generation >= push.generation and replica.state.clock >= push.clock
        if not replica.adopt_generation(push) or replica.state.clock < push.since:
            return replica.generation > push.generation
        if push.clock > replica.state.clock:
            # Left from when it served, in case its hand-over was called off. The new owner has them too.
            replica.state.drop_pending()
            replica.state.overwrite_rows(push.patch, push.clock)
            replica.state.trim_undo(replica.ranges.backed)
            self._out.append(BackedUp(self._machine, push.partition, replica.generation, push.clock))
        done = PushDone(push.partition, push.generation, push.clock)
        self._out.append(Reply(sender, done))
        return True

    def _handle_push_notice(self, said: PushDone | Lacking) -> None:
        replica = self._replicas.find_replica(said.partition)
        if replica is None:
            return
        if isinstance(said, PushDone):
            replica.confirm_push(said)
            self._out += replica.next_push()
        elif replica.role is ReplicaRole.SERVING or self._transfers.ends_life(said.partition):
            self._out += replica.push_again(said)

    def _apply_end_of_life(self, last: EndOfLife) -> bool:
        replica = self._replicas.find_replica(last.partition)
        if replica is None or last.epoch <= replica.epoch or replica.role is not ReplicaRole.BACKUP:
            return last.epoch <= self._replicas.known_epoch(last.partition)
        if not replica.adopt_generation(last) or replica.state.clock < last.clock:
            return replica.generation > last.generation
        replica.state.drop_pending()
        replica.state.undo.split_last(last.undo)
        replica.ranges.cuts.update(last.cuts)
        for late in last.pending:
            replica.state.add_deltas(late.clock, (late.delta,))
        self._out += replica.start_serving(self._machine, last.epoch, None)
        return True

    def _install_partition(self, message: Install) -> bool:
        partition, replica = message.partition, self._replicas.find_replica(message.partition)
        stale = replica is not None and message.generation < replica.generation
        if stale or message.epoch <= self._replicas.known_epoch(partition):
            return True
        # An Advance may have overtaken the partition on its way here.
        backed = max(message.backed, self._replicas.known_consistent(message.generation))
        replica = Replica.from_install(message, backed, self._barrier)
        self._replicas.add_replica(replica)
        if message.serve:
            self._out += replica.start_serving(self._machine, message.epoch, message.backup)
        else:
            self._out += replica.follow_as_backup(self._machine, message.epoch)
        return True
