from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.node.transport.reliable_link import Link, Packet

steps = st.lists(
    st.sampled_from(["send", "fresh", "repeat", "deliver", "duplicate", "lose", "last first", "confirm"]),
    max_size=60,
)


@given(steps)
@settings(max_examples=200, deadline=None)
def test_everything_arrives_once_and_in_order_over_a_bad_wire(script: list[str]) -> None:
    near: Link[int] = Link()
    far: Link[int] = Link()
    there: list[Packet[int]] = []
    back: list[Packet[int]] = []
    sent, got = 0, []
    for action in [*script, "repeat", "deliver"]:
        match action:
            case "send":
                sent += 1
                near.send(sent)
            case "fresh":
                packet = near.next_fresh()
                there += [] if packet is None else [packet]
            case "repeat":
                there.append(near.repeat())
                back.append(far.repeat())
            case "duplicate":
                there += there[-1:]
            case "lose":
                del there[:1], back[:1]
            case "last first":
                there.reverse()
            case "confirm":
                far.confirm()
            case _:
                got += [payload for packet in there for _, payload in far.receive(packet)]
                for packet in back:
                    near.receive(packet)
                there, back = [], []
    assert got == list(range(1, sent + 1))
    far.confirm()
    near.receive(far.repeat())
    assert not near.unconfirmed_payloads


def test_only_what_is_confirmed_is_forgotten() -> None:
    near: Link[str] = Link()
    far: Link[str] = Link()
    near.send("a")
    far.receive(near.repeat())
    near.receive(far.repeat())
    assert near.unconfirmed_payloads == ("a",)
    far.confirm()
    near.receive(far.repeat())
    assert not near.unconfirmed_payloads


def test_an_end_rebuilt_from_its_journal_repeats_only_what_the_other_lacks() -> None:
    near: Link[str] = Link()
    far: Link[str] = Link()
    for payload in "abc":
        near.send(payload)
    far.receive(near.repeat())
    far.confirm()
    rebuilt: Link[str] = Link(quiet=True)
    for payload in "abcd":
        rebuilt.send(payload)
    assert rebuilt.next_fresh() is None
    assert rebuilt.repeat().payloads == ()
    rebuilt.receive(far.repeat())
    fresh = rebuilt.next_fresh()
    assert fresh is not None
    assert fresh.payloads == ("d",)
    assert far.receive(fresh) == ((4, "d"),)


def test_numbers_go_on_after_a_restart() -> None:
    link: Link[str] = Link(sent=7, received=3)
    link.send("x")
    assert link.last_sent == 8
    assert link.repeat() == Packet(3, 8, ("x",))
    assert link.receive(Packet(8, 3, ("old", "new"))) == ((4, "new"),)
    assert link.unconfirmed_payloads == ()


def test_a_long_backlog_goes_in_bounded_packets() -> None:
    near: Link[int] = Link()
    far: Link[int] = Link()
    for number in range(1000):
        near.send(number)
    got: list[int] = []
    while (packet := near.next_fresh()) is not None:
        got += [payload for _, payload in far.receive(packet)]
    assert got == list(range(1000))


def test_an_end_knows_from_any_packet_whether_it_lacks_something() -> None:
    """An end that was away hears the other one for the first time."""
    said: Link[str] = Link()
    for word in ("one", "two"):
        said.send(word)
    said.next_fresh()  # nobody was there
    back: Link[str] = Link()
    lacks = [back.has_gap]
    heard = []
    for packet in (said.make_confirmation(), said.repeat(), said.make_confirmation()):
        heard += [word for _, word in back.receive(packet)]
        lacks.append(back.has_gap)
    assert heard == ["one", "two"]
    assert lacks == [False, True, False, False]
