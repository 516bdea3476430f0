"""Interpreting the messages of receiver processes."""

from __future__ import annotations

from edge_server.rounds.events import ChunkReceived
from edge_server.transport.receivers.messages import Misfit, NoRoom, Placed, ReceiverMessage, Unable
from schemas.errors import ConfigError, PeerError
from schemas.tensors.blobs import CHUNK_HEADER_BYTES, Chunk
from schemas.values import Reason


def bytes_of(message: Placed | Misfit) -> int:
    """The size in bytes of the MQTT payload that the device sent."""
    return message.size + CHUNK_HEADER_BYTES if isinstance(message, Placed) else message.size


def chunk_of(message: Placed | Misfit) -> ChunkReceived:
    """The received chunk; raises `PeerError` if the payload was none."""
    if isinstance(message, Misfit):
        raise PeerError(message.detail, reason=Reason(message.reason))
    # The receiver has written the bytes; the round machine needs only their number.
    return ChunkReceived(message.device, Chunk(message.prefix, message.index, bytes(message.size)))


def check_able(message: ReceiverMessage) -> None:
    """Raise `OSError` if the disk is full, and `ConfigError` if receivers cannot work with this broker."""
    if isinstance(message, NoRoom):
        raise OSError(message.errno, message.detail)
    if isinstance(message, Unable):
        raise ConfigError(
            f"[federation] receivers: {message.detail}: leave receivers at 0, or use a broker with shared "
            "subscriptions (Mosquitto 2, EMQX, HiveMQ, or the embedded one)"
        )
