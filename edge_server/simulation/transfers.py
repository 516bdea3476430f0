"""Transfers of blobs to or from one device as arithmetic: their end in seconds, their bytes on the wire.

A simulation cuts no blob into chunks, but counts the bytes that a broker would have carried.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from edge_client.transport.chunk_transfer import WINDOW
from schemas.messages import BlobRequest, encode_message
from schemas.tensors.blobs import CHUNK_HEADER_BYTES, BlobRef


@dataclass(frozen=True)
class Transit:
    """A transfer until `ends_at` (seconds); without a link None, with `left_s` seconds left."""

    ref: BlobRef
    number: int
    left_s: float
    ends_at: float | None


class Transits:
    """The transfers in one direction, one after the other; a cut link loses no progress."""

    def __init__(self) -> None:
        self._moving: dict[str, Transit] = {}
        self._count = 0
        self._free_at = 0.0

    def begin(self, ref: BlobRef, duration_s: float, now: float) -> Transit | None:
        """Begin or continue a transfer; None if it is running already."""
        known = self._moving.get(ref.digest)
        if known is not None and known.ends_at is not None:
            return None
        left = duration_s if known is None else known.left_s
        self._count += 1
        self._free_at = max(now, self._free_at) + left
        self._moving[ref.digest] = transit = Transit(ref, self._count, left, self._free_at)
        return transit

    def finish(self, digest: str, number: int) -> BlobRef | None:
        """Complete the transfer of that number; None if it was cut or forgotten."""
        transit = self._moving.get(digest)
        if transit is None or transit.number != number or transit.ends_at is None:
            return None
        return self._moving.pop(digest).ref

    def cut(self, now: float) -> None:
        """Interrupt all transfers."""
        for digest, transit in self._moving.items():
            if transit.ends_at is not None:
                left = min(transit.left_s, transit.ends_at - now)
                self._moving[digest] = replace(transit, left_s=left, ends_at=None)
        self._free_at = now

    def forget(self, digests: Iterable[str]) -> None:
        """Drop the transfers of these blobs."""
        for digest in digests:
            self._moving.pop(digest, None)

    def __contains__(self, digest: str) -> bool:
        return digest in self._moving


def transfer_bytes(ref: BlobRef) -> int:
    """Bytes of all chunks with their headers."""
    return ref.size + ref.chunks * CHUNK_HEADER_BYTES


def later_request_bytes(federation: str, device: str, ref: BlobRef) -> int:
    """Bytes of all requests but the first, as `edge_client.transport.chunk_transfer` makes them."""
    requests = (
        BlobRequest(federation=federation, device=device, digest=ref.digest, first=first, count=count)
        for first, count in later_windows(ref.chunks)
    )
    return sum(len(encode_message(request)) for request in requests)


def later_windows(chunks: int) -> Iterator[tuple[int, int]]:
    """First chunk and number of chunks of each later request: half a window after each half received."""
    half = WINDOW // 2
    for first in range(WINDOW, chunks, half):
        yield first, min(half, chunks - first)
