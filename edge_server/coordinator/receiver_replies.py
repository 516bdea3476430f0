"""What the server makes of what its receivers say."""

from __future__ import annotations

from edge_server.rounds.events import ChunkReceived
from edge_server.transport.receivers.messages import Misfit, NoRoom, Placed, ReceiverMessage, Unable
from schemas.errors import ConfigError, PeerError
from schemas.tensors.blobs import CHUNK_HEADER_BYTES, Chunk
from schemas.values import Reason


def bytes_of(told: Placed | Misfit) -> int:
    """How large what came from the device was."""
    return told.size + CHUNK_HEADER_BYTES if isinstance(told, Placed) else told.size


def chunk_of(told: Placed | Misfit) -> ChunkReceived:
    """The chunk that has come; raises `PeerError` for what was none."""
    if isinstance(told, Misfit):
        raise PeerError(told.detail, reason=Reason(told.reason))
    # Its bytes are in their place; the machine only looks at how many they are.
    return ChunkReceived(told.device, Chunk(told.prefix, told.index, bytes(told.size)))


def check_able(told: ReceiverMessage) -> None:
    """Raise `OSError` where the disk takes no more, and `ConfigError` where receivers can do nothing."""
    if isinstance(told, NoRoom):
        raise OSError(told.errno, told.detail)
    if isinstance(told, Unable):
        raise ConfigError(
            f"[federation] receivers: {told.detail}: leave receivers at 0, or use a broker with shared "
            "subscriptions (Mosquitto 2, EMQX, HiveMQ, or the embedded one)"
        )
