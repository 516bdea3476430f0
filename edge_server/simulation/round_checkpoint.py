"""The moment between two rounds: all that a synchronous simulation carries over, as data.

Every round, not only a resumed one, begins from such a boundary. So a run that goes on from its checkpoint
cannot differ from one that was never interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_server.observability.counters import RunCounters
from edge_server.simulation.device import Standing
from schemas.base import Frozen
from schemas.errors import ConfigError

FILE = "checkpoint.json"


@dataclass(frozen=True)
class Boundary:
    """Where the run stands once round `round` is aggregated; times in virtual seconds."""

    run: str
    round: int
    attempt: int
    now: float
    devices: Mapping[str, Standing]


class _Written(Frozen):
    """The file: blobs that devices hold are numbered, for many hold the same."""

    run: str
    round: int
    attempt: int
    now: float
    blobs: tuple[str, ...]
    devices: Mapping[str, tuple[int, float | None, tuple[int, ...]]]
    uplink: Mapping[str, int]
    downlink: Mapping[str, int]
    shared: Mapping[str, int] = {}
    refusals: tuple[tuple[str | None, str, int], ...]


def write_boundary(folder: Path, boundary: Boundary, tally: RunCounters) -> None:
    """Put the checkpoint into the run folder, over that of the round before."""
    held = {digest for standing in boundary.devices.values() for digest in standing.held}
    numbers = {digest: number for number, digest in enumerate(sorted(held))}
    written = _Written(
        run=boundary.run,
        round=boundary.round,
        attempt=boundary.attempt,
        now=boundary.now,
        blobs=tuple(numbers),
        devices={
            name: (one.number, one.lost_at, tuple(sorted(numbers[digest] for digest in one.held)))
            for name, one in boundary.devices.items()
        },
        uplink=tally.uplink,
        downlink=tally.downlink,
        shared=tally.indirect.shared,
        refusals=tuple((device, reason, count) for (device, reason), count in tally.refusals.items()),
    )
    # Like the model and the state that belong to it.
    write_synced(folder / FILE, written.model_dump_json().encode(), durable=False)


def read_boundary(folder: Path, tally: RunCounters) -> Boundary | None:
    """The checkpoint of a run folder, its counts put into `tally`; None where no round was closed."""
    path = folder / FILE
    try:
        written = _Written.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path} is not a checkpoint of this version: {error}") from error
    traffic = {
        "uplink": written.uplink,
        "downlink": written.downlink,
        "shared": written.shared,
        "refusals": written.refusals,
    }
    tally.restore(traffic, ())
    devices = {
        name: Standing(number, lost_at, frozenset(written.blobs[index] for index in held))
        for name, (number, lost_at, held) in written.devices.items()
    }
    return Boundary(written.run, written.round, written.attempt, written.now, devices)


def cut_history(path: Path, rounds: int) -> list[str]:
    """Leave the first `rounds` lines of a history, those that the checkpoint knows of; returns them."""
    lines = path.read_text().splitlines()
    kept = lines[:rounds]
    if len(kept) < rounds or any(json.loads(line)["round"] != n for n, line in enumerate(kept, start=1)):
        raise ConfigError(f"{path} does not hold the {rounds} rounds of its checkpoint")
    write_synced(path, "".join(f"{line}\n" for line in kept).encode())
    return kept
