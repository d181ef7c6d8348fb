"""Runs the agent of one machine, whatever runs there: roles of a training, or a program.

The agent holds the machine's one link to the coordinator of its job, tells what its workload says, and hands
it what the coordinator orders. It lives by lease: a machine whose coordinator is silent for a lease ends,
unless its workload has something to finish. Where the job has nominal time and nobody drives it, the agent
also ends at the machine's bound, and once the driver has been away for longer than the job allows
(``nominal_time``). What the machine itself hears of its eviction goes upward as well.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import zmq

from agileml.node.agent.notices import NoticeSource
from agileml.node.hosts.nominal_time import AgentLifetime, MachineEnded, raise_ended
from agileml.node.liveness import SilenceTimer
from agileml.node.run_folder import write_whole
from agileml.node.transport.link_end import LinkEnd

T = TypeVar("T")
TAKEN: Final = 4
"""The exit status of a machine that ended itself, as its provider would have, or because nobody drove the
job.
"""
LEASE_OVER: Final = 1
"""The exit status of a machine whose coordinator was silent for a lease."""
COORDINATOR: Final = "the coordinator's link"
"""The name under which silence of the coordinator is measured, beside those of what runs on the machine."""
_LAST_WORDS_MS: Final = 100
"""How long the last message, such as that the machine is lost, may stay in the socket."""


class AgentWorkload(Protocol[T]):
    """Defines what an agent runs. All calls return soon: the agent speaks for the machine meanwhile."""

    outbox: deque[T]
    """What it has to say to the coordinator, in order; the agent takes it from there."""

    def obey_order(self, order: T) -> int | None:
        """Does what the coordinator orders. Returns an exit status where the machine is to end."""

    def run_turn(self, lifetime: AgentLifetime) -> int | None:
        """Does what is to be done now. Returns an exit status where the machine is to end."""

    def wait_ms(self, wait_ms: int) -> int:
        """Shortens ``wait_ms`` to the time until it wants its next turn."""

    def outlives_lease(self) -> bool:
        """Whether it has something to finish although nobody is heard."""

    def mark_taken(self) -> None:
        """Takes note that the provider takes the machine now: its last words go into ``outbox``."""

    def end(self) -> None:
        """Ends all that it runs. Harmless when repeated."""


class MachineAgent(Generic[T]):
    """The agent of one machine.

    ``poller``: wakes the agent when its workload has something to do; ``silence``: measures the silence of
    the coordinator, and of what the workload chooses. ``notices``: where the machine itself hears of its
    eviction, told upward as ``to_notice`` makes a message of the seconds left.
    """

    def __init__(
        self,
        workload: AgentWorkload[T],
        link: LinkEnd[T],
        lifetime: AgentLifetime,
        poller: zmq.Poller,
        silence: SilenceTimer,
        lease_s: float,
        notices: NoticeSource,
        to_notice: Callable[[float], T],
    ) -> None:
        self._workload = workload
        self._link = link
        self._lifetime = lifetime
        self._poller = poller
        self._silence = silence
        self._lease_s = lease_s
        self._notices = notices
        self._to_notice = to_notice
        poller.register(link.socket, zmq.POLLIN)

    def run(self) -> int:
        """Runs until the machine is to end; returns the exit status.

        ``MachineEnded`` ends it as its provider does (``end_by_sigterm``).
        """
        try:
            status = None
            while status is None:
                self._send_messages()
                wait_ms = self._workload.wait_ms(self._link.wait_ms())
                self._poller.poll(self._lifetime.limit_wait_ms(wait_ms))
                status = self.run_turn()
        except MachineEnded:
            status = TAKEN
        self._workload.end()
        self._lifetime.record_end()
        self._send_messages(at_once=True)
        return status

    def run_turn(self) -> int | None:
        """Takes what has come, and does what is due. Returns an exit status where the machine is to end."""
        awake_at = time.monotonic()
        self._silence.wake_up(awake_at)  # before anything is read: a stopped machine hears nobody
        orders = tuple(self._link.receive())
        self._link.confirm()
        if self._link.heard_at >= awake_at:
            self._silence.mark_heard(COORDINATOR)
        for order in orders:
            status = self._workload.obey_order(order)
            if status is not None:
                return status
        seconds = self._notices.seconds_left()
        if seconds is not None:
            self._link.queue_message(self._to_notice(seconds))
        if self._silence.silent_s(COORDINATOR) > self._lease_s and not self._workload.outlives_lease():
            return LEASE_OVER
        if self._lifetime.is_over():
            self._workload.mark_taken()
            return TAKEN
        return self._workload.run_turn(self._lifetime)

    def _send_messages(self, *, at_once: bool = False) -> None:
        while self._workload.outbox:
            self._link.queue_message(self._workload.outbox.popleft())
        self._link.flush(at_once=at_once)


def end_by_sigterm() -> None:
    """Has SIGTERM end this machine as its provider does. Call it in an agent's own process, once it runs."""
    signal.signal(signal.SIGTERM, raise_ended)


def record_process_group(machine: Path) -> None:
    """Writes down, in the machine's folder, which process group its host has to kill."""
    write_whole(machine / "group", str(os.getpgrp()))


def close_context(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """Closes the agent's sockets once their last messages are on their way."""
    context.destroy(linger=_LAST_WORDS_MS)
