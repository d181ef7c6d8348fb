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
Rule 4: one range per partition is on its way to the backup, and one more may wait, whose end is kept. What
comes after is merged, so a slow backup costs memory for the rows touched, not for the clocks. Where it lags
too far nothing is read any more, and the clock where that happens ends a range whoever thought otherwise.

Source: Harlap 4.2.2 and 4.2.3. Values rather than deltas go to the backup, see ``messages.Push``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np

from agileml.commands import (
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
from agileml.events import BackedUp, CheckpointRefused, ClockCompleted, Installed, Setup
from agileml.messages import (
    Behind,
    EndOfLife,
    Install,
    Matrix,
    Moved,
    Outgoing,
    Peer,
    ProtocolError,
    Push,
    PushDone,
    Read,
    ReadDone,
    ReadPart,
    Reply,
    Request,
    Rows,
    Save,
    Send,
    Snapshot,
    Transfer,
    Update,
    UpdateDone,
    UpdatePart,
)
from agileml.partition import PartitionState, Shape, rows_of

ServerCommand: TypeAlias = (
    Create | Handover | BackUp | Restore | Rollback | Forget | Advance | SaveModel | WriteCheckpoint
)
_Move: TypeAlias = Handover | BackUp | Restore | Rollback


_AHEAD_OF_CONTROLLER: Final = 8
"""Clocks that a server without a backup may run ahead of what it was told all have completed, beyond the lag,
since it keeps what undoes them. Enough for the controller's word to come round in clocks of milliseconds."""


class Role(StrEnum):
    SERVING = "serving"
    BACKUP = "backup"
    FROZEN = "frozen"


@dataclass(slots=True)
class _Held:
    """A partition on this server.

    ``base``: the clock its generation started from; ``backed``: every partition is backed up to it, as far as
    is known here; ``sent``, ``acked``: the end of the last range for the backup, and of the last it holds.
    """

    state: PartitionState
    role: Role
    epoch: int
    generation: int
    base: int
    backed: int
    backup: Peer | None
    target: Peer | None = None
    """Where it was handed to last: what was sent may still be on its way."""
    sent: int = 0
    acked: int = 0
    cuts: set[int] = field(default_factory=set)
    """Clocks not complete yet that shall end a range."""

    @property
    def behind(self) -> bool:
        """Whether another range would have to wait for one that waits."""
        return self.sent > self.acked and bool(self.cuts or self.waiting)

    @property
    def waiting(self) -> list[int]:
        """The ends of ranges that the backup was not sent yet."""
        return [] if self.backup is None else [clock for clock in self.state.kept if clock > self.sent]


@dataclass(frozen=True, slots=True)
class _Asked:
    """One part of a request, with what the whole request said."""

    sender: str
    request: int
    generation: int
    clock: int
    cut: bool
    part: ReadPart | UpdatePart


@dataclass(frozen=True, slots=True)
class _Pushed:
    sender: str
    push: Push


_Waiting: TypeAlias = _Asked | _Pushed | Install | EndOfLife | _Move | SaveModel


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
        self._setup = setup
        self._shape = shape
        self._initial = initial
        self._stored = stored
        self._held: dict[int, _Held] = {}
        self._left: dict[int, int] = {}  # the newest epoch under which a partition is known not to be here
        self._backed = (0, 0)  # generation, and the highest B it was told in it
        self._waiting: list[_Waiting] = []
        self._out: list[Outgoing] = []

    def handle(self, sender: str, message: Request | Transfer) -> tuple[Outgoing, ...]:
        """Take a message from a worker or another server. ``sender`` is where answers go."""
        match message:
            case Push():
                self._waiting.append(_Pushed(sender, message))
            case Install() | EndOfLife():
                self._waiting.append(message)
            case PushDone():
                self._push_done(message)
            case Read() | Update():
                self._ask(sender, message)
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
            case WriteCheckpoint():
                self._snapshot(command)
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
            case _Pushed():
                return self._pushed(item)
        held = self._held.get(item.partition)
        if held is None:
            return item.epoch <= self._left.get(item.partition, 0)
        match item:
            case EndOfLife():
                return self._end_of_life(held, item)
            case Handover():
                return self._handover(held, item)
            case BackUp():
                return self._back_up(held, item)
            case Restore():
                return self._restore(held, item)
            case Rollback():
                return self._rollback(held, item)

    # ---- requests of workers -------------------------------------------------------------------

    def _ask(self, sender: str, message: Read | Update) -> None:
        """A worker has one request per partition under way: a newer one replaces what still waits."""
        cut = isinstance(message, Update) and message.cut
        for part in message.parts:
            asked = _Asked(sender, message.request, message.generation, message.clock, cut, part)
            self._waiting = [other for other in self._waiting if not _superseded(other, asked)]
            self._waiting.append(asked)

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
        # A clock beyond is complete here, and no worker starts one before its last is acknowledged.
        over = max(state.clock - 1, held.backed)
        if over >= asked.clock:
            self._reply(asked, Behind(asked.request, over))
            return True
        if state.clock < asked.clock - self._setup.staleness - 1:
            return False
        ahead = self._setup.lag if held.backup is not None else self._setup.lag + _AHEAD_OF_CONTROLLER
        if held.backed < asked.clock - ahead:
            return False  # so that a failure costs at most that many clocks, and undo has an end
        self._reply(asked, ReadDone(asked.request, part.partition, state.read(part.rows, asked.clock)))
        return True

    def _update(self, held: _Held, asked: _Asked, part: UpdatePart) -> bool:
        if asked.cut and asked.clock > held.state.clock:
            held.cuts.add(asked.clock)
        held.state.update(asked.clock, part.deltas)
        self._complete(part.partition, held)
        self._reply(asked, UpdateDone(asked.request, part.partition, held.behind))
        return True

    def _complete(self, partition: int, held: _Held) -> None:
        state = held.state
        while state.complete(keep=self._keeps(held, state.clock + 1)):
            held.cuts.discard(state.clock)
            state.trim(held.backed)
            self._out.append(ClockCompleted(self.me.machine, partition, held.generation, state.clock))
        self._push_on(partition, held)

    def _keeps(self, held: _Held, clock: int) -> bool:
        """Whether somebody may want to return to ``clock``. Reads stop before ``lag`` clocks are exceeded."""
        return held.backup is None or clock in held.cuts or clock - held.backed >= self._setup.lag

    def _reply(self, asked: _Asked, answer: ReadDone | UpdateDone | Moved | Behind) -> None:
        self._out.append(Reply(asked.sender, answer))

    # ---- from other servers --------------------------------------------------------------------

    def _push_on(self, partition: int, held: _Held) -> None:
        """Send the next range if the backup holds the last one."""
        if held.role is Role.SERVING and held.sent == held.acked and held.waiting:
            self._push_until(partition, held, held.waiting[0])

    def _push_until(self, partition: int, held: _Held, clock: int) -> None:
        if held.backup is None:
            raise ProtocolError(f"partition {partition} on {self.me.machine} has no backup to push to")
        patch = held.state.between(held.sent, clock)
        push = Push(partition, held.generation, held.base, held.sent, clock, patch)
        self._out.append(Send(held.backup, push))
        held.sent = clock

    def _push_done(self, done: PushDone) -> None:
        held = self._held.get(done.partition)
        if held is not None and (held.generation, held.sent) == (done.generation, done.clock):
            held.acked = done.clock
            self._push_on(done.partition, held)

    def _pushed(self, pushed: _Pushed) -> bool:
        push, held = pushed.push, self._held.get(pushed.push.partition)
        if held is None:
            return False
        if held.role is not Role.BACKUP:
            return held.generation >= push.generation and held.state.clock >= push.clock
        if not self._in_generation(held, push) or held.state.clock < push.since:
            return held.generation > push.generation
        if push.clock > held.state.clock:
            held.state.drop_pending()
            held.state.overwrite(push.patch, push.clock)
            held.state.trim(held.backed)
            self._out.append(BackedUp(self.me.machine, push.partition, held.generation, push.clock))
        done = PushDone(push.partition, push.generation, push.clock)
        self._out.append(Reply(pushed.sender, done))
        return True

    def _in_generation(self, held: _Held, message: Push | EndOfLife) -> bool:
        """Whether the message fits the backup's generation, which it may start."""
        if message.generation > held.generation:
            self._return_to(held, message.generation, message.base)
        return message.generation == held.generation

    def _return_to(self, held: _Held, generation: int, clock: int) -> None:
        held.state.rollback(clock)
        held.generation, held.base = generation, clock
        held.sent = held.acked = clock
        held.cuts.clear()

    def _end_of_life(self, held: _Held, last: EndOfLife) -> bool:
        if last.epoch <= held.epoch or held.role is not Role.BACKUP:
            return last.epoch <= held.epoch
        if not self._in_generation(held, last) or held.state.clock < last.clock:
            return held.generation > last.generation
        held.state.drop_pending()
        held.state.split_last(last.undo)
        held.cuts.update(last.cuts)
        for late in last.pending:
            held.state.update(late.clock, (late.delta,))
        self._serve(last.partition, held, last.epoch, None)
        return True

    def _install(self, message: Install) -> bool:
        partition, held = message.partition, self._held.get(message.partition)
        known = self._left.get(partition, 0) if held is None else held.epoch
        if message.epoch <= known or (held is not None and message.generation < held.generation):
            return True
        setup = self._setup
        state = PartitionState(
            message.values, message.clock, setup.shards, setup.staleness, message.undo, message.pending
        )
        generation, advanced = self._backed
        backed = max(message.backed, advanced) if generation == message.generation else message.backed
        held = _Held(state, Role.SERVING, 0, message.generation, message.base, backed, None)
        held.sent = held.acked = max(message.acked, backed)  # what was on its way may be lost with its sender
        held.cuts = set(message.cuts)
        self._held[partition] = held
        self._hold(partition, held, message)
        return True

    def _hold(self, partition: int, held: _Held, message: Install) -> None:
        """As the message says: as the owner, or as the backup of whoever sent it."""
        if not message.serve:
            held.role, held.epoch = Role.BACKUP, message.epoch
            self._out.append(Installed(self.me.machine, partition, message.epoch, held.state.clock))
            for clock in held.state.kept:
                self._out.append(BackedUp(self.me.machine, partition, held.generation, clock))
            return
        self._serve(partition, held, message.epoch, message.backup)

    def _serve(self, partition: int, held: _Held, epoch: int, backup: Peer | None) -> None:
        held.role, held.epoch, held.backup = Role.SERVING, epoch, backup
        self._out.append(Installed(self.me.machine, partition, epoch, held.state.clock))
        if backup is not None:
            self._push_on(partition, held)
            return
        for clock in held.state.keep_all():
            self._out.append(ClockCompleted(self.me.machine, partition, held.generation, clock))

    # ---- commands of the controller ------------------------------------------------------------

    def _create(self, command: Create) -> None:
        partition, clock = command.partition, command.clock
        if clock == 0:
            values = self._initial(rows_of(self._shape, partition, self._setup.partitions))
        else:
            values = self._stored(command.folder, partition)
        values = values + np.float32(0)  # no -0.0, so that it does not matter what sums of deltas start from
        state = PartitionState(values, clock, self._setup.shards, self._setup.staleness)
        held = _Held(state, Role.SERVING, 0, command.generation, clock, clock, None)
        held.sent = held.acked = clock
        self._held[partition] = held
        self._serve(partition, held, command.epoch, None)

    def _handover(self, held: _Held, command: Handover) -> bool:
        if command.epoch <= held.epoch:
            return True
        if command.generation > held.generation:
            return False
        if command.target == self.me.machine:
            if held.backup != command.backup:
                held.sent = held.acked = held.backed
            self._serve(command.partition, held, command.epoch, command.backup)
            return True
        self._send_on(held, command, command.backup, keep=command.keep_backup, to_backup=command.to_backup)
        if command.keep_backup:
            for clock in held.state.kept:
                self._out.append(BackedUp(self.me.machine, command.partition, held.generation, clock))
        return True

    def _back_up(self, held: _Held, command: BackUp) -> bool:
        """The copy goes first on the same way as what is pushed later."""
        if command.generation != held.generation or held.role is not Role.SERVING:
            return command.generation < held.generation or command.epoch < held.epoch
        held.backup, held.sent = command.target, held.state.clock
        held.acked = held.sent
        held.state.keep_all()
        whole = self._whole(held, command.partition, command.epoch, held.acked)
        self._out.append(Send(command.target, replace(whole, serve=False)))
        return True

    def _send_on(
        self, held: _Held, command: Handover | Restore, backup: Peer | None, *, keep: bool, to_backup: bool
    ) -> None:
        """Stop serving and send what the target lacks. Pending deltas stay, should it have to be repeated."""
        target = Peer(command.target, command.endpoint)
        held.role, held.target = Role.BACKUP if keep else Role.FROZEN, target
        held.epoch = self._left[command.partition] = command.epoch
        state, p = held.state, command.partition
        if to_backup:
            state.keep_all()
            for clock in held.waiting:
                self._push_until(p, held, clock)
            last = EndOfLife(
                p,
                command.epoch,
                held.generation,
                held.base,
                state.clock,
                tuple(sorted(held.cuts)),
                state.undo[-1:],
                state.pending,
            )
            self._out.append(Send(target, last))
            return
        acked = held.acked if backup == held.backup else held.backed
        whole = self._whole(held, p, command.epoch, state.clock if keep else acked)
        self._out.append(Send(target, replace(whole, pending=state.pending, backup=backup)))

    def _whole(self, held: _Held, partition: int, epoch: int, acked: int) -> Install:
        """To be served, but for what is still to be summed."""
        state = held.state
        return Install(
            partition,
            epoch,
            held.generation,
            held.base,
            held.backed,
            acked,
            state.clock,
            tuple(sorted(held.cuts)),
            state.whole(),
            state.undo,
            pending=(),
            backup=None,
        )

    def _restore(self, held: _Held, command: Restore) -> bool:
        if command.epoch <= held.epoch:
            return True
        self._return_to(held, command.generation, command.clock)
        if command.target == self.me.machine:
            self._serve(command.partition, held, command.epoch, None)
        else:
            self._send_on(held, command, self.me, keep=True, to_backup=False)
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
        self._waiting = [item for item in self._waiting if not _push_for(item, partition)]

    def _advance(self, command: Advance) -> None:
        self._backed = max(self._backed, (command.generation, command.clock))
        for partition, held in self._held.items():
            if held.generation > command.generation:  # which began at a checkpoint, before that clock
                continue
            held.backed = max(held.backed, command.clock)
            held.acked = max(held.acked, held.backed)
            held.sent = max(held.sent, held.acked)
            held.state.trim(held.backed)
            self._push_on(partition, held)

    def _save(self, command: SaveModel) -> bool:
        kept = {p: self._held[p] for p in command.partitions if p in self._held}
        if any(held.generation > command.generation for held in kept.values()):
            return True
        if len(kept) < len(command.partitions):
            return False
        if any(held.state.clock < command.clock for held in kept.values()):
            return False
        for held in kept.values():
            held.state.rollback(command.clock)  # after a stop some may be further than the last clock
            held.role = Role.FROZEN  # whoever still wants to compute need not, and finds no undo to read by
        values = tuple((p, held.state.whole()) for p, held in kept.items())
        self._out.append(Save(command.generation, command.clock, values))
        return True

    def _snapshot(self, command: WriteCheckpoint) -> None:
        """A copy that came by the faster way may have replaced the one that was meant, and begin later."""
        held = {p: self._held[p].state for p in command.partitions if p in self._held}
        gone = [p for p in command.partitions if p not in held or not held[p].reaches(command.clock)]
        if gone:
            why = f"clock {command.clock} of partitions {gone} is not on {self.me.machine} any more"
            self._out.append(CheckpointRefused(self.me.machine, command.attempt, why))
            return
        states = tuple((p, state.at(command.clock)) for p, state in held.items())
        self._out.append(Snapshot(command.attempt, command.folder, command.clock, states))


def _superseded(old: _Waiting, new: _Asked) -> bool:
    return isinstance(old, _Asked) and (old.sender, old.part.partition) == (new.sender, new.part.partition)


def _push_for(item: _Waiting, partition: int) -> bool:
    """What came for a copy that is gone."""
    return isinstance(item, _Pushed) and item.push.partition == partition
