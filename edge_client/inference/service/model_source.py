"""Where the model comes from that is served: a device's slots, or one file.

A source tells cheaply whether anything has changed, and loads what is there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edge_client.inference.model_slots import Slots
from edge_client.inference.onnx_model import LoadedModel, load_model
from edge_client.security.trusted_key import TrustedKey
from schemas.errors import ConfigError
from schemas.security.manifest import manifest_path

Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """A model as it is served, and what it is called in answers and metrics."""

    loaded: LoadedModel
    version: str
    digest: str
    variant: str


class Source(Protocol):
    """Where models come from."""

    def stamp(self) -> Stamp:
        """Differs from an earlier one where there may be another model."""
        ...

    def load(self) -> Model:
        """The model that is there now; raises `ConfigError` where it cannot be served."""
        ...


@dataclass(frozen=True)
class FileSource:
    """An ONNX file, which must be one that the key vouches for, where one is named."""

    path: Path
    threads: int = 1
    trust: TrustedKey | None = None

    def stamp(self) -> Stamp:
        """Of the file, and of the manifest that may come after it."""
        return _stamp(self.path), _stamp(manifest_path(self.path))

    def load(self) -> Model:
        """Load the file."""
        data = _read(self.path)
        loaded = load_model(self.path, threads=self.threads, trust=self.trust, data=data)
        told = loaded.provenance
        version = " round ".join(told[key] for key in ("run_id", "round") if key in told) or self.path.name
        return Model(loaded, version, hashlib.sha256(data).hexdigest(), told.get("variant", "fp32"))


@dataclass(frozen=True)
class SlotSource:
    """The slot in use, below a device's state folder."""

    slots: Slots
    threads: int = 1
    trust: TrustedKey | None = None

    def stamp(self) -> Stamp:
        """Of the file that names the slot, and of manifests, which may come after it.

        The slot that is not in use is written before it is: that alone is nothing to load.
        """
        manifest = manifest_path(Path("model.onnx")).name
        names = ("current.json", f"a/{manifest}", f"b/{manifest}")
        return tuple(_stamp(self.slots.folder / name) for name in names)

    def load(self) -> Model:
        """Load what is in the slot."""
        served = self.slots.current()
        data = None if served is None else served.read()
        if served is None or data is None:
            raise ConfigError(f"no model in {self.slots.folder} yet: it comes with a delivery or a rollout")
        loaded = load_model(served.path, threads=self.threads, trust=self.trust, data=data)
        return Model(loaded, served.model.version, served.model.digest, served.model.variant)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes whenever a file is replaced; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
