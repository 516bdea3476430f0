"""The state of a synchronous simulation between two rounds.

Every round starts from such a boundary, so a resumed run cannot differ from an uninterrupted one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_server.observability.counters import RunCounters
from edge_server.simulation.device import DeviceState
from edge_server.simulation.growth import Growth
from schemas.base import Frozen
from schemas.errors import ConfigError

FILE = "checkpoint.json"


@dataclass(frozen=True)
class Boundary:
    """The state after round `round` was aggregated; times in virtual seconds."""

    run: str
    round: int
    attempt: int
    now: float
    devices: Mapping[str, DeviceState]


class _Written(Frozen):
    """The file's content; blobs are numbered, since many devices hold the same."""

    run: str
    round: int
    attempt: int
    now: float
    blobs: tuple[str, ...]
    devices: Mapping[str, tuple[int, float | None, tuple[int, ...]]]
    uplink: Mapping[str, int]
    downlink: Mapping[str, int]
    shared: Mapping[str, int] = {}
    growths: Mapping[str, Growth] = {}
    refusals: tuple[tuple[str | None, str, int], ...]


def write_boundary(folder: Path, boundary: Boundary, tally: RunCounters) -> None:
    """Write the checkpoint to the run folder, replacing the previous one."""
    held = {digest for state in boundary.devices.values() for digest in state.held}
    numbers = {digest: number for number, digest in enumerate(sorted(held))}
    written = _Written(
        run=boundary.run,
        round=boundary.round,
        attempt=boundary.attempt,
        now=boundary.now,
        blobs=tuple(numbers),
        devices={
            name: (state.number, state.lost_at, tuple(sorted(numbers[digest] for digest in state.held)))
            for name, state in boundary.devices.items()
        },
        growths={name: state.growth for name, state in boundary.devices.items() if state.growth is not None},
        uplink=tally.uplink,
        downlink=tally.downlink,
        shared=tally.indirect.shared,
        refusals=tuple((device, reason, count) for (device, reason), count in tally.refusals.items()),
    )
    # Not synced, as the model and the state of the round are not.
    write_synced(folder / FILE, written.model_dump_json().encode(), durable=False)


def read_boundary(folder: Path, tally: RunCounters) -> Boundary | None:
    """The checkpoint of a run folder, or None; restores its counts into `tally`."""
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
        name: DeviceState(
            number, lost_at, frozenset(written.blobs[index] for index in held), written.growths.get(name)
        )
        for name, (number, lost_at, held) in written.devices.items()
    }
    return Boundary(written.run, written.round, written.attempt, written.now, devices)


def cut_history(path: Path, rounds: int) -> list[str]:
    """Cut a history to its first `rounds` lines, which the checkpoint covers; returns them."""
    lines = path.read_text().splitlines()
    kept = lines[:rounds]
    if len(kept) < rounds or any(json.loads(line)["round"] != n for n, line in enumerate(kept, start=1)):
        raise ConfigError(f"{path} does not hold the {rounds} rounds of its checkpoint")
    write_synced(path, "".join(f"{line}\n" for line in kept).encode())
    return kept
