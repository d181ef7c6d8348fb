"""Passes long arrays between processes of one machine in shared memory instead of through a socket.

The sender copies an array into a *slot*, a file in memory that has no name, and says where it is; the
receiver maps the slot and reads there. When nothing there reads it any more the slot is given back, with the
next message the other way, and lent again. So an array is copied once rather than twice, and by no kernel.

Rule 1: a slot that is lent is not written to until it is given back. One that never is stays as it is.

Rule 2: a frame that cannot be lent goes through the socket: where no slot is free, or slots take as much
memory as they may.

Rule 3: a slot has no name and is found through its owner, at /proc/PID/fd/N, so the kernel frees it when
nobody has it open or mapped any more, however they ended. Closing one early costs at most the message that
was under way, as a lost connection does; its receiver asks for it again.
"""

from __future__ import annotations

import mmap
import os
import secrets
import time
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from agileml.node.transport.packet_codec import Buffer, WireError

Bytes: TypeAlias = npt.NDArray[np.uint8]

_SHORTEST: Final = 2**16
"""Bytes from which a frame is lent; below, a socket is as fast."""
_LONGEST: Final = 2**25
"""Bytes up to which a frame is lent; a longer one would take most of the memory for slots."""
_SLOTS: Final = 4
"""The most slots for each other end. Where nothing is kept there for long, two or three
are used, in turns.
"""
_TOKEN: Final = 8
"""Bytes at the beginning of a slot that identify it: its owner's file numbers are reused."""
_ARRAY: Final = 64
"""Where the array begins: as aligned as NumPy's own."""


class Loan(NamedTuple):
    """A frame in a slot. ``frame``: its place among the message's; ``size``: in bytes."""

    frame: int
    token: int
    file: int
    size: int


class Envelope(NamedTuple):
    """Goes before the frames of a message. ``process``: the sender's; ``refused``: lend nothing any more."""

    process: int
    refused: bool
    loans: tuple[Loan, ...]
    returned: tuple[int, ...]


_DECODER: Final = msgspec.msgpack.Decoder(Envelope)
_ENCODER: Final = msgspec.msgpack.Encoder()


class _Slot:
    """A slot. ``room``: bytes for an array; memory is taken only for what was ever written."""

    def __init__(self, room: int) -> None:
        self.token = secrets.randbits(8 * _TOKEN - 1)
        self.room = room
        self.file = os.memfd_create("agileml-slot")
        try:
            os.ftruncate(self.file, _ARRAY + room)
            mapped = np.frombuffer(mmap.mmap(self.file, _ARRAY + room), np.uint8)
        except OSError:
            self.close()
            raise
        mapped[:_TOKEN] = np.frombuffer(self.token.to_bytes(_TOKEN, "little"), np.uint8)
        self._array = mapped[_ARRAY:]

    def write(self, frame: Buffer) -> None:
        self._array[: len(frame)] = np.frombuffer(frame, np.uint8)

    def close(self) -> None:
        os.close(self.file)


class _PeerEnd:
    """The slots lent to one other end, and those borrowed from it."""

    def __init__(self) -> None:
        self.slots: dict[int, _Slot] = {}  # by their tokens, as everything here
        self.free: list[int] = []  # the one given back last at the end: it may be in a cache still
        self.lends = True
        self.used_at = time.monotonic()
        self.mapped: OrderedDict[int, Bytes] = OrderedDict()  # the one used longest ago first
        self.read: dict[int, weakref.ref[Bytes]] = {}
        self.returned: list[int] = []
        self.refused = False


