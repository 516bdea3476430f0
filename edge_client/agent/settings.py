"""The settings of a device's agent, its trainers, and what a task is run with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.agent.eligibility.rules import Rules, Veto
from edge_client.data.local import DataFeed, LocalData
from edge_client.inference.providers.table import ANY_PROVIDER, CPU_ALONE, ProviderSettings
from edge_client.inference.quantization.selection import ALL, EXPORT_ALONE, VariantSettings
from edge_client.models import registry
from edge_client.security.trusted_key import TrustedKey
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from edge_client.system.hardware.sysfs import ROOT
from edge_client.training import checkpoints, choice
from edge_client.training.checkpoints import EpochCheckpoints
from edge_client.transport.broker_link import BrokerAddress
from schemas import errors, messages, statistics, values
from schemas.messages.tasks import GRAPH, STEP
from schemas.tensors.chunks import CHUNK_BYTES

if TYPE_CHECKING:
    from edge_client.training.trainer import Trainer


ROOM_BYTES = 1_000_000_000
"""Free memory in which the first trainer is imported in advance, whichever the server will choose."""


class TaskTrainers:
    """Makes the trainers in `names`, the best first, when a task first needs them.

    Without names there is one, that of `make()`.
    """

    def __init__(
        self,
        names: Sequence[values.TrainerName] = (),
        make: Callable[[values.TrainerName | None], "Trainer"] = choice.make_trainer,
    ) -> None:
        self._names, self._make = names, make
        self._made: dict[values.TrainerName | None, Trainer] = {}
        self._last: values.TrainerName | None = names[0] if names else None

    def of(self, task: messages.Task) -> "Trainer":
        """The trainer of a task: onnxruntime for one with graphs, sent only where they are needed.

        A task that only sums has the inference graph alone, as every delivery has. A delivery without a step
        graph is for the trainer of the last task.
        """
        drawn = STEP in task.blobs or (GRAPH in task.blobs and not isinstance(task, messages.DeliverTask))
        if self._names and (drawn or not isinstance(task, messages.DeliverTask)):
            self._last = "onnx" if drawn and "onnx" in self._names else self._names[0]
        return self._trainer(self._last)

    def warm_up(self, free_memory: int | None) -> None:
        """Import the libraries of the first trainer, unless memory is short and another may be asked for."""
        if len(self._names) < 2 or free_memory is None or free_memory >= ROOM_BYTES:
            self._trainer(self._last)

    def _trainer(self, name: values.TrainerName | None) -> "Trainer":
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]


@dataclass(frozen=True)
class RemoteSettings:
    """Whether an operator may ask this device for diagnostics; `data_root` is hidden as the data is."""

    enabled: bool = True
    data_root: Path | None = None


@dataclass(frozen=True)
class AgentSettings:
    """Who this device is and how it takes part.

    `once`: end with the first run that ends. `source`: the data source, as in `--data`. `model_code`:
    factories outside this package that tasks may name. `trust`: key that must have signed tasks and models.
    `checkpoint_s`: minimum seconds between two checkpoints of a training. `only_masked`: decline to send an
    update that the server could read by itself. `min_examples`: with fewer, the server gets no statistics of
    the data. `veto`: what is declined whatever the server asks. `variants`: which forms of a finished model
    to try, and `providers`: what to try to run it on.
    `telemetry_every_s`: seconds between status messages; 0 disables them. `trainer`: trains instead of the
    profile's trainers. `keep_trying`: never give up on the broker. `watch_data_s`: seconds between two looks
    at data that may grow; 0 looks before tasks alone. `labels`: stated in births. `remote`: what an
    operator may ask for. `install_root`: the folder of the launcher that has started this process.
    """

    federation: str
    device: str
    address: BrokerAddress
    state: Path
    source: str
    profile: values.CapabilityProfile
    once: bool = False
    threads: int | None = None
    model_code: frozenset[str] = frozenset()
    trust: TrustedKey | None = None
    checkpoint_s: float = checkpoints.INTERVAL_S
    only_masked: bool = False
    min_examples: int = statistics.MIN_EXAMPLES
    variants: VariantSettings = ALL
    providers: ProviderSettings = ANY_PROVIDER
    telemetry_every_s: float = 30.0
    eligibility: Rules = field(default_factory=Rules)
    veto: Veto = field(default_factory=Veto)
    trainer: "Trainer | None" = None
    keep_trying: bool = False
    watch_data_s: float = 30.0
    labels: Mapping[str, str] = field(default_factory=dict)
    remote: RemoteSettings = field(default_factory=RemoteSettings)
    install_root: Path | None = None

    def trainers(self) -> TaskTrainers:
        """The trainer that the owner gave, else those that the device announces."""
        if self.trainer is not None:
            given = self.trainer
            return TaskTrainers(make=lambda _: given)
        return TaskTrainers(self.profile.trainers, self._make_trainer)

    def _make_trainer(self, name: values.TrainerName | None) -> "Trainer":
        found, places = self.profile.trains_on, None
        if name == "onnx":
            from edge_client.inference.providers.loading import StepProviders

            places = StepProviders(self.providers, self.state / "step-providers", self.threads)
        return choice.make_measured_trainer(
            name,
            threads=self.threads,
            accelerator=None if found is None else found.kind,
            places=places,
            state=self.state,
        )


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
