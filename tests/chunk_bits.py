"""Not tests: sets of chunks, written as bits."""

from schemas.tensors.chunks import ChunkSet


def chunks_of(bits: int) -> ChunkSet:
    """The numbers of the bits that are set, the lowest being 0."""
    return ChunkSet.of(number for number in range(bits.bit_length()) if bits >> number & 1)
