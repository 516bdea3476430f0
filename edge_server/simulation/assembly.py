"""The coordinator of a simulation, new or resumed."""

from pathlib import Path

from edge_client.data.dataset import LabelledData
from edge_server.config.checks.openings import check_can_be_simulated
from edge_server.config.config import Config
from edge_server.coordinator.assembly import assemble
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.initial_model import InitialModel, find_initial_model
from edge_server.coordinator.network_check import check_network
from edge_server.coordinator.privacy_session import repeatable_secret
from edge_server.releases.registry.register import default_registry
from edge_server.simulation.resume import ResumedRun
from edge_server.storage.run_folder import RunFolder
from edge_server.storage.run_names import RUNS


def checked_initial_model(
    config: Config, data: LabelledData, out: Path, *, resume: bool
) -> InitialModel | None:
    """The model that a new run starts from, if any; `ConfigError` if the network does not fit the data."""
    check_can_be_simulated(config)
    first = None if resume else find_initial_model(config, registries_near(out))
    check_network(config, data, first)
    return first


def assemble_simulated(
    config: Config, folder: RunFolder, resumed: ResumedRun | None, first: InitialModel | None, *, resume: bool
) -> Coordinator:
    """The coordinator, at the last closed round if any; without one it starts from the recorded model."""
    if resume and resumed is None:
        first = find_initial_model(config, registries_near(folder.path), folder)
    return assemble(
        config,
        f"{config.federation.name[:40]}-seed-{config.federation.seed}",
        folder,
        resumable=config.clients.mode == "rounds",
        resume=resumed.resumption if resumed else None,
        durable=False,
        secret=repeatable_secret(config.federation.seed),
        broadcasts=False,
        first=first,
    )


def registries_near(out: Path) -> list[Path]:
    """Where the model that a run in `out` starts from is looked for."""
    return [default_registry(out), RUNS / "registry"]
