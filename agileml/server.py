"""The parameter server of one machine, without sockets: messages and commands in, messages and events out.

Each partition it holds is in one of three roles: serving (a ParamServ, or an ActivePS when it has a
backup), backup (a BackupPS), or frozen (handed over, kept until the new owner is known to have it).
What cannot be answered yet waits and is tried again after every change.

Rule 1: a request is answered only under the epoch of the present ownership: an older one gets ``Moved``,
a newer one waits (the partition is on its way here). So an update is never acknowledged by a server that
the controller may still believe not to own the partition.
Rule 2: a message of an older generation is dropped; one of a newer generation waits for the roll-back it
knows of. A backup learns the generation from the first ``Push``, which says where it started from.
Rule 3: what travels to a backup or a new owner is applied in order of clocks, whoever sent it.

Source: Harlap 4.2.2 and 4.2.3. Values rather than deltas go to the backup, see ``messages.Push``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from agileml.events import (
    Advance,
    BackedUp,
    ClockCompleted,
    Create,
    Forget,
    Handover,
    Installed,
    Restore,
    Rollback,
    SaveModel,
    Setup,
)
from agileml.messages import (
    Behind,
    EndOfLife,
    Install,
    Matrix,
    Moved,
    Outgoing,
    Patch,
    Peer,
    ProtocolError,
    Push,
    ReadDone,
    ReadPart,
    Reply,
    Request,
    Rows,
    Save,
    Send,
    Transfer,
    UpdateDone,
    UpdatePart,
)
from agileml.partition import PartitionState, Shape, rows_of

ServerCommand: TypeAlias = Create | Handover | Restore | Rollback | Forget | Advance | SaveModel
_Move: TypeAlias = Handover | Restore | Rollback


class Role(StrEnum):
    SERVING = "serving"
    BACKUP = "backup"
    FROZEN = "frozen"


@dataclass(slots=True)
class _Held:
    """A partition on this server. ``base``: the clock its generation started from."""

    state: PartitionState
    role: Role
    epoch: int
    generation: int
    base: int
    backed: int
    backup: Peer | None
    target: Peer | None = None
    """Where it was handed to last: what was sent may still be on its way."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One part of a request, with what the whole request said."""

    sender: str
    request: int
    generation: int
    clock: int
    part: ReadPart | UpdatePart


_Waiting: TypeAlias = _Asked | Transfer | _Move | SaveModel


