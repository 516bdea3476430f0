"""The slow half of a gateway: it examines updates with the server's firewall, and adds them."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.validation import consistency, contents, norms, site_sums
from edge_server.coordinator.validation.update import (
    NOT_ITS_BYTES,
    Examination,
    client_update,
    examine_update,
)
from edge_server.rounds.gateway.events import MakeSum, SumMade
from edge_server.storage.gateway_journal import GatewayJournal
from edge_server.strategy.aggregation import array_stores, partial_sums
from edge_server.strategy.aggregation.transforms import TRANSFORMS, Transform
from edge_server.strategy.components import make_component
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.groups.rule import GroupRule
from schemas.errors import PeerError
from schemas.messages import SiteReceipt, SiteSum, SiteTerms, Task, TrainTask, Update
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Arrays, Groups
from schemas.tensors.chunks import MAX_BLOB_BYTES, BlobRef, decode_json

MAP = "channel-map"


class SiteWork:
    """Examines and adds the updates of one site; call `take_terms` before the rest."""

    def __init__(self, site: str, folder: Path, store: BlobStore, journal: GatewayJournal) -> None:
        self._site, self._folder, self._store, self._journal = site, folder, store, journal
        self._unpacked = contents.UnpackedCache(folder / "unpacked", anew=True)
        self._maps: dict[str, ChannelMap] = {}
        self._rules: tuple[GroupRule, ...] = ()
        self._transforms: tuple[Transform, ...] = ()
        self._trained_parts = norms.ALL

    def take_terms(self, terms: SiteTerms) -> None:
        """Make the components that the run uses; `ConfigError` if this machine lacks one of them."""
        self._rules = tuple(make_component("group rule", GROUPS, rule) for rule in terms.groups)
        self._transforms = tuple(make_component("transform", TRANSFORMS, one) for one in terms.transforms)
        self._trained_parts = terms.parts

    def most_bytes(self, task: Task | None) -> int:
        """Most bytes of an honest answer to a task."""
        if task is None or task.blobs[MAP].digest not in self._store:
            return MAX_BLOB_BYTES
        return contents.max_answer_bytes(task, self._map(task.blobs[MAP]), self._rules)

    def _map(self, ref: BlobRef) -> ChannelMap:
        if ref.digest not in self._maps:
            data = self._store.blob_path(ref.digest).read_bytes()
            self._maps = {ref.digest: decode_json(ChannelMap, data)}
        return self._maps[ref.digest]

    # --- examining ---
    def examine(self, update: Update, task: TrainTask) -> Update:
        """The update with its receipt; both are on disk when this returns."""
        judged = update.model_copy(update={"receipt": self._judge(update, task)})
        self._journal.write_examined(judged)
        return judged

    def _judge(self, update: Update, task: TrainTask) -> SiteReceipt:
        if not self._store.verify(update.blob):
            return self._make_refusal(NOT_ITS_BYTES)
        channel_map = self._map(task.blobs[MAP])
        path = self._store.blob_path(update.blob.digest)
        found = examine_update(update, path, task, channel_map, self._rules, unpacked=self._unpacked)
        return (
            self._receipt(update, found, channel_map) if found.reason is None else self._make_refusal(found)
        )

    def _make_refusal(self, found: Examination) -> SiteReceipt:
        return SiteReceipt(site=self._site, reason=found.reason, detail=found.detail[:500])

    def _receipt(self, update: Update, found: Examination, channel_map: ChannelMap) -> SiteReceipt:
        model = {norms.MODEL: found.sizes[norms.MODEL]}
        names = tuple(found.groups[norms.MODEL])
        small = _small_groups(found.groups)
        return SiteReceipt(
            site=self._site,
            norms=norms.norms_of(model, channel_map, parts=self._trained_parts),
            moved=consistency.is_moved(model),
            parameters=None if set(names) == channel_map.parameters.keys() else names,
            groups=self._store.put_groups(small, chunk_bytes=update.blob.chunk_bytes) if small else None,
        )

    # --- adding ---
    def add(self, command: MakeSum, task: Task | None) -> SumMade:
        """Add the updates and the sums of sites within this one, as a file."""
        request = command.request
        lost = [update.device for update in command.updates if not self._store.is_sound(update.blob.digest)]
        if lost or task is None:
            return SumMade(request, lost=tuple(lost or request.members))
        channel_map = self._map(task.blobs[MAP])
        try:
            sums = [*self._own(command, channel_map), *self._parts(command.parts, channel_map)]
            total = sums[0] if len(sums) == 1 else partial_sums.add_sums(sums, channel_map)
            chunk_bytes = min(ref.chunk_bytes for ref in task.blobs.values())
            blob = self._store.put_groups(
                partial_sums.planes_of(total.groups), chunk_bytes=chunk_bytes, write=partial_sums.write_sum
            )
        except PeerError:
            return SumMade(request, lost=tuple(request.members))
        return SumMade(request, blob)

    def _own(self, command: MakeSum, channel_map: ChannelMap) -> list[partial_sums.PartialSum]:
        if not command.updates:
            return []
        members = command.request.members
        sources = [
            client_update(
                update,
                self._store.blob_path(update.blob.digest),
                unpacked=self._unpacked,
                staleness=members[update.device].staleness,
                ratio=None,
            )
            for update in command.updates
        ]
        keep = partial(array_stores.FileArrays, self._folder)
        return [
            partial_sums.sum_clients(
                sources, command.request.weights, self._transforms, channel_map, keep=keep
            )
        ]

    def _parts(self, parts: Sequence[SiteSum], channel_map: ChannelMap) -> list[partial_sums.PartialSum]:
        return [
            partial_sums.PartialSum(
                part.members,
                site_sums.open_sum(self._store.blob_path(part.blob.digest), self._unpacked, channel_map),
            )
            for part in parts
            if part.blob is not None
        ]

    def keep_only(self, digests: frozenset[str]) -> None:
        """Delete all other complete blobs; parts of blobs that are on their way stay."""
        for digest in self._store.digests() - digests:
            self._store.blob_path(digest).unlink(missing_ok=True)
        self._unpacked.keep_only(digests)


def _small_groups(groups: Groups) -> Groups:
    """The groups besides the model, and of the model its running variances, which the server checks."""
    model: Mapping[str, object] = groups[norms.MODEL]
    variances: Arrays = {name: groups[norms.MODEL][name] for name in model if consistency.is_variance(name)}
    found = {name: groups[name] for name in groups if name != norms.MODEL} | {norms.MODEL: variances}
    return {name: arrays for name, arrays in found.items() if arrays}
