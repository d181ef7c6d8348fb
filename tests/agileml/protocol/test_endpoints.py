from __future__ import annotations

import time
from pathlib import Path

import zmq

from agileml.protocol.endpoints import DataEnd
from agileml.protocol.messages import Peer, Read, Send


def test_what_is_sent_over_a_connection_that_was_just_closed_and_opened_again_arrives(tmp_path: Path) -> None:
    """A server does so that forgets one partition and hands over the next to the same machine."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
    poller = zmq.Poller()
    listening = DataEnd(context, "server/t2/1", poller, None, f"ipc://{tmp_path}/t2")
    sending = DataEnd(context, "server/t1/1", zmq.Poller(), None)
    target = Peer("t2", listening.endpoint)
    try:
        for number in range(1, 200):
            sending.queue_message(Send(target, Read(number, 0, 1, ())))
            sending.flush()
            heard: list[int] = []
            until = time.monotonic() + 60
            while number not in heard:
                assert time.monotonic() < until, f"message {number} was lost"
                poller.poll(100)
                heard += [said.request for _, said in listening.receive() if isinstance(said, Read)]
            sending.close_all_but(frozenset())
    finally:
        context.destroy(linger=0)
