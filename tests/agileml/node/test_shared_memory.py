"""Two ends lend to each other, through files in memory and /proc as it is."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.node.transport.packet_codec import Buffer, WireError
from agileml.node.transport.shared_memory import Envelope, Loan, SharedMemoryLender

LONG = 2**17
SLOTS = 4
"""How many an end has at the most."""

pytestmark = pytest.mark.skipif(
    not SharedMemoryLender.is_possible(), reason="this system has no files in memory"
)


def frame(value: int, size: int = LONG) -> memoryview:
    return np.full(size, value % 251, np.uint8).data


def carried(sender: SharedMemoryLender, receiver: SharedMemoryLender, *frames: Buffer) -> Sequence[Buffer]:
    got = receiver.take_frames(
        "sender", [bytes(part) for part in sender.lend_frames("receiver", list(frames))]
    )
    assert got is not None
    return got


def confirmed(sender: SharedMemoryLender, receiver: SharedMemoryLender) -> None:
    """A message the other way, as every request has its answer."""
    assert sender.take_frames(
        "receiver", [bytes(part) for part in receiver.lend_frames("sender", [b"answer"])]
    )


def slots() -> int:
    """Those that this process has open, lent here or mapped here."""
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # it was open to list these
            if "agileml-slot" in os.readlink(file):
                found.add(file.stat().st_ino)
    return len(found)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert slots() == 0


def test_long_frames_are_lent_and_short_ones_are_sent() -> None:
    lending = SharedMemoryLender()
    frames: list[Buffer] = [b"header", frame(1), frame(2, 100), frame(3, LONG + 1)]
    envelope, *left = lending.lend_frames("receiver", frames)
    assert [len(part) for part in left] == [6, 0, 100, 0]
    assert 0 < len(envelope) < 100
    got = SharedMemoryLender().take_frames("sender", [bytes(part) for part in (envelope, *left)])
    assert got is not None
    assert [bytes(part) for part in got] == [bytes(part) for part in frames]
    assert memoryview(got[1]).readonly
    lending.drop_peer("receiver")


def test_a_slot_is_used_again_when_nobody_reads_it_and_its_owner_was_told() -> None:
    sender, receiver = SharedMemoryLender(), SharedMemoryLender()
    for value in range(100):
        (got,) = carried(sender, receiver, frame(value))
        assert bytes(got) == bytes(frame(value))
        del got
        confirmed(sender, receiver)
    assert slots() == 1
    sender.drop_peer("receiver")
    del receiver
    assert slots() == 0


def test_a_view_keeps_its_slot_as_long_as_anything_is_made_of_it() -> None:
    sender, receiver = SharedMemoryLender(), SharedMemoryLender()
    (got,) = carried(sender, receiver, frame(7))
    rows = np.frombuffer(got, np.float32).reshape(-1, 4)[3:9]
    expected = rows.copy()
    del got
    for value in range(3 * SLOTS):
        confirmed(sender, receiver)
        carried(sender, receiver, frame(value))
    assert np.array_equal(rows, expected)
    sender.drop_peer("receiver")


def test_where_no_slot_is_free_frames_go_as_they_are() -> None:
    sender, receiver = SharedMemoryLender(), SharedMemoryLender()
    held = [carried(sender, receiver, frame(value))[0] for value in range(SLOTS + 3)]
    assert slots() == SLOTS
    assert [bytes(view[:1]) for view in held] == [bytes([value]) for value in range(SLOTS + 3)]
    _, sent = sender.lend_frames("receiver", [frame(5)])
    assert len(sent) == LONG
    sender.drop_peer("receiver")


def test_what_is_kept_there_is_sent_and_slots_there_are_given_back_with_it() -> None:
    sender, receiver = SharedMemoryLender(), SharedMemoryLender()
    (got,) = carried(sender, receiver, frame(1))
    del got
    envelope, sent = receiver.lend_frames("sender", [frame(2)], kept=True)
    assert len(sent) == LONG
    assert sender.take_frames("receiver", [bytes(envelope), bytes(sent)])
    carried(sender, receiver, frame(3))
    assert slots() == 1
    sender.drop_peer("receiver")


@pytest.mark.parametrize("lending", [SharedMemoryLender(most=2 * LONG), SharedMemoryLender(most_open=2)])
def test_all_slots_together_take_no_more_than_they_may(lending: SharedMemoryLender) -> None:
    sent = {name: lending.lend_frames(name, [frame(1)]) for name in "abc"}
    assert {name: len(frames[1]) for name, frames in sent.items()} == {"a": 0, "b": 0, "c": LONG}
    assert slots() == 2
    lending.drop_peer("a")
    assert len(lending.lend_frames("c", [frame(1)])[1]) == 0
    for name in "bc":
        lending.drop_peer(name)
    assert slots() == 0


def test_a_slot_that_is_too_short_makes_room_for_a_longer_one() -> None:
    sender, receiver = SharedMemoryLender(), SharedMemoryLender()
    held = [carried(sender, receiver, frame(value))[0] for value in range(SLOTS)]
    del held
    confirmed(sender, receiver)
    (got,) = carried(sender, receiver, frame(9, 16 * LONG))
    assert bytes(got) == bytes(frame(9, 16 * LONG))
    del got, receiver
    assert slots() == SLOTS
    sender.drop_peer("receiver")


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "keep", "drop", "answer"]), st.integers(0, 3), st.integers(0, 9)),
        max_size=60,
    )
)
def test_what_is_kept_stays_as_it_was_sent(steps: list[tuple[str, int, int]]) -> None:
    sender, receiver = SharedMemoryLender(), SharedMemoryLender()
    kept: list[tuple[Buffer, int, int]] = []
    for number, (what, longer, which) in enumerate(steps):
        size = LONG << longer
        if what in ("send", "keep"):
            (got,) = carried(sender, receiver, frame(number, size))
            assert bytes(got) == bytes(frame(number, size))
            kept += [(got, number, size)] if what == "keep" else []
            del got
        elif what == "drop" and kept:
            del kept[which % len(kept)]
        else:
            confirmed(sender, receiver)
        for view, value, length in kept:
            assert np.array_equal(
                np.frombuffer(view, np.uint8), np.frombuffer(frame(value, length), np.uint8)
            )
    del kept
    sender.drop_peer("receiver")


LENDER = """
import sys
import numpy as np
from agileml.node.transport.shared_memory import SharedMemoryLender
envelope, left = SharedMemoryLender().lend_frames("receiver", [np.full(2**20, 42, np.uint8).data])
print(bytes(envelope).hex(), len(left), flush=True)
sys.stdin.read()
"""


def lender() -> tuple[subprocess.Popen[str], bytes]:
    """A process that has lent a frame, and its envelope."""
    process = subprocess.Popen(
        [sys.executable, "-c", LENDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    envelope, left = process.stdout.readline().split()
    assert left == "0"
    return process, bytes.fromhex(envelope)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_what_was_read_outlives_the_process_that_lent_it() -> None:
    process, envelope = lender()
    got = SharedMemoryLender().take_frames("sender", [envelope, b""])
    kill(process)
    assert got is not None
    assert bytes(got[0]) == b"*" * 2**20


def test_what_a_dead_process_lent_is_lost_and_nobody_lends_to_who_could_not_read() -> None:
    process, envelope = lender()
    kill(process)
    receiver, sender = SharedMemoryLender(), SharedMemoryLender()
    assert receiver.take_frames("sender", [envelope, b""]) is None
    confirmed(sender, receiver)
    assert len(sender.lend_frames("receiver", [frame(1)])[1]) == LONG


def test_another_file_under_the_number_of_a_slot_is_not_taken_for_it() -> None:
    other, receiver = SharedMemoryLender(), SharedMemoryLender()
    message = [bytes(part) for part in other.lend_frames("receiver", [frame(1)])]
    envelope = msgspec.msgpack.decode(message[0], type=Envelope)
    wrong = envelope.loans[0]._replace(token=envelope.loans[0].token ^ 1)
    assert receiver.take_frames("x", [msgspec.msgpack.encode(envelope._replace(loans=(wrong,))), b""]) is None
    too_long = envelope.loans[0]._replace(size=2**40)
    assert (
        receiver.take_frames("x", [msgspec.msgpack.encode(envelope._replace(loans=(too_long,))), b""]) is None
    )
    other.drop_peer("receiver")


@given(st.binary(min_size=1, max_size=60))
def test_what_is_no_envelope_is_refused(envelope: bytes) -> None:
    try:
        taken = msgspec.msgpack.decode(envelope, type=Envelope)
    except msgspec.MsgspecError:
        with pytest.raises(WireError):
            SharedMemoryLender().take_frames("x", [envelope, b""])
    else:
        assert not taken.loans
        assert SharedMemoryLender().take_frames("x", [envelope, b""]) == [b""]


def test_what_lends_a_frame_that_is_not_there_is_refused() -> None:
    envelope = Envelope(os.getpid(), False, (Loan(1, 1, 0, LONG),), ())
    for frames in ([], [msgspec.msgpack.encode(envelope), b""]):
        with pytest.raises(WireError):
            SharedMemoryLender().take_frames("x", frames)


def test_who_was_silent_for_long_is_forgotten_when_others_come() -> None:
    lending = SharedMemoryLender(idle_s=0.05)
    lending.lend_frames("gone", [frame(1)])
    time.sleep(0.1)
    assert slots() == 1
    lending.lend_frames("here", [frame(1)])
    assert slots() == 1
    (got,) = carried(lending, SharedMemoryLender(), frame(2))
    assert bytes(got) == bytes(frame(2)), "one that is there after all begins anew"
    lending.drop_peer("here")
    lending.drop_peer("receiver")
