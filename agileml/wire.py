"""Messages to frames and back. Nothing is pickled; whatever does not fit its type is a WireError.

What goes to one place at once is a list of frames: first a fixed header and JSON, which describes all the
messages, then the bytes of their arrays, untouched (they are sent and received without a copy). Which fields
are arrays, and of what, is said by the types in ``messages.py``; the JSON holds their shapes. Consecutive
rows are sent as their two ends. A control packet is one frame of the same form without arrays, which carries
``Link`` packets of the values in ``events.py``, ``commands.py`` and ``telemetry.py``.
"""

from __future__ import annotations

import json
import struct
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from agileml.commands import Command
from agileml.events import Event
from agileml.link import Packet
from agileml.messages import Message
from agileml.packing import Buffer, Json, WireError, packed, reader
from agileml.telemetry import EndMachine, MachineGivenUp, ObjectiveAt, ObjectiveReport

Control: TypeAlias = Event | Command | ObjectiveReport | ObjectiveAt | MachineGivenUp | EndMachine

_HEADER: Final = struct.Struct("<2sBB")
"""Magic, version, and whether data messages or a control packet follow."""
_MAGIC: Final = b"AM"
_VERSION: Final = 2
_DATA: Final = 0
_PACKET: Final = 1
_to_json: Final = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_from_json: Final = json.JSONDecoder().decode
_KINDS: Final[tuple[type, ...]] = typing.get_args(Message)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
_CONTROLS: Final[dict[str, type]] = {kind.__name__: kind for kind in typing.get_args(Control)}


def encode(messages: Sequence[Message]) -> list[Buffer]:
    """Frames of data messages. The arrays must not change until the frames are sent."""
    arrays: list[np.ndarray[Any, Any]] = []
    said = [[_NUMBERS[type(message)], packed(message, arrays)] for message in messages]
    frames: list[Buffer] = [_frame(_DATA, said)]
    frames += [array.reshape(-1).view(np.uint8).data for array in arrays]
    return frames


def decode(frames: Sequence[Buffer]) -> list[Message]:
    """The messages in these frames, in order; arrays are read-only views of them. Raises WireError."""
    said = _open(frames, _DATA)
    if not isinstance(said, list):
        raise WireError("not a list of messages")
    arrays = iter(frames[1:])
    messages: list[Message] = [_message(pair, arrays) for pair in said]
    if next(arrays, None) is not None:
        raise WireError("more arrays than the messages have fields for them")
    return messages


def _message(pair: Json, arrays: Iterator[Buffer]) -> Message:
    match pair:
        case [int(kind), meta] if 0 <= kind < len(_KINDS):
            message: Message = reader(_KINDS[kind])(meta, arrays)
            return message
    raise WireError(f"{pair!r} is no message")


def encode_packet(packet: Packet[Control]) -> bytes:
    payloads = [control_to_json(payload) for payload in packet.payloads]
    meta = {"confirmed": packet.confirmed, "first": packet.first, "payloads": payloads}
    return _frame(_PACKET, meta)


def decode_packet(frame: Buffer) -> Packet[Control]:
    """Raises WireError."""
    meta = _open([frame], _PACKET)
    payloads = meta.get("payloads") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(payloads, list):
        raise WireError("not a control packet")
    confirmed, first = (reader(int)(meta.get(name), iter(())) for name in ("confirmed", "first"))
    if confirmed < 0 or first < 1:
        raise WireError(f"a packet cannot confirm {confirmed} or start at {first}")
    return Packet(confirmed, first, tuple(control_from_json(payload) for payload in payloads))


def control_to_json(value: Control) -> Json:
    """The value's fields, and its type under "type"."""
    return {"type": type(value).__name__, **packed(value, [])}


def control_from_json(data: Json) -> Control:
    """Raises WireError."""
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise WireError("a control message names its type")
    kind = _CONTROLS.get(str(data["type"]))
    if kind is None:
        raise WireError(f"unknown control message {data['type']!r}")
    value: Control = reader(kind)({key: item for key, item in data.items() if key != "type"}, iter(()))
    return value


def _frame(what: int, meta: Any) -> bytes:
    return _HEADER.pack(_MAGIC, _VERSION, what) + _to_json(meta).encode()


def _open(frames: Sequence[Buffer], what: int) -> Json:
    if not frames or len(frames[0]) < _HEADER.size:
        raise WireError("too short for a header")
    head = bytes(frames[0])
    said = _HEADER.unpack_from(head)
    if said != (_MAGIC, _VERSION, what):
        raise WireError(f"magic, version and content {said}: nothing of this version that belongs here")
    try:
        found: Json = _from_json(str(head[_HEADER.size :], "utf-8"))
    except (ValueError, RecursionError) as error:
        raise WireError("the description is not JSON") from error
    return found
