"""Holds a server's replicas of partitions, and answers workers from them.

A replica is in one of three roles: serving (a ParamServ, or an ActivePS when it has a backup), backup (a
BackupPS), or frozen (handed over, kept until the new owner is known to have it). What becomes of them as the
controller commands is in ``replica_moves``, and as other servers speak in ``peer_traffic``.

Rule 1: a message of an older generation is dropped; one of a newer generation waits for the roll-back it
knows of. A backup learns the generation from the first ``Push``, which says where it started from.

Rule 2: what travels to a backup or a new owner is applied in order of clocks, whichever server sent it.

Rule 3: ranges for backups are sent one after the other (``replica``).

Rule 4: a message to another server that has had no answer for a while is asked after, and sent again if it
was lost (``transfers`` for partitions that move).

Source: Harlap 4.2.2 and 4.2.3. Values rather than deltas go to the backup, see ``messages.Push``.
"""

from __future__ import annotations

from collections.abc import Iterable

from agileml.protocol.commands import Advance, SaveModel, WriteCheckpoint
from agileml.protocol.events import CheckpointRefused
from agileml.protocol.messages import Answer, Outgoing, Reply, Save, Snapshot, UpdateDone
from agileml.server.pending_requests import RequestPart
from agileml.server.reads_and_updates import WAIT, answer_part
from agileml.server.replica import Replica, ReplicaRole
from agileml.sync.base import Barrier


class Replicas:
    """All replicas on the server of ``machine``, and what is known of partitions that are not here.

    ``out``: receives what is to be sent and reported. Methods that return a truth value say whether the
    message is done with: carried out, answered or stale.
    """

    def __init__(self, machine: str, barrier: Barrier, out: list[Outgoing]) -> None:
        self._machine = machine
        self._barrier = barrier
        self._replicas: dict[int, Replica] = {}
        self._left: dict[int, int] = {}  # the newest epoch under which a partition is known not to be here
        self._backed = (0, 0)  # generation, and the highest B it was told in it
        self._out = out

    def find_replica(self, partition: int) -> Replica | None:
        return self._replicas.get(partition)

    @property
    def all_replicas(self) -> Iterable[Replica]:
        return self._replicas.values()

    @property
    def partition_numbers(self) -> Iterable[int]:
        """The partitions that have a replica here."""
        return self._replicas.keys()

    def completed_clock(self, partition: int) -> int | None:
        """Returns the completed clock of its replica here."""
        replica = self._replicas.get(partition)
        return None if replica is None else replica.state.clock

    def known_epoch(self, partition: int) -> int:
        """Returns the newest epoch under which the partition is known to be here, or not to be."""
        replica = self._replicas.get(partition)
        return self.left_epoch(partition) if replica is None else replica.epoch

    def left_epoch(self, partition: int) -> int:
        """Returns the newest epoch under which the partition is known not to be here."""
        return self._left.get(partition, 0)

    def known_consistent(self, generation: int) -> int:
        """Returns the highest B that this server was told in ``generation``; 0 for any but the latest."""
        latest, clock = self._backed
        return clock if latest == generation else 0

    # ---- changes -------------------------------------------------------------------------------

    def add_replica(self, replica: Replica) -> None:
        """Adds a replica, in place of one of the same partition."""
        self._replicas[replica.partition] = replica

    def remove_replica(self, partition: int) -> None:
        del self._replicas[partition]

    def mark_left(self, partition: int, epoch: int) -> None:
        """Records that the partition lives elsewhere under ``epoch``."""
        self._left[partition] = max(self.left_epoch(partition), epoch)

    def advance_consistent(self, command: Advance) -> None:
        self._backed = max(self._backed, (command.generation, command.clock))
        for replica in self._replicas.values():
            if replica.generation <= command.generation:  # others began at a checkpoint, before that clock
                replica.ranges.mark_backed(command.clock)
                self._out += replica.next_push()

    # ---- answers -------------------------------------------------------------------------------

    def answer_request(self, asked: RequestPart) -> bool:
        """Answers the part, if it can be answered now."""
        partition = asked.part.partition
        replica, left = self._replicas.get(partition), self.left_epoch(partition)
        said = answer_part(asked, replica, left, self._barrier)
        if isinstance(said, Answer):
            self._out.append(Reply(asked.sender, said))
        if replica is not None and isinstance(said, UpdateDone):
            self._out += replica.complete_clocks(self._machine, self._barrier)
            self._out += replica.next_push()
        return said is not WAIT

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
            why = f"clock {command.clock} of partitions {gone} is not on {self._machine} any more"
            self._out.append(CheckpointRefused(self._machine, command.attempt, why))
            return
        states = tuple((p, state.values_at(command.clock)) for p, state in replica.items())
        self._out.append(Snapshot(command.attempt, command.folder, command.clock, states))
