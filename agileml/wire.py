"""Messages to frames and back. Nothing is pickled; whatever does not fit its type is a WireError.

A data message is a list of frames: first a fixed header and JSON, then the bytes of each array, untouched
(they are sent and received without a copy). Which fields are arrays, and of what, is said by the types in
``messages.py``; the JSON holds their shapes. A control packet is one frame of the same form without arrays,
which carries ``Link`` packets of the values in ``events.py`` and ``telemetry.py``.
"""

from __future__ import annotations

import json
import struct
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np

from agileml.events import Command, Event
from agileml.link import Packet
from agileml.messages import Matrix, Message, Rows
from agileml.telemetry import EndMachine, ObjectiveAt, ObjectiveReport

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
Buffer: TypeAlias = bytes | bytearray | memoryview
Control: TypeAlias = Event | Command | ObjectiveReport | ObjectiveAt | EndMachine

_HEADER: Final = struct.Struct("<2sBBI")
"""Magic, version, kind of message, number of arrays."""
_MAGIC: Final = b"AM"
_VERSION: Final = 1
_PACKET: Final = 255
_KINDS: Final[tuple[type, ...]] = typing.get_args(Message)
_CONTROLS: Final[dict[str, type]] = {kind.__name__: kind for kind in typing.get_args(Control)}
_ARRAYS: Final[dict[Any, tuple[str, int]]] = {Rows: ("<i8", 1), Matrix: ("<f4", 2)}
"""Type of a field -> what its bytes are, and the number of dimensions."""


class WireError(ValueError):
    """What came over the wire is not a message of this version."""


# ---- frames ------------------------------------------------------------------------------------


def encode(message: Message) -> list[Buffer]:
    """Frames of a data message. The arrays must not change until the frames are sent."""
    arrays: list[np.ndarray[Any, Any]] = []
    meta = _pack(message, arrays)
    head = _HEADER.pack(_MAGIC, _VERSION, _KINDS.index(type(message)), len(arrays))
    return [head + json.dumps(meta).encode(), *(array.reshape(-1).view(np.uint8).data for array in arrays)]


def decode(frames: Sequence[Buffer]) -> Message:
    """The message in these frames; its arrays are read-only views of them. Raises WireError."""
    kind, count, meta = _open(frames)
    if kind >= len(_KINDS) or count != len(frames) - 1:
        raise WireError(f"kind {kind} with {count} arrays came in {len(frames)} frames")
    rest = iter(frames[1:])
    message: Message = _unpack(_KINDS[kind], meta, rest)
    if next(rest, None) is not None:
        raise WireError("more arrays than the message has fields for them")
    return message


def encode_packet(packet: Packet[Control]) -> bytes:
    payloads = [control_to_json(payload) for payload in packet.payloads]
    meta = {"confirmed": packet.confirmed, "first": packet.first, "payloads": payloads}
    return _HEADER.pack(_MAGIC, _VERSION, _PACKET, 0) + json.dumps(meta).encode()


def decode_packet(frame: Buffer) -> Packet[Control]:
    """Raises WireError."""
    kind, count, meta = _open([frame])
    payloads = meta.get("payloads") if isinstance(meta, dict) else None
    if kind != _PACKET or count or not isinstance(meta, dict) or not isinstance(payloads, list):
        raise WireError("not a control packet")
    confirmed, first = (_unpack(int, meta.get(name), iter(())) for name in ("confirmed", "first"))
    if confirmed < 0 or first < 1:
        raise WireError(f"a packet cannot confirm {confirmed} or start at {first}")
    return Packet(confirmed, first, tuple(control_from_json(payload) for payload in payloads))


def control_to_json(value: Control) -> Json:
    """The value's fields, and its type under "type"."""
    return {"type": type(value).__name__, **_pack(value, [])}


def control_from_json(data: Json) -> Control:
    """Raises WireError."""
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise WireError("a control message names its type")
    kind = _CONTROLS.get(str(data["type"]))
    if kind is None:
        raise WireError(f"unknown control message {data['type']!r}")
    value: Control = _unpack(kind, {key: item for key, item in data.items() if key != "type"}, iter(()))
    return value


def _open(frames: Sequence[Buffer]) -> tuple[int, int, Json]:
    if not frames or len(frames[0]) < _HEADER.size:
        raise WireError("too short for a header")
    head = bytes(frames[0])
    magic, version, kind, count = _HEADER.unpack_from(head)
    if (magic, version) != (_MAGIC, _VERSION):
        raise WireError(f"magic {magic!r}, version {version}: not a message of this version")
    try:
        return kind, count, json.loads(head[_HEADER.size :])
    except (ValueError, RecursionError) as error:
        raise WireError("the description is not JSON") from error


# ---- values ------------------------------------------------------------------------------------


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _pack(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    """As JSON; arrays are collected in order and leave their shape behind."""
    if isinstance(value, np.ndarray):
        arrays.append(np.ascontiguousarray(value))
        return list(value.shape)
    if isinstance(value, tuple):
        return [_pack(item, arrays) for item in value]
    if is_dataclass(value):
        return {field.name: _pack(getattr(value, field.name), arrays) for field in fields(value)}
    return value


def _unpack(hint: Any, data: Json, arrays: Iterator[Buffer]) -> Any:
    """The inverse, checked against the type ``hint``."""
    if hint in _ARRAYS:
        return _array(hint, data, arrays)
    if isinstance(hint, types.UnionType):
        some = next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)
        return None if data is None else _unpack(some, data, arrays)
    if typing.get_origin(hint) is tuple and isinstance(data, list):
        return tuple(_unpack(typing.get_args(hint)[0], item, arrays) for item in data)
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(data, dict):
        hints = _hints(hint)
        if data.keys() != hints.keys():
            raise WireError(f"{hint.__name__} with fields {sorted(data)}")
        return hint(**{name: _unpack(kind, data[name], arrays) for name, kind in hints.items()})
    if isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(data, str):
        try:
            return hint(data)
        except ValueError:
            raise WireError(f"{data!r} is no {hint.__name__}") from None
    if type(data) is hint or (hint is float and type(data) is int):
        return data
    raise WireError(f"{data!r} where {hint} was expected")


def _array(hint: Any, shape: Json, arrays: Iterator[Buffer]) -> np.ndarray[Any, Any]:
    dtype, dimensions = _ARRAYS[hint]
    frame = next(arrays, None)
    if frame is None or not isinstance(shape, list) or len(shape) != dimensions:
        raise WireError(f"an array of shape {shape!r}")
    if any(type(size) is not int or not 0 <= size < 2**40 for size in shape):
        raise WireError(f"an array of shape {shape!r}")
    sizes = [size for size in shape if isinstance(size, int)]
    size = np.dtype(dtype).itemsize
    for extent in sizes:
        size *= extent
    if len(frame) != size:
        raise WireError(f"an array of shape {shape} in {len(frame)} bytes")
    return np.frombuffer(frame, dtype).reshape(sizes)
