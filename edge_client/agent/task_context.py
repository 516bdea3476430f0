"""What a task is run with on this device."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.data.local import DataFeed, LocalData
from edge_client.inference.providers.table import CPU_ALONE, ProviderSettings
from edge_client.inference.quantization.selection import EXPORT_ALONE, VariantSettings
from edge_client.models import registry
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from edge_client.system.hardware.sysfs import ROOT
from edge_client.training.checkpoints import EpochCheckpoints
from schemas import errors, statistics
from schemas.tensors.chunks import CHUNK_BYTES

if TYPE_CHECKING:
    from edge_client.training.trainer import Trainer


@dataclass(frozen=True)
class TaskContext:
    """The device's blobs, data, folder of finished models, private state and settings for a task.

    `model_code`: factories outside this package that a task may name. `signed_only`: serve a finished model
    only once the server has signed it. `checkpoints`: resume a killed training after its last epoch.
    `features`: the folder in which features of frozen layers are kept.
    `variants`: which forms of a finished model to try, and `providers` to run it. `board`: the directory
    above `/proc` and `/sys`. `trainer`: by default torch's where it is installed.
    `feed`: the source of the data, which may change. `min_examples`: with fewer, the server gets no
    statistics of the data. `fewest_to_train`: with fewer, a delivered model is not trained unless asked for.
    """

    device: str
    store: BlobStore
    data: LocalData
    models: Path
    chunk_bytes: int = CHUNK_BYTES
    model_code: frozenset[str] = frozenset()
    private: PrivateState | None = None
    signed_only: bool = False
    checkpoints: EpochCheckpoints | None = None
    features: Path | None = None
    variants: VariantSettings = EXPORT_ALONE
    providers: ProviderSettings = CPU_ALONE
    board: Path = ROOT
    trainer: "Trainer | None" = None
    feed: DataFeed | None = None
    min_examples: int = statistics.MIN_EXAMPLES
    fewest_to_train: int = 0

    def check_model(self, name: str) -> None:
        """Raise `PeerError` for a model whose code the owner has not allowed to import."""
        trunk = registry.trunk_of(name)
        known = {name, trunk} & {*registry.MODELS, *self.model_code}
        if not known and not registry.is_library_network(trunk):
            raise errors.PeerError(
                f"model '{name}' is not one that this device may import: start it with --model-code {trunk}",
                reason=errors.Reason.INCOMPATIBLE,
            )
