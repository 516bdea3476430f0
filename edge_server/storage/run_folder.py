"""The run folder: the paths of a run's files, each of which is written atomically."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.storage.atomic_files import unlink, write_synced, written_aside
from edge_client.storage.file_recycling import Spares, opened_over
from edge_server.config.config import Config
from edge_server.storage.records import RoundRecord, Summary
from edge_server.strategy.aggregation.array_stores import MemoryArrays, NewArrayStore
from edge_server.strategy.closing import load_state, save_checkpoint
from edge_server.strategy.strategy import State
from schemas.base import is_name
from schemas.errors import ConfigError, PeerError
from schemas.messages.tasks import FIXED
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import AnyArray, Arrays
from schemas.tensors.chunks import digest_of, encode_json
from schemas.tensors.files import FileGroups, FlatGroups, write_tensors

STATE = "state.safetensors"
FIXED_STATE = "fixed.safetensors"
"""What the network's factory has drawn besides its weights; networks without such state have no such file."""
PASS = "statistics"
"""The run folder, inside another run's, of the pass that asked for the statistics of devices' data."""
KEPT_VERSIONS = 3
KEPT_CHECKPOINTS = 2


def run_title(folder: Path, run: str) -> str:
    """The run's name in its report and in the registry: its folder's if that is a valid name, else `run`."""
    name = folder.resolve().name
    return name if is_name(name) else run


