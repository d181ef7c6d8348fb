"""Encodes messages as frames and decodes them. Nothing is pickled; whatever does not fit its type is a
WireError.

What goes to one place at once is a list of frames: first a fixed header and MessagePack, which describes all
the messages, then the bytes of their arrays, untouched (they are sent and received without a copy). The types
in ``messages.py`` say which fields are arrays, and of what; see ``array_codec``. A control packet is one
frame of the same form without arrays. It carries ``Link`` packets of the values in ``events.py``,
``commands.py`` and ``telemetry.py``. Files have the same values as JSON.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from agileml.node.transport.array_codec import Array, from_plain, pack_value, unpack_value
from agileml.node.transport.packet_codec import Buffer, WireError
from agileml.node.transport.reliable_link import Packet
from agileml.protocol.messages import Message
from agileml.protocol.telemetry import Control

_HEADER: Final = struct.Struct("<2sBB")
"""Magic, version, and whether data messages or a control packet follow."""
_MAGIC: Final = b"AM"
_VERSION: Final = 3
_DATA: Final = 0
_PACKET: Final = 1
# Their numbers on the wire follow the order of the union: another order is another ``_VERSION``.
_KINDS: Final[tuple[type, ...]] = typing.get_args(Message)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
_NO_ARRAYS: Final[Iterator[Buffer]] = iter(())
# Class names are the tags of control messages, on the wire and in the journal.
_CONTROLS: Final[dict[str, type]] = {kind.__name__: kind for kind in typing.get_args(Control)}

_MESSAGES: Final[Any] = list[tuple[int, msgspec.Raw]]
"""The number of each message's type, and its fields."""
_PAYLOADS: Final[Any] = tuple[int, int, list[tuple[str, msgspec.Raw]]]
"""What a packet confirms, the number of its first payload, and each payload's type name and fields."""


def encode_messages(messages: Sequence[Message]) -> list[Buffer]:
    """Returns the frames of data messages. The arrays must not change until the frames are sent."""
    arrays: list[Array] = []
    said = pack_value([(_NUMBERS[type(message)], message) for message in messages], arrays)
    frames: list[Buffer] = [_HEADER.pack(_MAGIC, _VERSION, _DATA) + said]
    frames += [array.reshape(-1).view(np.uint8).data for array in arrays]
    return frames


def decode_messages(frames: Sequence[Buffer]) -> list[Message]:
    """Returns the messages in these frames, in order; arrays are read-only views of
    them. Raises WireError.
    """
    said = unpack_value(_strip_header(frames, _DATA), _MESSAGES, _NO_ARRAYS)
    arrays = iter(frames[1:])
    messages: list[Message] = [unpack_value(fields, _message_type(number), arrays) for number, fields in said]
    if next(arrays, None) is not None:
        raise WireError("more arrays than the messages have fields for them")
    return messages


def _message_type(number: int) -> Any:
    if not 0 <= number < len(_KINDS):
        raise WireError(f"unknown message {number}")
    return _KINDS[number]


def encode_packet(packet: Packet[Control]) -> bytes:
    payloads = [(type(payload).__name__, payload) for payload in packet.payloads]
    return _HEADER.pack(_MAGIC, _VERSION, _PACKET) + pack_value(
        (packet.confirmed, packet.first, payloads), []
    )


def decode_packet(frame: Buffer) -> Packet[Control]:
    """Returns the packet in a frame. Raises WireError."""
    confirmed, first, payloads = unpack_value(_strip_header([frame], _PACKET), _PAYLOADS, _NO_ARRAYS)
    if confirmed < 0 or first < 1:
        raise WireError(f"a packet cannot confirm {confirmed} or start at {first}")
    return Packet(
        confirmed,
        first,
        tuple(unpack_value(fields, _control_type(name), _NO_ARRAYS) for name, fields in payloads),
    )


def control_to_json(value: Control) -> dict[str, Any]:
    """Returns the value's fields, and its type under "type"."""
    return {"type": type(value).__name__, **msgspec.to_builtins(value)}


def control_from_json(data: object) -> Control:
    """Returns the value that ``control_to_json`` made ``data`` from. Raises WireError."""
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise WireError("a control message names its type")
    value: Control = from_plain(data, _control_type(data["type"]))
    return value


def _control_type(name: str) -> Any:
    kind = _CONTROLS.get(name)
    if kind is None:
        raise WireError(f"unknown control message {name!r}")
    return kind


def _strip_header(frames: Sequence[Buffer], what: int) -> memoryview:
    if not frames or len(frames[0]) < _HEADER.size:
        raise WireError("too short for a header")
    said = _HEADER.unpack_from(frames[0])
    if said != (_MAGIC, _VERSION, what):
        raise WireError(f"magic, version and content {said}: nothing of this version that belongs here")
    return memoryview(frames[0])[_HEADER.size :]
