from __future__ import annotations

import contextlib
import json
import typing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import astuple

from agileml.node.tier import Tier
from agileml.node.transport.packet_codec import Buffer, WireError
from agileml.node.transport.reliable_link import Packet
from agileml.protocol.commands import Assign, Route
from agileml.protocol.events import MachineJoined
from agileml.protocol.messages import (
    Arrived,
    Inquiry,
    Install,
    Lacking,
    Message,
    Missing,
    Moved,
    Patch,
    Peer,
    PendingDelta,
    PushInquiry,
    Read,
    ReadDone,
    ReadPart,
    ShardDelta,
    TransferInquiry,
    Undo,
    Unknown,
    Update,
    UpdatePart,
)
from agileml.protocol.telemetry import Control, ObjectiveReport, ShardObjective
from agileml.protocol.wire import (
    control_from_json,
    control_to_json,
    decode_messages,
    decode_packet,
    encode_messages,
    encode_packet,
)

PATCH = Patch(np.array([1, 4, 6]), np.arange(6, dtype=np.float32).reshape(3, 2))
EMPTY = Patch(np.empty(0, np.int64), np.empty((0, 2), np.float32))
DELTA = ShardDelta(3, PATCH)

MESSAGES: list[Message] = [
    Read(1, 0, 5, (ReadPart(0, 2, PATCH.rows), ReadPart(1, 2, EMPTY.rows))),
    Update(2, 0, 5, True, (UpdatePart(0, 2, (DELTA, ShardDelta(4, EMPTY))),)),
    Install(
        0, 1, 2, 3, 4, 4, 5, (6,), PATCH.values, (Undo(3, 5, False, PATCH),), (PendingDelta(6, DELTA),), None
    ),
    Install(0, 1, 2, 3, 4, 4, 5, (), PATCH.values, (), (), Peer("m", "ipc://x")),
    Inquiry(7, (0, 2)),
    Unknown(7, 2),
    PushInquiry(1, 0, 8),
    Lacking(1, 0, 6),
    TransferInquiry(1, 4),
    Missing(1, 4),
    Arrived(1, 4),
]
ROUTES = (Route(0, "m1", "ipc://a", 3),)
CONTROLS: list[Control] = [
    MachineJoined("m1", Tier.TRANSIENT, 8),
    Assign("m1", 1, 2, ROUTES, (1, 2), 7, 40, drain=True, notice_s=120.0),
    ObjectiveReport("m1", 3, (ShardObjective(0, 1.5, 10.0),)),
]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return bool(
            left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
        )
    if isinstance(left, tuple):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, Struct):
        return type(left) is type(right) and same(astuple(left), astuple(right))
    return bool(left == right)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_wire_with_every_bit(message: Message) -> None:
    (received,) = decode_messages([bytes(frame) for frame in encode_messages([message])])
    assert same(received, message)


@given(st.lists(st.integers(0, 40), max_size=12))
@settings(max_examples=100, deadline=None)
def test_rows_of_any_kind_survive_and_consecutive_ones_take_no_frame(rows: list[int]) -> None:
    """Sorted and unique is what rows should be, and nothing that the wire relies on."""
    read = Read(1, 0, 5, (ReadPart(0, 2, np.array(rows, np.int64)),))
    frames = [bytes(frame) for frame in encode_messages([read])]
    assert same(decode_messages(frames)[0], read)
    assert (len(frames) == 1) == (bool(rows) and rows == list(range(rows[0], rows[0] + len(rows))))


def test_received_arrays_are_views_of_their_frames() -> None:
    frames = [bytes(frame) for frame in encode_messages(MESSAGES[:1])]
    (read,) = decode_messages(frames)
    assert isinstance(read, Read)
    assert np.shares_memory(read.parts[0].rows, np.frombuffer(frames[1], np.uint8))


def test_control_messages_survive_json_and_packets() -> None:
    assert [control_from_json(json.loads(json.dumps(control_to_json(item)))) for item in CONTROLS] == CONTROLS
    packet = Packet(4, 9, tuple(CONTROLS))
    assert decode_packet(encode_packet(packet)) == packet


def test_every_control_type_has_a_name_of_its_own() -> None:
    kinds = typing.get_args(Control)
    assert len({kind.__name__ for kind in kinds}) == len(kinds)


@given(st.lists(st.binary(max_size=80), max_size=4))
@settings(max_examples=150, deadline=None)
def test_random_bytes_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(WireError):
        decode_messages(frames)
    with pytest.raises(WireError):
        decode_packet(b"".join(frames))


@pytest.mark.parametrize(
    "said", [b"\xdd\xff\xff\xff\xff", b"\x91\x92\x00" + b"\x91" * 100_000, b"\xc6\xff\xff\xff\xff"]
)
def test_what_claims_to_be_long_or_deep_is_refused_at_once(said: bytes) -> None:
    """4 294 967 295 messages, 100 000 lists in each other, 4 GB of bytes."""
    header = bytes(encode_messages([])[0])[:4]
    with pytest.raises(WireError):
        decode_messages([header + said])


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(WireError, match=r"Expected `int`, got `bool` - at `\$.cores`"):
        control_from_json({"type": "MachineJoined", "machine": "m1", "tier": "reliable", "cores": True})


@given(st.sampled_from(MESSAGES), st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_messages_are_refused_or_still_messages(message: Message, data: st.DataObject) -> None:
    frames = [bytes(frame) for frame in encode_messages([message])]
    victim = data.draw(st.integers(0, len(frames) - 1))
    damaged = bytearray(frames[victim])
    match data.draw(st.sampled_from(["flip", "cut", "drop", "extra"])):
        case "flip" if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
            frames[victim] = bytes(damaged)
        case "cut":
            frames[victim] = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
        case "drop":
            del frames[victim]
        case _:
            frames.append(b"")
    received: list[Buffer] = list(frames)
    with contextlib.suppress(WireError):
        assert {type(said) for said in decode_messages(received)} <= set(typing.get_args(Message))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(CONTROLS), st.data())
@settings(max_examples=150, deadline=None)
def test_control_messages_with_wrong_fields_are_refused(control: Control, data: st.DataObject) -> None:
    content = json.loads(json.dumps(control_to_json(control)))
    name = data.draw(st.sampled_from(sorted(content)))
    content[name] = data.draw(json_values)
    with contextlib.suppress(WireError):
        assert isinstance(control_from_json(content), typing.get_args(Control))


def test_messages_that_are_sent_together_come_apart_again() -> None:
    rows, values = np.array([1, 5], np.int64), np.ones((2, 3), np.float32)
    update = Update(1, 0, 1, True, (UpdatePart(0, 1, (ShardDelta(0, Patch(rows, values)),)),))
    read = Read(2, 0, 2, (ReadPart(0, 1, rows),))
    done = ReadDone(2, 0, values)
    together = encode_messages([update, read, Moved(3, 1), done])
    assert [type(said) for said in decode_messages(together)] == [Update, Read, Moved, ReadDone]
    assert all(map(same, decode_messages(together), (update, read, Moved(3, 1), done)))
    with pytest.raises(WireError):
        decode_messages(together[:2])
    with pytest.raises(WireError):
        decode_messages([*together, b"x"])
