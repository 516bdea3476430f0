"""Divides the model of a round into increments, so that parts shared by sub-models are stored and sent once.

Sub-models that contain each other form a chain. Its first increment is its smallest sub-model; each other one
is what the next larger sub-model adds (the format is in `edge_client.compression.layered_model`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from edge_client.compression.layered_model import ADDED, SPEC, Block, Holding, block_of, spec_group
from edge_client.pruning import index_sets
from schemas.messages import Increment
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import AnyArray, ComputedArrays, Groups, Kind, blocks, kind_of, rows_of
from schemas.tensors.chunks import BlobRef

MAP = "channel-map"
MAP_CHANNEL = 0


@dataclass(frozen=True)
class TaskBlobs:
    """The blobs of one task by name, its increments, and the shared topics of some blobs by number.

    `frozen` are the increments of what no device trains.
    """

    layers: tuple[Increment, ...]
    blobs: Mapping[str, BlobRef]
    channels: Mapping[str, int] = field(default_factory=dict)
    frozen: tuple[Increment, ...] = ()


@dataclass(frozen=True)
class PublishedVersion:
    """One frame, a whole model or its changes: the increments of each sub-model, smallest first.

    `paths` has them by the sub-model's JSON, `unpacked` the decompressed sizes of compressed increments by
    digest. `round` rounds were closed when the frame was made.
    """

    paths: Mapping[str, tuple[BlobRef, ...]]
    unpacked: Mapping[str, int] = field(default_factory=dict)
    round: int = 0


NOTHING_FROZEN = PublishedVersion({})


def name_blobs(
    specs: Mapping[str, SubModelSpec],
    frames: Sequence[PublishedVersion],
    *,
    frozen: PublishedVersion = NOTHING_FROZEN,
    lasting: Mapping[str, BlobRef],
    shared: bool,
    new_map: bool,
    graphs: Mapping[str, Mapping[str, BlobRef]] | None = None,
) -> dict[str, TaskBlobs]:
    """Each device's blobs of these frames and of what is `frozen`, by its sub-model.

    `lasting` are the blobs of all tasks, among them the channel map. With `shared`, blobs that several
    devices need get a shared topic, as does the channel map if it is new. `graphs` has each device's ONNX
    graphs, by the names of their blobs.
    """
    drawn = {name: (graphs or {}).get(name, {}) for name in specs}
    needed = {
        name: [(n, ref) for n, frame in enumerate(frames) for ref in frame.paths[spec.model_dump_json()]]
        for name, spec in specs.items()
    }
    kept = {name: frozen.paths.get(spec.model_dump_json(), ()) for name, spec in specs.items()}
    unpacked = {digest: size for frame in frames for digest, size in frame.unpacked.items()}
    # A device may need a blob twice: frames without changes are equal.
    receivers = Counter(d for refs in needed.values() for d in dict.fromkeys(ref.digest for _, ref in refs))
    receivers.update(ref.digest for refs in kept.values() for ref in refs)
    receivers.update(graph.digest for named in drawn.values() for graph in named.values())
    numbers = {digest: n for n, digest in enumerate((d for d, k in receivers.items() if k > 1), start=1)}
    if new_map and len(specs) > 1:
        numbers[lasting[MAP].digest] = MAP_CHANNEL
    made = {}
    for name, refs in needed.items():
        named = {f"layer-{n}": increment for n, increment in enumerate(refs, start=1)}
        still = {f"frozen-{n}": ref for n, ref in enumerate(kept[name], start=1)}
        blobs = {**lasting, **{key: ref for key, (_, ref) in named.items()}, **still, **drawn[name]}
        channels = {key: numbers[ref.digest] for key, ref in blobs.items() if ref.digest in numbers}
        increments = tuple(
            Increment(blob=key, frame=frame, unpacked=unpacked.get(ref.digest))
            for key, (frame, ref) in named.items()
        )
        again = tuple(Increment(blob=key) for key in still)
        made[name] = TaskBlobs(increments, blobs, channels if shared else {}, again)
    return made


def nested_chains(specs: Iterable[SubModelSpec], channel_map: ChannelMap) -> list[list[SubModelSpec]]:
    """Order distinct sub-models in chains, smallest first, in which each is contained in the next."""
    distinct = {spec.model_dump_json(): spec for spec in specs}
    sized = sorted((_bits(spec, channel_map), key) for key, spec in distinct.items())
    sized.sort(key=lambda keyed: keyed[0].bit_count())
    made: list[list[SubModelSpec]] = []
    lasts: list[int] = []
    for bits, key in sized:
        fitting = [n for n, last in enumerate(lasts) if not last & ~bits]
        if fitting:
            chain = max(fitting, key=lambda n: lasts[n].bit_count())
            made[chain].append(distinct[key])
            lasts[chain] = bits
        else:
            made.append([distinct[key]])
            lasts.append(bits)
    return made


def _bits(spec: SubModelSpec, channel_map: ChannelMap) -> int:
    """The kept channels of all groups as the bits of one number, which are quick to compare."""
    bits = 0
    for name, group in sorted(channel_map.groups.items()):
        kept = np.zeros(group.channels, np.uint8)
        kept[list(spec.indices(name, group.channels))] = 1
        bits = bits << group.channels | int.from_bytes(np.packbits(kept).tobytes()) >> -group.channels % 8
    return bits


def publish_increments(
    specs: Iterable[SubModelSpec],
    holding: Callable[[SubModelSpec], Groups],
    put: Callable[[Groups], BlobRef],
    channel_map: ChannelMap,
) -> dict[str, tuple[BlobRef, ...]]:
    """Store the increments; returns those of each distinct sub-model, smallest first, by its JSON."""
    paths: dict[str, tuple[BlobRef, ...]] = {}
    for chain in nested_chains(specs, channel_map):
        smaller: Holding | None = None
        path: tuple[BlobRef, ...] = ()
        for spec in chain:
            larger = Holding(spec, holding(spec))
            if smaller is None or not _keeps_all(smaller.groups, larger.groups):
                path, increment = (), whole(larger)
            else:
                increment = difference(smaller, larger, channel_map)
            path = (*path, put(increment))
            paths[spec.model_dump_json()] = path
            smaller = larger
    return paths


def _keeps_all(smaller: Groups, larger: Groups) -> bool:
    """Whether the larger sub-model has all arrays of the smaller one."""
    return all(name in larger.get(group, {}) for group, arrays in smaller.items() for name in arrays)


def whole(larger: Holding) -> Groups:
    """The first increment of a chain."""
    return {**larger.groups, SPEC: spec_group(larger.spec)}


def difference(smaller: Holding, larger: Holding, channel_map: ChannelMap) -> Groups:
    """The increment from a smaller sub-model to a larger one that contains it; its arrays are lazy."""
    increment: dict[str, Mapping[str, AnyArray]] = {SPEC: spec_group(larger.spec)}
    for group, arrays in larger.groups.items():
        before = smaller.groups.get(group, {})
        missing: dict[str, Kind] = {}
        located: dict[str, Block] = {}
        for name in arrays:
            block = _block(name, before, arrays, smaller.spec, larger.spec, channel_map)
            if block is None:
                missing[name] = kind_of(arrays, name)
            elif not block.whole:
                located[name] = block
        increment[group] = ComputedArrays(missing, partial(rows_of, arrays))
        added = {n: (kind_of(arrays, n)[0], (int(block.starts[-1]),)) for n, block in located.items()}
        increment[group + ADDED] = ComputedArrays(added, partial(_added_values, arrays, located))
    return increment


def _block(
    name: str,
    before: Mapping[str, AnyArray],
    arrays: Mapping[str, AnyArray],
    smaller: SubModelSpec,
    larger: SubModelSpec,
    channel_map: ChannelMap,
) -> Block | None:
    """Position of the smaller array in the larger one; None unless its bytes are there."""
    if name not in before or kind_of(before, name)[0] != kind_of(arrays, name)[0]:
        return None
    (_, inner), (_, shape) = kind_of(before, name), kind_of(arrays, name)
    layout, block = channel_map.parameters.get(name), None
    if layout is not None and len(layout.shape) == len(shape):
        block = block_of(layout, smaller, larger, shape=shape)
    if inner == shape and (block is None or block.sizes != inner):
        block = Block(shape, index_sets.full_index_set(shape).axes) if shape else None
    if block is None or block.sizes != inner:
        return None
    return block if _is_there(name, before, arrays, block) else None


def _is_there(
    name: str, before: Mapping[str, AnyArray], arrays: Mapping[str, AnyArray], block: Block
) -> bool:
    """Whether the larger array has the smaller array's bytes in this block."""
    for start, stop in blocks(kind_of(before, name)):
        there = index_sets.sliced_rows(arrays, {name: block}, name, start, stop)
        if there.tobytes() != rows_of(before, name, start, stop).tobytes():
            return False
    return True


def _added_values(
    arrays: Mapping[str, AnyArray], located: Mapping[str, Block], name: str, start: int, stop: int
) -> AnyArray:
    """Values `start` to `stop - 1` of those added to an array."""
    block = located[name]
    first = int(np.searchsorted(block.starts, start, "right")) - 1
    last = int(np.searchsorted(block.starts, stop, "left"))
    rows = [*_added_rows(arrays, name, block, first, last)]
    values = np.concatenate(rows) if rows else np.empty(0, kind_of(arrays, name)[0])
    begin = int(block.starts[first]) if first < len(block.starts) else 0
    return values[start - begin : stop - begin]


def _added_rows(
    arrays: Mapping[str, AnyArray], name: str, block: Block, first: int, last: int
) -> Iterator[AnyArray]:
    """The added values of rows `first` to `last - 1`, in blocks, since few values of a row may be added."""
    dtype, shape = kind_of(arrays, name)
    for start, stop in blocks((dtype, (last - first, *shape[1:]))):
        rows = rows_of(arrays, name, first + start, first + stop)
        yield rows[block.is_added(first + start, first + stop)]
