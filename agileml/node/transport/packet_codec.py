"""Encodes the packets of a link as one frame each. Whatever does not fit is a WireError."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from agileml.node.transport.reliable_link import Packet

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview


class WireError(ValueError):
    """The received bytes are not a message of this version."""


class PacketCodec(Protocol[T]):
    """Encodes the packets of a link, and decodes them."""

    def encode_packet(self, packet: Packet[T]) -> bytes: ...

    def decode_packet(self, frame: Buffer) -> Packet[T]:
        """Raises WireError for what is no packet of this link."""
        ...


class StructCodec(Generic[T]):
    """Encodes packets of tagged msgspec structs, without arrays. ``union``: the types that may come."""

    def __init__(self, union: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[tuple[int, int, tuple[T, ...]]] = msgspec.msgpack.Decoder(
            tuple[int, int, tuple[union, ...]]
        )

    def encode_packet(self, packet: Packet[T]) -> bytes:
        return msgspec.msgpack.encode((packet.confirmed, packet.first, packet.payloads))

    def decode_packet(self, frame: Buffer) -> Packet[T]:
        """Raises WireError."""
        try:
            return Packet(*self._decoder.decode(frame))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise WireError(str(error)) from error
