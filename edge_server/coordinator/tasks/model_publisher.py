"""Publishes each model version: as a whole, or as the changes since the version before.

A task names all frames since the last whole model, and a device fetches those that it lacks: only the newest
if it took part in the round before, all of them if it is new. The server does not track who has which.

The frames are kept in a file of the run. They belong to closed rounds: a repeated planning, also after a
restart, names the same ones. Without the file the next version is published whole.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.compression.chain import Chain, in_codes
from edge_client.compression.decoding import MODEL, SCALES
from edge_client.compression.downlink import Differences, DownlinkCodecs, added_up, changes, near
from edge_client.compression.zstd import Zstd
from edge_client.pruning import index_sets
from edge_client.storage import atomic_files, state_file
from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.tasks.increments import NOTHING_FROZEN, PublishedVersion, publish_increments
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays, GatheredArrays, Groups
from schemas.tensors.chunks import BlobRef
from schemas.tensors.files import FlatGroups, tensor_file_size

Specs = Mapping[str, SubModelSpec]  # Sub-models by their JSON


@dataclass(frozen=True, eq=False)
class VersionChain:
    """The frames since the last whole model, and the parameters of the full network after all of them."""

    frames: tuple[PublishedVersion, ...] = ()
    params: Arrays = field(default_factory=dict)

    @property
    def specs(self) -> Specs:
        """The sub-models that the frames have increments for, by their JSON."""
        paths = self.frames[0].paths if self.frames else {}
        return {key: SubModelSpec.model_validate_json(key) for key in paths}

    @property
    def refs(self) -> frozenset[BlobRef]:
        return frozenset(ref for frame in self.frames for path in frame.paths.values() for ref in path)

    def covers(self, specs: Specs, chunk_bytes: int) -> bool:
        """Whether the frames have increments for these sub-models in chunks of this size."""
        return specs.keys() <= self.specs.keys() and all(ref.chunk_bytes == chunk_bytes for ref in self.refs)


@dataclass(frozen=True, eq=False)
class ModelVersion:
    """The model after `round` closed rounds; `holding` gives the groups that a sub-model receives.

    `frozen` are the names of what no device trains.
    """

    params: Arrays
    round: int
    holding: Callable[[SubModelSpec], Groups]
    chunk_bytes: int
    frozen: frozenset[str] = frozenset()

    def moving_groups(self, spec: SubModelSpec) -> Groups:
        """The groups that a sub-model receives, without what is frozen."""
        groups = self.holding(spec)
        return {**groups, MODEL: _without(groups[MODEL], self.frozen)} if self.frozen else groups

    def frozen_groups(self, spec: SubModelSpec) -> Groups:
        """What is frozen of a sub-model."""
        model = self.holding(spec)[MODEL]
        return {MODEL: GatheredArrays({name: (model, name) for name in model if name in self.frozen})}


class ModelPublisher:
    """Publishes the versions of one run; a resumed run (`go_on`) uses the frames at `path`."""

    def __init__(
        self,
        path: Path,
        store: BlobStore,
        channel_map: ChannelMap,
        down: DownlinkCodecs,
        *,
        durable: bool,
        go_on: bool,
    ) -> None:
        self._path, self._store, self._channel_map, self._durable = path, store, channel_map, durable
        self._down = down
        self._frozen, self._frozen_of = NOTHING_FROZEN, ""
        self.chain = _read(path, store) if go_on and down.delta else VersionChain()

    @property
    def digests(self) -> frozenset[str]:
        """Digests of blobs that later tasks may name."""
        frozen = (ref for path in self._frozen.paths.values() for ref in path)
        return frozenset(ref.digest for ref in (*self.chain.refs, *frozen))

    def reset(self) -> None:
        """Forget the frames, so that the next version is published whole."""
        self.chain = VersionChain()
        atomic_files.unlink(self._path)

    def publish_exact(
        self, version: ModelVersion, specs: Iterable[SubModelSpec]
    ) -> tuple[PublishedVersion, ...]:
        """Publish the unencoded model for these sub-models."""
        return (self._frame(version, specs, None, None),)

    def publish(
        self,
        version: ModelVersion,
        specs: Iterable[SubModelSpec],
        others: Callable[[], Iterable[SubModelSpec]],
    ) -> tuple[PublishedVersion, ...]:
        """Publish the model for these sub-models by the strategy's codecs; returns all frames of it.

        With the codec `delta` frames also have the `others`, the sub-models that later tasks may need.
        """
        if not self._down.delta:
            return (self._frame(version, specs, self._whole(version), self._down.pack),)
        wanted = {spec.model_dump_json(): spec for spec in specs}
        covers = bool(self.chain.frames) and self.chain.covers(wanted, version.chunk_bytes)
        if not covers or self.chain.frames[-1].round != version.round:
            extends = covers and self._can_extend(version, self._down.delta)
            wanted.update((spec.model_dump_json(), spec) for spec in others())
            self.chain = (
                self._extend_chain(version) if extends else self._start_chain(version, wanted.values())
            )
            _write(self._path, self.chain, durable=self._durable)
        return self.chain.frames

    def publish_frozen(self, version: ModelVersion, specs: Iterable[SubModelSpec]) -> PublishedVersion:
        """Publish what is frozen, for these sub-models; the same arrays and channels are the same blobs.

        Whichever channels of trained layers a sub-model keeps, what is frozen of it is the same.
        """
        if not version.frozen:
            return NOTHING_FROZEN
        groups = self._channel_map.groups_of(version.frozen)
        cut = {spec.model_dump_json(): spec.of_groups(groups) for spec in specs}
        wanted = {spec.model_dump_json(): spec for spec in cut.values()}
        state = _digest({name: version.params[name] for name in sorted(version.frozen)})
        known = f"{state} {version.chunk_bytes} {sorted(wanted)}"
        if known != self._frozen_of:
            put = partial(self._store.put_groups, chunk_bytes=version.chunk_bytes)
            paths = publish_increments(wanted.values(), version.frozen_groups, put, self._channel_map)
            self._frozen, self._frozen_of = PublishedVersion(paths, round=version.round), known
        paths = {name: self._frozen.paths[spec.model_dump_json()] for name, spec in cut.items()}
        return replace(self._frozen, paths=paths)

    def _can_extend(self, version: ModelVersion, delta: Differences) -> bool:
        """Whether the next frame may have changes only."""
        frames = self.chain.frames
        room = len(frames) < delta.every and frames[-1].round < version.round
        return room and near(_without(version.params, version.frozen), self.chain.params)

    def _start_chain(self, version: ModelVersion, specs: Iterable[SubModelSpec]) -> VersionChain:
        encoded = self._whole(version) or {MODEL: _without(version.params, version.frozen)}
        frame = self._frame(version, specs, encoded, self._down.pack)
        return VersionChain((frame,), _copy_model(added_up([encoded])))

    def _extend_chain(self, version: ModelVersion) -> VersionChain:
        before, number = self.chain.params, self._down.number
        encoded = changes(_without(version.params, version.frozen), before, number)
        frame = self._frame(version, self.chain.specs.values(), encoded, self._down.pack)
        return VersionChain((*self.chain.frames, frame), _copy_model(added_up([{MODEL: before}, encoded])))

    def _whole(self, version: ModelVersion) -> Groups | None:
        """The encoded model; None if it is sent unencoded."""
        number = self._down.whole
        # Rounded to nearest: half the error of stochastic rounding, and errors do not add up over rounds.
        params = _without(version.params, version.frozen)
        return None if number is None else in_codes(number, params, None)

    def _frame(
        self, version: ModelVersion, specs: Iterable[SubModelSpec], encoded: Groups | None, pack: Zstd | None
    ) -> PublishedVersion:
        writing = Chain(pack=pack)
        sizes: dict[str, int] = {}

        def put(groups: Groups) -> BlobRef:
            ref = self._store.put_groups(groups, chunk_bytes=version.chunk_bytes, write=writing.write)
            if pack is not None:
                sizes[ref.digest] = tensor_file_size(FlatGroups(groups))
            return ref

        def holding(spec: SubModelSpec) -> Groups:
            return sent_groups(encoded, version.moving_groups(spec), spec, self._channel_map)

        return PublishedVersion(
            publish_increments(specs, holding, put, self._channel_map), sizes, version.round
        )


def _without(arrays: Arrays, names: Collection[str]) -> Arrays:
    return GatheredArrays({name: (arrays, name) for name in arrays if name not in names}) if names else arrays


def _digest(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name in arrays:
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def _copy_model(groups: Groups) -> Arrays:
    """A copy of the model in memory."""
    return {name: np.array(groups[MODEL][name]) for name in groups[MODEL]}


def _write(path: Path, chain: VersionChain, *, durable: bool) -> None:
    frames = [
        {
            "round": frame.round,
            "unpacked": frame.unpacked,
            "paths": {key: [ref.model_dump() for ref in refs] for key, refs in frame.paths.items()},
        }
        for frame in chain.frames
    ]
    state_file.write_plain(path, {"frames": frames, "params": chain.params}, durable=durable)


def _read(path: Path, store: BlobStore) -> VersionChain:
    """The kept chain; an empty one if the file or one of its blobs is missing or damaged."""
    try:
        kept = state_file.read_plain(path)
        chain = VersionChain(tuple(_frame(frame) for frame in kept["frames"]), kept["params"])
    except (state_file.NotPlainFile, KeyError, TypeError, ValueError):
        return VersionChain()
    intact = all(store.is_sound(digest) for digest in {ref.digest for ref in chain.refs})
    return chain if intact else VersionChain()


def _frame(kept: Mapping[str, Any]) -> PublishedVersion:
    paths = {key: tuple(BlobRef(**ref) for ref in refs) for key, refs in kept["paths"].items()}
    return PublishedVersion(paths, kept["unpacked"], kept["round"])


def sent_groups(
    encoded: Groups | None, received: Groups, spec: SubModelSpec, channel_map: ChannelMap
) -> Groups:
    """The groups that a device with this sub-model receives, `model` encoded unless `encoded` is None."""
    if encoded is None:
        return received
    layouts, steps = channel_map.parameters, encoded.get(SCALES, {})
    scales = {name: steps[name][index_sets.submodel_index_set(layouts[name], spec).axes[0]] for name in steps}
    model = index_sets.LazySlice(encoded[MODEL], spec, channel_map)
    return {**received, MODEL: model, **({SCALES: scales} if scales else {})}