class Server:
    """``initial(rows)`` makes the start values of global rows, float32 of shape (len(rows), columns)."""

    def __init__(self, me: Peer, setup: Setup, shape: Shape, initial: Callable[[Rows], Matrix]) -> None:
        self.me = me
        self._setup = setup
        self._shape = shape
        self._initial = initial
        self._held: dict[int, _Held] = {}
        self._left: dict[int, int] = {}  # the newest epoch under which a partition is known not to be here
        self._backed = 0
        self._waiting: list[_Waiting] = []
        self._out: list[Outgoing] = []

    def handle(self, sender: str, message: Request | Transfer) -> tuple[Outgoing, ...]:
        """Take a message from a worker or another server. ``sender`` is where answers go."""
        if isinstance(message, Push | Install | EndOfLife):
            self._waiting.append(message)
            return self._settle()
        for part in message.parts:
            asked = _Asked(sender, message.request, message.generation, message.clock, part)
            self._waiting = [other for other in self._waiting if not _superseded(other, asked)]
            self._waiting.append(asked)
        return self._settle()

    def command(self, command: ServerCommand) -> tuple[Outgoing, ...]:
        """Take a command from the elasticity controller."""
        match command:
            case Create():
                self._create(command)
            case Forget():
                self._forget(command)
            case Advance():
                self._advance(command)
            case _:
                self._waiting.append(command)
        return self._settle()

    @property
    def peers(self) -> frozenset[str]:
        """The endpoints that something may still be on its way to; connections to others can be closed."""
        known = (peer for held in self._held.values() for peer in (held.backup, held.target))
        return frozenset(peer.endpoint for peer in known if peer is not None)

    def role(self, partition: int) -> Role | None:
        """What this server is to a partition, for reports; None where it holds nothing of it."""
        held = self._held.get(partition)
        return None if held is None else held.role

    # ---- waiting: everything that may come early is tried until it fits ------------------------

    def _settle(self) -> tuple[Outgoing, ...]:
        tried = -1
        while tried != len(self._waiting):
            tried = len(self._waiting)
            self._waiting = [item for item in self._waiting if not self._attempt(item)]
        out, self._out = tuple(self._out), []
        return out

    def _attempt(self, item: _Waiting) -> bool:
        """Whether the item is done with: carried out, answered or known to be stale."""
        match item:
            case _Asked():
                return self._asked(item)
            case Install():
                return self._install(item)
            case SaveModel():
                return self._save(item)
        held = self._held.get(item.partition)
        if held is None:
            return not isinstance(item, Push) and item.epoch <= self._left.get(item.partition, 0)
        match item:
            case Push():
                return self._push(held, item)
            case EndOfLife():
                return self._end_of_life(held, item)
            case Handover():
                return self._handover(held, item)
            case Restore():
                return self._restore(held, item)
            case Rollback():
                return self._rollback(held, item)

    # ---- requests of workers -------------------------------------------------------------------

    def _asked(self, asked: _Asked) -> bool:
        partition, epoch = asked.part.partition, asked.part.epoch
        held = self._held.get(partition)
        serving = held is not None and held.role is Role.SERVING
        newest = held.epoch - 1 if held is not None and serving else self._left.get(partition, 0)
        if epoch <= newest:
            self._reply(asked, Moved(asked.request, partition))
            return True
        if held is None or not serving or epoch > held.epoch or asked.generation > held.generation:
            return False
        if asked.generation < held.generation:
            return True
        if isinstance(asked.part, UpdatePart):
            return self._update(held, asked, asked.part)
        return self._read(held, asked, asked.part)

    def _read(self, held: _Held, asked: _Asked, part: ReadPart) -> bool:
        state = held.state
        if state.clock > asked.clock:
            # A clock beyond is complete here, and no worker starts one before its last is acknowledged.
            self._reply(asked, Behind(asked.request, state.clock - 1))
            return True
        if state.clock < asked.clock - self._setup.staleness - 1:
            return False
        if held.backup is not None and held.backed < asked.clock - self._setup.staleness - 2:
            return False  # so that a failure costs at most s + 2 clocks
        self._reply(asked, ReadDone(asked.request, part.partition, state.read(part.rows, asked.clock)))
        return True

    def _update(self, held: _Held, asked: _Asked, part: UpdatePart) -> bool:
        held.state.update(asked.clock, part.deltas)
        self._reply(asked, UpdateDone(asked.request, part.partition))
        self._complete(part.partition, held)
        return True

    def _complete(self, partition: int, held: _Held) -> None:
        while (patch := held.state.complete()) is not None:
            clock = held.state.clock
            held.state.trim(held.backed)
            self._out.append(ClockCompleted(self.me.machine, partition, held.generation, clock))
            if held.backup is not None:
                self._push_to(held.backup, partition, held, clock, patch)

    def _push_to(self, backup: Peer, partition: int, held: _Held, clock: int, patch: Patch) -> None:
        self._out.append(Send(backup, Push(partition, held.generation, held.base, clock, patch)))

    def _reply(self, asked: _Asked, answer: ReadDone | UpdateDone | Moved | Behind) -> None:
        self._out.append(Reply(asked.sender, answer))

    # ---- from other servers --------------------------------------------------------------------

    def _push(self, held: _Held, push: Push) -> bool:
        if held.role is not Role.BACKUP:
            return held.generation >= push.generation and held.state.clock >= push.clock
        if not self._in_generation(held, push) or held.state.clock < push.clock - 1:
            return held.generation > push.generation
        if push.clock > held.state.clock:
            held.state.drop_pending()
            held.state.overwrite(push.patch)
            held.state.trim(held.backed)
            self._out.append(BackedUp(self.me.machine, push.partition, held.generation, push.clock))
        return True

    def _in_generation(self, held: _Held, message: Push | EndOfLife) -> bool:
        """Whether the message fits the backup's generation, which it may start."""
        if message.generation > held.generation:
            self._return_to(held, message.generation, message.base)
        return message.generation == held.generation

    def _return_to(self, held: _Held, generation: int, clock: int) -> None:
        held.state.rollback(clock)
        held.generation, held.base = generation, clock

    def _end_of_life(self, held: _Held, last: EndOfLife) -> bool:
        if last.epoch <= held.epoch or held.role is not Role.BACKUP:
            return last.epoch <= held.epoch
        if not self._in_generation(held, last) or held.state.clock < last.clock:
            return held.generation > last.generation
        held.state.drop_pending()
        for late in last.pending:
            held.state.update(late.clock, (late.delta,))
        self._serve(last.partition, held, last.epoch, None)
        return True

    def _install(self, message: Install) -> bool:
        partition, held = message.partition, self._held.get(message.partition)
        known = self._left.get(partition, 0) if held is None else held.epoch
        if message.epoch <= known or (held is not None and message.generation < held.generation):
            return True
        values = np.require(message.values, np.float32, ["C", "W"])
        setup = self._setup
        state = PartitionState(
            values, message.clock, setup.shards, setup.staleness, message.undo, message.pending
        )
        backed = max(message.backed, self._backed)
        held = _Held(state, Role.SERVING, 0, message.generation, message.base, backed, None)
        self._held[partition] = held
        self._serve(partition, held, message.epoch, message.backup)
        if message.backup is not None:  # the last owner may be gone, and with it what it was sending
            for clock, patch in state.patches_after(backed):
                self._push_to(message.backup, partition, held, clock, patch)
        return True

    def _serve(self, partition: int, held: _Held, epoch: int, backup: Peer | None) -> None:
        held.role, held.epoch, held.backup = Role.SERVING, epoch, backup
        self._out.append(Installed(self.me.machine, partition, epoch, held.state.clock))

    # ---- commands of the controller ------------------------------------------------------------

    def _create(self, command: Create) -> None:
        values = self._initial(rows_of(self._shape, command.partition, self._setup.partitions))
        state = PartitionState(values, 0, self._setup.shards, self._setup.staleness)
        held = _Held(state, Role.SERVING, 0, command.generation, 0, 0, None)
        self._held[command.partition] = held
        self._serve(command.partition, held, command.epoch, None)

    def _handover(self, held: _Held, command: Handover) -> bool:
        if command.epoch <= held.epoch:
            return True
        if command.generation > held.generation:
            return False
        if command.target == self.me.machine:
            backup = None if held.role is Role.BACKUP else held.backup
            self._serve(command.partition, held, command.epoch, backup)
            return True
        target = Peer(command.target, command.endpoint)
        self._send_on(held, command, target, keep=command.keep_backup, to_backup=command.to_backup)
        if command.keep_backup:
            clock = held.state.clock
            self._out.append(BackedUp(self.me.machine, command.partition, held.generation, clock))
        return True

    def _send_on(
        self, held: _Held, command: Handover | Restore, target: Peer, *, keep: bool, to_backup: bool
    ) -> None:
        """Stop serving and send what ``target`` lacks. Pending deltas stay, should it have to be repeated."""
        held.role, held.target = Role.BACKUP if keep else Role.FROZEN, target
        held.epoch = self._left[command.partition] = command.epoch
        state, p, epoch = held.state, command.partition, command.epoch
        last = EndOfLife(p, epoch, held.generation, held.base, state.clock, state.pending)
        if to_backup:
            self._out.append(Send(target, last))
            return
        backup = self.me if keep else held.backup
        values = state.values.copy()
        whole = Install(
            p,
            epoch,
            held.generation,
            held.base,
            held.backed,
            state.clock,
            values,
            state.undo,
            state.pending,
            backup,
        )
        self._out.append(Send(target, whole))

    def _restore(self, held: _Held, command: Restore) -> bool:
        if command.epoch <= held.epoch:
            return True
        self._return_to(held, command.generation, command.clock)
        if command.target == self.me.machine:
            self._serve(command.partition, held, command.epoch, None)
        else:
            target = Peer(command.target, command.endpoint)
            self._send_on(held, command, target, keep=True, to_backup=False)
        return True

    def _rollback(self, held: _Held, command: Rollback) -> bool:
        """A frozen partition is served again: its hand-over is called off."""
        if command.generation <= held.generation:
            return True
        self._return_to(held, command.generation, command.clock)
        if held.role is Role.FROZEN:
            self._serve(command.partition, held, command.epoch, held.backup)
        held.epoch = max(held.epoch, command.epoch)
        return True

    def _forget(self, command: Forget) -> None:
        partition, held = command.partition, self._held.get(command.partition)
        if held is not None and held.role is Role.SERVING and held.epoch == command.epoch:
            raise ProtocolError(f"{self.me.machine} was told to forget partition {partition} it serves")
        if held is not None and held.epoch <= command.epoch:
            del self._held[partition]
        self._left[partition] = max(self._left.get(partition, 0), command.epoch)

    def _advance(self, command: Advance) -> None:
        self._backed = max(self._backed, command.clock)
        for held in self._held.values():
            held.backed = max(held.backed, command.clock)
            held.state.trim(held.backed)

    def _save(self, command: SaveModel) -> bool:
        kept = {p: held for p, held in self._held.items() if held.role is not Role.FROZEN}
        if any(held.state.clock < command.clock for held in kept.values()):
            return False
        for held in kept.values():
            held.state.rollback(command.clock)  # after a stop some may be further than the last clock
        self._out.append(
            Save(command.clock, tuple((p, held.state.values) for p, held in sorted(kept.items())))
        )
        return True


def _superseded(old: _Waiting, new: _Asked) -> bool:
    """A worker has one request per partition under way: a newer one replaces what still waits."""
    return isinstance(old, _Asked) and (old.sender, old.part.partition) == (new.sender, new.part.partition)
