"""Checks sums that gateways have made, against the receipts of their members.

A gateway is trusted to add what it has examined, but a wrong sum must not become a model unnoticed: no
coordinate can be larger than its members' largest numbers with their weights, nor the whole sum than their
norms with them. The canary, if there is one, tests it as an update with the weight of its members.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.validation import contents, norms, round_review
from edge_server.rounds.events import CheckSum, SumChecked
from edge_server.strategy.aggregation import blocks, partial_sums
from edge_server.strategy.aggregation.accumulator import FINE as UNIT
from edge_server.strategy.aggregation.accumulator import join_sums
from schemas.errors import PeerError
from schemas.messages import SiteSum, Update
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import AnyArray, Arrays, Groups, rows_of

ROUNDING = 1e-6  # Relative tolerance of the bounds


class SumChecker:
    """Verifies, checks and opens the sums of sites; with a `canary` also against the parameters and the round
    that `current` returns.
    """

    def __init__(
        self,
        store: BlobStore,
        unpacked: contents.UnpackedCache,
        channel_map: ChannelMap,
        canary: round_review.Canary | None = None,
        current: Callable[[], tuple[Arrays, int]] = lambda: ({}, 0),
        *,
        parts: Mapping[str, str] = norms.ALL,
    ) -> None:
        self._store, self._unpacked, self._channel_map = store, unpacked, channel_map
        self._canary, self._current, self._parts = canary, current, parts

    def check(self, command: CheckSum, weights: Mapping[str, int], updates: Sequence[Update]) -> SumChecked:
        """Check a complete sum of these `updates`, which have the `weights`."""
        if not self._store.verify(command.ref):
            damaged = "the bytes are not those of the digest"
            return SumChecked(command.site, command.ref.digest, damaged, damaged=True)
        try:
            groups = self._groups(self._store.blob_path(command.ref.digest))
            partial_sums.check_sum(groups, self._channel_map)
            check_receipts(groups, self._channel_map, weights, updates, self._parts)
            if self._canary is not None:
                params, number = self._current()
                moved = mean_of(groups, sum(weights.values()), params)
                self._canary.check_moved(SubModelSpec(), moved, params, number)
        except PeerError as error:
            return SumChecked(command.site, command.ref.digest, str(error)[:500])
        return SumChecked(command.site, command.ref.digest)

    def open_sums(self, sums: Mapping[str, SiteSum]) -> list[partial_sums.PartialSum]:
        """The checked sums of a round, by site, read in blocks."""
        return [
            partial_sums.PartialSum(found.members, self._groups(self._store.blob_path(found.blob.digest)))
            for found in sums.values()
            if found.blob is not None
        ]

    def _groups(self, path: Path) -> Groups:
        return open_sum(path, self._unpacked, self._channel_map)


def open_sum(path: Path, unpacked: contents.UnpackedCache, channel_map: ChannelMap) -> Groups:
    """The groups of a sum's file; raises `PeerError` if it is none."""
    return partial_sums.read_sum(
        unpacked.unpacked_path(path, limit=partial_sums.most_sum_bytes(channel_map)), channel_map
    )


def check_receipts(
    groups: Groups,
    channel_map: ChannelMap,
    weights: Mapping[str, int],
    updates: Sequence[Update],
    parts: Mapping[str, str] = norms.ALL,
) -> None:
    """Raise `PeerError` for a coordinate, or a norm, beyond what the receipts of its members allow."""
    squares: dict[str, float] = defaultdict(float)
    counts = Counter[str]()
    for name, layout in channel_map.parameters.items():
        kind = norms.kind_of(name, parts)
        most = _largest(norms.peak(kind), weights, updates)
        for start, stop in blocks.row_blocks(layout.shape):
            rows = join_sums(
                *(
                    rows_of(groups[group], name, start, stop)
                    for group in (partial_sums.COARSE, partial_sums.FINE)
                )
            )
            if rows.size and float(np.abs(rows).max()) > most:
                raise PeerError(f"'{name}' of the sum exceeds what its members' receipts allow")
            squares[kind] += float(np.square(rows).sum())
            counts[kind] += rows.size
    for kind, total in squares.items():
        if math.sqrt(total / counts[kind]) > _largest(kind, weights, updates):
            raise PeerError(f"the norm of '{kind}' of the sum exceeds what its members' receipts allow")


def _largest(kind: str, weights: Mapping[str, int], updates: Sequence[Update]) -> float:
    """The largest size of a sum of updates of which each has at most the size in its receipt."""
    receipts = [(update.device, update.receipt) for update in updates if update.receipt is not None]
    total = sum(weights[device] * receipt.norms.get(kind, 0.0) for device, receipt in receipts)
    return total * (1 + ROUNDING) + UNIT * len(receipts)


def mean_of(groups: Groups, weight: int, params: Arrays) -> dict[str, AnyArray]:
    """What a sum with this total weight moves in the model, by parameter; fewer holders count as less."""
    moved = {}
    for name in params:
        rows = (
            rows_of(groups[group], name, 0, len(np.atleast_1d(params[name])))
            for group in (partial_sums.COARSE, partial_sums.FINE)
        )
        moved[name] = (join_sums(*rows) / weight).reshape(params[name].shape).astype(params[name].dtype)
    return moved