def read_fixed(version: Path) -> dict[str, AnyArray]:
    """The fixed state in the folder of a model; {} if its network has none. Raises `ConfigError`."""
    path = version / FIXED_STATE
    if not path.exists():
        return {}
    try:
        arrays = FileGroups(path)[FIXED]
        return {name: np.array(arrays[name]) for name in arrays}
    except (OSError, PeerError, KeyError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", remedy="put it back") from error


def read_manifest(version: Path) -> dict[str, Any]:
    """The manifest in the folder of a model; {} if there is none that can be read."""
    try:
        value = json.loads((version / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


class RunFolder:
    """Paths and writers of one run (DESIGN.md section 7)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blobs = path / "blobs"  # blobs that the server sends, and updates that it receives
        self.unpacked = path / "unpacked"  # decompressed updates
        self.sums = path / "sums"  # of aggregator processes, while a round is closed
        self.disposal = path / "disposal"  # files that are about to be deleted
        self.spool = path / "spool"  # archived updates of closed rounds
        self.frames = path / "frames.safetensors"  # the model as devices have it, where they are sent deltas
        self.history = path / "history.jsonl"
        self.journal = path / "journal.sqlite"
        self.events = path / "events.sqlite"
        self._spares: Spares | None = None
        self._history_bytes: int | None = None

    def write_over(self, spares: Spares | None) -> None:
        """Write new models and checkpoints over `spares`, and recycle old ones into spares."""
        self._spares = spares

    @classmethod
    def create(cls, path: Path, config: Config, *, remedy: str = "") -> "RunFolder":
        """Make the folder and write the resolved federation file.

        Raises `ConfigError` if it holds a run, with a first `remedy` of the caller's.
        """
        if any((path / name).exists() for name in ("history.jsonl", "summary.json")):
            raise ConfigError(
                f"{path} holds an earlier run",
                remedy=f"{remedy}name another folder with --out, or remove it; with from={path} "
                "another run begins with its model",
            )
        try:
            for name in ("models", "onnx", "blobs"):
                (path / name).mkdir(parents=True, exist_ok=True)
            write_synced(path / "federation.toml", config.to_toml().encode())
            (path / "history.jsonl").touch()
        except OSError as error:
            raise ConfigError(f"{error.strerror or error}", key=f"--out {path}") from error
        return cls(path)

    def read_fixed(self) -> dict[str, AnyArray]:
        """The fixed state of the run's network, the same in all versions of the model."""
        held = (read_fixed(version) for version in sorted((self.path / "models").iterdir()))
        return next(filter(None, held), {})

    @property
    def has_ended(self) -> bool:
        return (self.path / "summary.json").exists()

    def checkpoint(self, round_number: int) -> Path:
        """The strategy's state after a round, without the model."""
        return self.path / "checkpoints" / f"round-{round_number:07d}.safetensors"

    def save_checkpoint(self, state: State, *, durable: bool = True) -> None:
        """Write the strategy's state without its model, and delete all checkpoints but the last two."""
        save_checkpoint(self.checkpoint(state.round), state, durable=durable, spares=self._spares)
        for old in sorted((self.path / "checkpoints").glob("round-*.safetensors"))[:-KEPT_CHECKPOINTS]:
            (unlink if self._spares is None else self._spares.add)(old)

    def load_state(
        self, round_number: int, sha256: str | None = None, *, keep: NewArrayStore = MemoryArrays
    ) -> State:
        """The strategy's state after a round, with its model; `ConfigError` as in `checkpoint.load_state`."""
        return load_state(self.checkpoint(round_number), self.model(round_number), sha256, keep=keep)

    def written(self, round_number: int) -> list[Path]:
        """The files of a round that is being closed: its model and its checkpoint, if any."""
        files = [path for path in self.version(round_number).iterdir() if path.is_file()]
        checkpoint = self.checkpoint(round_number)
        return [*files, checkpoint] if checkpoint.exists() else files

    def version(self, round_number: int) -> Path:
        """The folder of the global model after a round."""
        return self.path / "models" / f"round-{round_number:04d}"

    def model(self, round_number: int) -> Path:
        return self.version(round_number) / STATE

    def onnx(self, tier: int) -> Path:
        return self.path / "onnx" / f"tier-{tier}.onnx"

    def add_round(self, record: RoundRecord) -> bool:
        """Append a line to the history; returns False if another process has changed or removed the file."""
        with self.history.open("a") as file:
            as_left = self._history_bytes in (None, file.tell())
            file.write(record.model_dump_json() + "\n")
            self._history_bytes = file.tell()
        return as_left

    def rewrite_history(self, records: Iterable[RoundRecord]) -> None:
        lines = "".join(record.model_dump_json() + "\n" for record in records)
        write_synced(self.history, lines.encode())
        self._history_bytes = len(lines.encode())

    def write_summary(self, summary: Summary) -> None:
        write_synced(self.path / "summary.json", (summary.model_dump_json(indent=2) + "\n").encode())

    def save_model(
        self,
        round_number: int,
        params: Arrays,
        channel_map: ChannelMap,
        manifest: Mapping[str, object],
        *,
        fixed: Arrays | None = None,
        durable: bool = True,
    ) -> str:
        """Write the global model after a round, delete old versions, and return the sha256 of its state.

        `fixed` is what the network's factory has drawn besides its weights.
        """
        version = self.version(round_number)
        version.mkdir(exist_ok=True)
        arrays = FlatGroups({"model": params})
        opened = opened_over(self._spares, arrays)
        with written_aside(version / STATE, durable=durable, opened=opened) as file:
            digest = write_tensors(file, arrays)
        channels = encode_json(channel_map)
        digests = {"state_sha256": digest, "channel_map_sha256": digest_of(channels)}
        if fixed:
            with written_aside(version / FIXED_STATE, durable=durable) as file:
                digests["fixed_sha256"] = write_tensors(file, FlatGroups({FIXED: fixed}))
        described = json.dumps({"round": round_number, **digests, **manifest}, indent=2) + "\n"
        write_synced(version / "channel-map.json", channels, durable=durable)
        write_synced(version / "manifest.json", described.encode(), durable=durable)
        versions = sorted((self.path / "models").iterdir(), key=lambda path: int(path.name.split("-")[1]))
        for old in versions[:-KEPT_VERSIONS]:
            if self._spares is not None:
                self._spares.add(old / STATE, shared=True)
            shutil.rmtree(old)
        return digest
