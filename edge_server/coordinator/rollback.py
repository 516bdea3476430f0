"""What giving up a closed round means: the state to go on from, and how large the round's updates were."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from edge_client.compression.decoding import decoded
from edge_server.coordinator.validation.magnitudes import magnitudes_of
from edge_server.coordinator.validation.unpacked_cache import UnpackedCache
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import RoundRecord
from edge_server.storage.run_folder import RunFolder
from edge_server.strategy.aggregation.array_stores import NewArrayStore
from edge_server.strategy.checkpoint import load_checkpoint
from edge_server.strategy.strategy import State
from schemas.errors import ConfigError, PeerError
from schemas.tensors.blobs import FileGroups


def gone_back(older: State, newer: State) -> State:
    """The state before a round, as the one that the next round begins with.

    Who was ever there, and what privacy the run has spent, cannot be undone.
    """
    return replace(older, round=newer.round, clients=newer.clients, privacy=newer.privacy)


def earlier_state(folder: RunFolder, undone: int, sha256: str, *, keep: NewArrayStore) -> State:
    """The state that the round after the given-up round `undone` begins with, read back.

    The files of the state before are there until that round is about to close; by then those of the given-up
    one have long been written over. Raises `ConfigError` where neither can be read.
    """
    try:
        older = folder.load_state(undone - 1, sha256, keep=keep)
    except ConfigError:
        return folder.load_state(undone, sha256, keep=keep)
    given_up = load_checkpoint(folder.checkpoint(undone), FileGroups(folder.model(undone)), keep=keep)
    return gone_back(older, given_up)


def measured(
    reader: JournalReader, number: int, kept: Path, unpacked: UnpackedCache
) -> Mapping[str, Mapping[str, float]]:
    """How large each update was that a closed round was made of, by device.

    The updates are read again where they are `kept`; else the norms count that the firewall has taken. Of a
    masked round only the names are known.
    """
    closed = next(one for one in reader.rounds() if one.round == number)
    norms = {(row.device, row.digest): row.norms for row in reader.examined() if row.reason is None}
    examples = {
        (u.device, u.blob.digest): u.metrics.examples for u, reason, _ in reader.updates() if not reason
    }
    found = {
        one.device: {
            **norms.get((one.device, one.digest), {}),
            "examples": float(examples.get((one.device, one.digest), 0)),
            **_largest(kept / one.digest, unpacked),
        }
        for one in closed.updates
    }
    with contextlib.suppress(ValueError):
        completed = RoundRecord.model_validate_json(closed.record).completed
        return {name: found.get(name, {}) for name in completed}
    return found


def _largest(path: Path, unpacked: UnpackedCache) -> dict[str, float]:
    """The largest number of every group of a kept update; nothing where it cannot be read."""
    with contextlib.suppress(OSError, PeerError):
        sizes = magnitudes_of(decoded(unpacked.groups(path)))
        return {
            f"{group}: largest": max((size.largest for size in arrays.values()), default=0.0)
            for group, arrays in sizes.items()
        }
    return {}