class SharedMemoryLender:
    """Lends slots of one process to others, by name.

    ``most``: bytes of all its slots; ``most_open``: how many; ``idle_s``: an end to which and from which
    nothing was lent for so long may be gone, and is dropped.
    """

    def __init__(self, most: int = 2**26, most_open: int = 64, idle_s: float = 30.0) -> None:
        self._process = os.getpid()
        self._most = most
        self._most_open = most_open
        self._idle_s = idle_s
        self._taken = 0
        self._open = 0
        self._ends: dict[str, _PeerEnd] = {}

    @staticmethod
    def is_possible() -> bool:
        """Whether this system has files in memory, and shows what others have open, as Linux does."""
        return hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()

    def lend_frames(self, name: str, frames: Sequence[Buffer], *, kept: bool = False) -> list[Buffer]:
        """Returns what to send to that end instead of ``frames``: an envelope, and an empty frame for each
        one lent.

        ``kept``: the receiver keeps them for longer than it takes to answer, so they are not lent.
        """
        end = self._peer_end(name)
        loans, left = [], list(frames)
        for number, frame in () if kept else enumerate(frames):
            if len(frame) >= _SHORTEST and (slot := self._find_slot(end, len(frame))) is not None:
                slot.write(frame)
                loans.append(Loan(number, slot.token, slot.file, len(frame)))
                left[number] = b""
        if not (loans or end.returned or end.refused):
            return [b"", *left]
        returned = tuple(end.returned)
        del end.returned[: len(returned)]  # others may have been added by another thread
        envelope = Envelope(self._process, end.refused, tuple(loans), returned)
        end.refused = False
        return [_ENCODER.encode(envelope), *left]

    def take_frames(self, name: str, frames: Sequence[Buffer]) -> Sequence[Buffer] | None:
        """Returns the frames as they were; None where they are lost, with their sender most likely.

        Raises WireError.
        """
        if not frames:
            raise WireError("no envelope")
        if not len(frames[0]):
            return frames[1:]
        try:
            envelope = _DECODER.decode(frames[0])
        except msgspec.MsgspecError as error:
            raise WireError(str(error)) from error
        # What the other end gives back comes first: it may be lent again at once.
        end, got = self._peer_end(name), list(frames[1:])
        for token in envelope.returned:
            if token in end.slots and token not in end.free:
                end.free.append(token)
        if envelope.refused:
            self._drop_slots(end)
            end.lends = False
        for loan in envelope.loans:
            if not 0 <= loan.frame < len(got):
                raise WireError(f"frame {loan.frame} of {len(got)} is lent")
            try:
                got[loan.frame] = self._borrow_slot(end, envelope.process, loan)
            except (OSError, ValueError, LookupError):
                end.refused = True
                return None
        return got

    def drop_peer(self, name: str) -> None:
        """Drops an end that is gone, or will be called by another name."""
        end = self._ends.pop(name, None)
        if end is not None:
            self._drop_slots(end)

    def _peer_end(self, name: str) -> _PeerEnd:
        end = self._ends.get(name)
        if end is None:
            end = self._ends[name] = _PeerEnd()
        return end

    # ---- what is lent --------------------------------------------------------------------------

    def _find_slot(self, end: _PeerEnd, size: int) -> _Slot | None:
        """Returns a slot with room for so many bytes, if there is any."""
        end.used_at = time.monotonic()
        if not end.lends or size > _LONGEST:
            return None
        for token in reversed(end.free):
            if end.slots[token].room >= size:
                end.free.remove(token)
                return end.slots[token]
        if len(end.slots) == _SLOTS and end.free:
            self._drop_slot(end, end.free.pop(0))  # it is too short
        if len(end.slots) == _SLOTS:
            return None
        self._drop_idle_peers()
        step = max(_SHORTEST, (1 << size.bit_length()) >> 5)
        room = -(-size // step) * step  # the next may be a little longer
        if self._taken + room > self._most or self._open == self._most_open:
            return None
        try:
            slot = _Slot(room)
        except OSError:  # this process, or the machine, has too many files
            return None
        self._taken, self._open = self._taken + room, self._open + 1
        end.slots[slot.token] = slot
        return slot

    def _drop_idle_peers(self) -> None:
        """Drops idle ends before more memory is taken. One that is there still begins
        anew, with other slots.
        """
        before = time.monotonic() - self._idle_s
        for name in [name for name, end in self._ends.items() if end.used_at < before]:
            self.drop_peer(name)

    def _drop_slots(self, end: _PeerEnd) -> None:
        for token in tuple(end.slots):
            self._drop_slot(end, token)
        end.free.clear()

    def _drop_slot(self, end: _PeerEnd, token: int) -> None:
        slot = end.slots.pop(token)
        self._taken, self._open = self._taken - slot.room, self._open - 1
        slot.close()

    # ---- what is borrowed ----------------------------------------------------------------------

    def _borrow_slot(self, end: _PeerEnd, process: int, loan: Loan) -> memoryview:
        """Returns the slot's array. The slot is given back when nothing refers to that any more.

        Raises OSError or ValueError where its owner is gone, and LookupError where the slot is.
        """
        end.used_at = time.monotonic()
        mapped = end.mapped.get(loan.token)
        if mapped is None:
            self._drop_idle_peers()
            mapped = end.mapped[loan.token] = _map_slot(process, loan)
            while len(end.mapped) > _SLOTS:
                end.mapped.popitem(last=False)
        end.mapped.move_to_end(loan.token)
        # Every reader's view refers to this very array, so its end is the end of the last reader.
        array = mapped[_ARRAY : _ARRAY + loan.size]
        if len(array) != loan.size:
            raise LookupError(f"a slot of {len(mapped)} bytes has none of {loan.size}")
        token, read, returned = loan.token, end.read, end.returned

        def give_back(_: weakref.ref[Bytes]) -> None:
            del read[token]
            returned.append(token)

        read[token] = weakref.ref(array, give_back)
        return array.data


def _map_slot(process: int, loan: Loan) -> Bytes:
    """Maps another process's slot. Raises as ``_borrow_slot`` does."""
    file = os.open(f"/proc/{process}/fd/{loan.file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        mapped = np.frombuffer(mmap.mmap(file, 0, prot=mmap.PROT_READ), np.uint8)
    finally:
        os.close(file)
    if int.from_bytes(mapped[:_TOKEN].tobytes(), "little") != loan.token:
        raise LookupError(f"process {process} has another file {loan.file} now")
    return mapped
