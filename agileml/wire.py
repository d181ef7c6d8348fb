"""Messages to frames and back. Nothing is pickled; whatever does not fit its type is a WireError.

A data message is a list of frames: first a fixed header and JSON, then the bytes of each array, untouched
(they are sent and received without a copy). Which fields are arrays, and of what, is said by the types in
``messages.py``; the JSON holds their shapes. Consecutive rows are sent as their two ends. A control packet
is one frame of the same form without arrays, which carries ``Link`` packets of the values in ``events.py``,
``commands.py`` and ``telemetry.py``.
"""

from __future__ import annotations

import json
import struct
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from typing import Any, Final, TypeAlias

import numpy as np

from agileml.commands import Command
from agileml.events import Event
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
_MOST_ROWS: Final = 2**32
"""Of one partition. Their numbers are made here, so a peer must not name as many as it likes."""


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


def decode_all(frames: Sequence[Buffer]) -> Iterator[Message]:
    """The messages that were sent together, in order. Raises WireError."""
    first = 0
    while first < len(frames):
        after = first + 1 + _count(frames[first])
        yield decode(frames[first:after])
        first = after


def _count(frame: Buffer) -> int:
    """How many arrays follow this head."""
    if len(frame) < _HEADER.size:
        raise WireError("too short for a header")
    count: int = _HEADER.unpack_from(frame)[3]
    return count


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


_Reader: TypeAlias = Callable[[Json, Iterator[Buffer]], Any]
"""Makes a value of JSON and the array frames that come with it."""


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _pack(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    """As JSON; arrays are collected in order and leave their shape behind, or the ends of what they list."""
    if isinstance(value, np.ndarray):
        if value.dtype == np.int64 and len(value) and _are_consecutive(value):
            return [int(value[0]), int(value[-1]) + 1]
        arrays.append(np.ascontiguousarray(value))
        return list(value.shape)
    if isinstance(value, tuple):
        return [_pack(item, arrays) for item in value]
    if is_dataclass(value):
        return {name: _pack(getattr(value, name), arrays) for name in _names(value.__class__)}
    return value


def _unpack(hint: Any, data: Json, arrays: Iterator[Buffer]) -> Any:
    """The inverse, checked against the type ``hint``."""
    return _reader(hint)(data, arrays)


@cache
def _reader(hint: Any) -> _Reader:
    """What reads values of this type; made once, since types say the same every time."""
    if hint in _ARRAYS:
        return partial(_read_array, hint)
    if isinstance(hint, types.UnionType):
        some = _reader(next(kind for kind in typing.get_args(hint) if kind is not types.NoneType))
        return lambda data, arrays: None if data is None else some(data, arrays)
    if typing.get_origin(hint) is tuple:
        return partial(_read_tuple, hint, _reader(typing.get_args(hint)[0]))
    if is_dataclass(hint) and isinstance(hint, type):
        of = {name: _reader(kind) for name, kind in typing.get_type_hints(hint).items()}
        return partial(_read_dataclass, hint, {name: of[name] for name in _names(hint)})
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return partial(_read_word, hint)
    return partial(_read_plain, hint)


def _read_tuple(hint: Any, reader: _Reader, data: Json, arrays: Iterator[Buffer]) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise WireError(f"{data!r} where {hint} was expected")
    return tuple(reader(item, arrays) for item in data)


def _read_dataclass(kind: type, readers: Mapping[str, _Reader], data: Json, arrays: Iterator[Buffer]) -> Any:
    if not isinstance(data, dict) or data.keys() != readers.keys():
        raise WireError(f"{data!r} where {kind.__name__} with {', '.join(readers)} was expected")
    return kind(*(reader(data[name], arrays) for name, reader in readers.items()))


def _read_word(kind: type[StrEnum], data: Json, _: Iterator[Buffer]) -> StrEnum:
    try:
        return kind(data)  # type: ignore[arg-type]  # whatever it is, it is looked up
    except ValueError:
        raise WireError(f"{data!r} is no {kind.__name__}") from None


def _read_plain(kind: type, data: Json, _: Iterator[Buffer]) -> Any:
    if type(data) is kind or (kind is float and type(data) is int):
        return data
    raise WireError(f"{data!r} where {kind} was expected")


def _are_consecutive(rows: Rows) -> bool:
    return int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((np.diff(rows) == 1).all())


def _consecutive(first: Json, end: Json) -> Rows:
    if type(first) is not int or type(end) is not int or not 0 <= first < end <= _MOST_ROWS:
        raise WireError(f"consecutive rows from {first!r} to {end!r}")
    return np.arange(first, end, dtype=np.int64)


def _read_array(hint: Any, shape: Json, arrays: Iterator[Buffer]) -> np.ndarray[Any, Any]:
    if hint == Rows and isinstance(shape, list) and len(shape) == 2:
        return _consecutive(*shape)
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
