"""Keeps partitions on their way from this server to others until each receiver confirms its arrival.

A message that carries one may be lost with a connection although both ends live. So a transfer that had no
answer for a while is asked after, and sent again to a receiver that says it is missing. The receiver takes it
once: it knows the epoch. No sockets, and no clock: ``retry_unanswered`` is called when time has passed.
"""

from __future__ import annotations

from dataclasses import dataclass

from agileml.protocol.messages import EndOfLife, Install, Peer, Send, TransferInquiry


@dataclass(slots=True)
class _Transfer:
    to: Peer
    message: Install | EndOfLife
    recent: bool = True


class Transfers:
    """At most one transfer of each partition: the newest."""

    def __init__(self) -> None:
        self._transfers: dict[int, _Transfer] = {}

    @property
    def receiver_endpoints(self) -> frozenset[str]:
        return frozenset(transfer.to.endpoint for transfer in self._transfers.values())

    def start_transfer(self, to: Peer, message: Install | EndOfLife) -> Send:
        self._transfers[message.partition] = _Transfer(to, message)
        return Send(to, message)

    def drop_transfer(self, partition: int, epoch: int | None = None) -> None:
        """Drops a transfer that arrived, or is not wanted any more. ``epoch``: only if it is not newer than
        that.
        """
        transfer = self._transfers.get(partition)
        if transfer is not None and (epoch is None or transfer.message.epoch <= epoch):
            del self._transfers[partition]

    def send_again(self, partition: int, epoch: int) -> list[Send]:
        """Returns the transfer that is missing; nothing where another took its place."""
        transfer = self._transfers.get(partition)
        if transfer is None or transfer.message.epoch != epoch:
            return []
        transfer.recent = True
        return [Send(transfer.to, transfer.message)]

    def ends_life(self, partition: int) -> bool:
        """Whether the partition's backup was told to serve, after the last ranges."""
        transfer = self._transfers.get(partition)
        return transfer is not None and isinstance(transfer.message, EndOfLife)

    def retry_unanswered(self) -> list[Send]:
        """Asks after what was sent, or asked after, before the last call."""
        asked = []
        for partition, transfer in self._transfers.items():
            if not transfer.recent:
                asked.append(Send(transfer.to, TransferInquiry(partition, transfer.message.epoch)))
            # The answer to what was sent just now may still be on its way; it is asked after the next time.
            transfer.recent = False
        return asked
