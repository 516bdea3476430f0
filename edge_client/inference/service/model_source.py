"""Sources of the served model: a device's slots, or one file."""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edge_client.inference import model_slots, onnx_model
from edge_client.inference.providers.loading import load_on_provider
from edge_client.inference.providers.table import CPU_ALONE, ProviderSettings
from edge_client.inference.service.health import read_health
from edge_client.security.trusted_key import TrustedKey
from schemas.errors import ConfigError
from schemas.security.manifest import manifest_path

log = logging.getLogger(__name__)

MAX_CRASHES = 2  # of processes that serve a model on another provider; a power cut counts, too
Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """A served model, with its names in answers and metrics."""

    loaded: onnx_model.LoadedModel
    version: str
    digest: str
    variant: str


class Source(Protocol):
    """Detects changes cheaply, and loads the current model."""

    def stamp(self) -> Stamp:
        """A value that changes when there may be another model."""

    def load_model(self) -> Model:
        """Load the current model; raises `ConfigError` if it cannot be served."""


@dataclass(frozen=True)
class FileSource:
    """An ONNX file, which must be signed by the key `trust`, if any."""

    path: Path
    threads: int = 1
    trust: TrustedKey | None = None
    providers: ProviderSettings = CPU_ALONE

    def stamp(self) -> Stamp:
        """The state of the file, and of its manifest, which may arrive later."""
        return _stamp(self.path), _stamp(manifest_path(self.path))

    def load_model(self) -> Model:
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}") from error
        loaded = load_on_provider(
            self.path, self.providers, threads=self.threads, trust=self.trust, data=data
        )
        origin = loaded.provenance
        version = " round ".join(origin[key] for key in ("run_id", "round") if key in origin)
        digest = hashlib.sha256(data).hexdigest()
        return Model(loaded, version or self.path.name, digest, origin.get("variant", "fp32"))


@dataclass(frozen=True)
class SlotSource:
    """The slot in use of a device's state folder."""

    slots: model_slots.Slots
    threads: int = 1
    trust: TrustedKey | None = None
    providers: ProviderSettings = CPU_ALONE

    def stamp(self) -> Stamp:
        """The state of `current.json` and of the manifests, which may arrive after a switch."""
        manifest = manifest_path(Path("model.onnx")).name
        names = ("current.json", f"a/{manifest}", f"b/{manifest}")
        return tuple(_stamp(self.slots.folder / name) for name in names)

    def load_model(self) -> Model:
        served = self.slots.current()
        data = None if served is None else served.read()
        if served is None or data is None:
            raise ConfigError(f"no model in {self.slots.folder} yet: it comes with a delivery or a rollout")
        providers = self.providers
        crashes = read_health(served.folder, served.model.digest).crashes
        if crashes > MAX_CRASHES and providers.accelerators():
            log.warning("the process that serves this model has crashed %d times: it takes the CPU", crashes)
            providers = CPU_ALONE
        loaded = load_on_provider(served.path, providers, threads=self.threads, trust=self.trust, data=data)
        return Model(loaded, served.model.version, served.model.digest, served.model.variant)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """A value that changes when a file is replaced; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
