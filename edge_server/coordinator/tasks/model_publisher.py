"""What of each model is published: all of it, or, once devices have one, frames of what has changed.

A task names all frames since the last whole model, and a device fetches those that it lacks: one that took
part in the round before only the newest, one that missed some these too, one that is new or has lost its own
all of them. So nobody need keep account of who has what.

The frames are kept in one file beside the run. They belong to the rounds that are closed: a planning that is
done again, also by a server that was killed, names the same ones. Without the file the next model is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.compression.chain import Chain, in_codes
from edge_client.compression.decoding import MODEL
from edge_client.compression.delta_frames import added_up, changes, near
from edge_client.compression.downlink import Differences, Down
from edge_client.compression.zstd import Zstd
from edge_client.storage.atomic_files import unlink
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.state_file import NotPlainFile, read_plain, write_plain
from edge_server.coordinator.tasks.downlink import DownlinkModel
from edge_server.coordinator.tasks.increments import PublishedVersion, publish_increments
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Arrays, BlobRef, FlatGroups, Groups
from schemas.tensors.files import tensor_file_size

Specs = Mapping[str, SubModelSpec]
"""Sub-models by their JSON."""


@dataclass(frozen=True, eq=False)
class VersionChain:
    """The frames since the last whole model; `params` is what all of them come to, for the whole network."""

    frames: tuple[PublishedVersion, ...] = ()
    params: Arrays = field(default_factory=dict)

    @property
    def specs(self) -> Specs:
        """The sub-models that it has layers for."""
        paths = self.frames[0].paths if self.frames else {}
        return {key: SubModelSpec.model_validate_json(key) for key in paths}

    @property
    def refs(self) -> frozenset[BlobRef]:
        """All its blobs."""
        return frozenset(ref for frame in self.frames for path in frame.paths.values() for ref in path)

    def covers(self, specs: Specs, chunk_bytes: int) -> bool:
        """Whether it has what these sub-models need, in chunks of that size."""
        return specs.keys() <= self.specs.keys() and all(ref.chunk_bytes == chunk_bytes for ref in self.refs)


@dataclass(frozen=True, eq=False)
class ModelVersion:
    """The model after `round` closed rounds, what a sub-model receives of it, and the size of chunks."""

    params: Arrays
    round: int
    holding: Callable[[SubModelSpec], Groups]
    chunk_bytes: int


class ModelPublisher:
    """Makes the frames of one run; what was kept at `path` counts where the run goes on."""

    def __init__(
        self, path: Path, store: BlobStore, channel_map: ChannelMap, down: Down, *, durable: bool, go_on: bool
    ) -> None:
        self._path, self._store, self._channel_map, self._durable = path, store, channel_map, durable
        self._down = down
        self._reel = _read(path, store) if go_on and down.delta else VersionChain()

    @property
    def digests(self) -> frozenset[str]:
        """Blobs that later tasks may name again."""
        return frozenset(ref.digest for ref in self._reel.refs)

    def begin_anew(self) -> None:
        """The model is another one than what was published leads to: the next one goes down whole."""
        self._reel = VersionChain()
        unlink(self._path)

    def exact(self, edition: ModelVersion, specs: Iterable[SubModelSpec]) -> tuple[PublishedVersion, ...]:
        """One frame for these sub-models, of the model as it is."""
        return (self._frame(edition, specs, None, None),)

    def frames(
        self,
        edition: ModelVersion,
        specs: Iterable[SubModelSpec],
        others: Callable[[], Iterable[SubModelSpec]],
    ) -> tuple[PublishedVersion, ...]:
        """The frames for these sub-models, as the strategy's codecs make them.

        Where frames are to follow each is made for the `others`, too, which may be asked for later.
        """
        if not self._down.delta:
            return (self._frame(edition, specs, self._whole(edition), self._down.pack),)
        wanted = {spec.model_dump_json(): spec for spec in specs}
        covers = bool(self._reel.frames) and self._reel.covers(wanted, edition.chunk_bytes)
        if not covers or self._reel.frames[-1].round != edition.round:
            goes_on = covers and self._goes_on(edition, self._down.delta)
            wanted.update((spec.model_dump_json(), spec) for spec in others())
            self._reel = self._longer(edition) if goes_on else self._begun(edition, wanted.values())
            _write(self._path, self._reel, durable=self._durable)
        return self._reel.frames

    def _goes_on(self, edition: ModelVersion, delta: Differences) -> bool:
        """Whether the next frame may tell changes alone."""
        frames = self._reel.frames
        room = len(frames) < delta.every and frames[-1].round < edition.round
        return room and near(edition.params, self._reel.params)

    def _begun(self, edition: ModelVersion, specs: Iterable[SubModelSpec]) -> VersionChain:
        """A reel with nothing but the whole model."""
        encoded = self._whole(edition) or {MODEL: edition.params}
        frame = self._frame(edition, specs, encoded, self._down.pack)
        return VersionChain((frame,), _made(added_up([encoded])))

    def _longer(self, edition: ModelVersion) -> VersionChain:
        """The reel with one frame more."""
        before, number = self._reel.params, self._down.number
        encoded = changes(edition.params, before, number)
        frame = self._frame(edition, self._reel.specs.values(), encoded, self._down.pack)
        return VersionChain((*self._reel.frames, frame), _made(added_up([{MODEL: before}, encoded])))

    def _whole(self, edition: ModelVersion) -> Groups | None:
        """The model encoded; None where it travels as it is."""
        number = self._down.whole
        # To the nearest: it is half as far off as by chance, and what is off is not added up over rounds.
        return None if number is None else in_codes(number, edition.params, None)

    def _frame(
        self, edition: ModelVersion, specs: Iterable[SubModelSpec], encoded: Groups | None, pack: Zstd | None
    ) -> PublishedVersion:
        downlink, writing = DownlinkModel(encoded, self._channel_map), Chain(pack=pack)
        sizes: dict[str, int] = {}

        def put(groups: Groups) -> BlobRef:
            ref = self._store.put_groups(groups, chunk_bytes=edition.chunk_bytes, write=writing.write)
            if pack is not None:
                sizes[ref.digest] = tensor_file_size(FlatGroups(groups))
            return ref

        def holding(spec: SubModelSpec) -> Groups:
            return downlink.groups(edition.holding(spec), spec)

        return PublishedVersion(
            publish_increments(specs, holding, put, self._channel_map), sizes, edition.round
        )


def _made(groups: Groups) -> Arrays:
    """The model in memory, and nobody else's."""
    return {name: np.array(groups[MODEL][name]) for name in groups[MODEL]}


def _write(path: Path, reel: VersionChain, *, durable: bool) -> None:
    frames = [
        {
            "round": frame.round,
            "unpacked": frame.unpacked,
            "paths": {key: [ref.model_dump() for ref in refs] for key, refs in frame.paths.items()},
        }
        for frame in reel.frames
    ]
    write_plain(path, {"frames": frames, "params": reel.params}, durable=durable)


def _read(path: Path, store: BlobStore) -> VersionChain:
    """What was kept; nothing where it is not there, or a blob of it is not."""
    try:
        kept = read_plain(path)
        reel = VersionChain(tuple(_frame(one) for one in kept["frames"]), kept["params"])
    except (NotPlainFile, KeyError, TypeError, ValueError):
        return VersionChain()
    return (
        reel
        if all(store.is_sound(digest) for digest in {ref.digest for ref in reel.refs})
        else VersionChain()
    )


def _frame(kept: Mapping[str, Any]) -> PublishedVersion:
    paths = {key: tuple(BlobRef(**ref) for ref in refs) for key, refs in kept["paths"].items()}
    return PublishedVersion(paths, kept["unpacked"], kept["round"])
