"""Enter a run's models into the registry: describe the version, copy its files, write its card."""

import logging
import shutil
from pathlib import Path

from edge_client.storage.atomic_files import sync, write_synced
from edge_server.releases.registry import card, describe
from edge_server.releases.registry.registry import Registry, Version
from edge_server.storage.run_folder import RunFolder, read_manifest
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import EdgeError
from schemas.security.manifest import manifest_path

log = logging.getLogger(__name__)


def default_registry(run: Path) -> Path:
    """The default registry of a run: its service's, else a folder next to the run's folder."""
    runs = run.absolute().parent
    service = ServiceFolder(runs.parent)
    return service.registry if runs == service.runs and service.settings.exists() else runs / "registry"


def enter_run(registry: Registry, run: Path, *, name: str | None = None) -> Version:
    """Enter the models of the run in that folder, under its folder's name unless another is given.

    If another run has that name, its unique id is used instead. Raises `ConfigError` for a folder without a
    finished run, or without ONNX files.
    """
    version = describe.describe_run(run, name=name)
    taken = {known.version for known in registry.versions() if known.run != version.run}
    if name is None and version.version in taken:
        version = version.model_copy(update={"version": version.run})
    registry.enter(version, lambda folder: _fill(folder, run, version))
    return version


def try_enter_run(folder: Path, run: Path) -> Version | None:
    """Like `enter_run`, at the end of a run: failures are only logged."""
    if not list((run / "onnx").glob("tier-*.onnx")):
        return None
    try:
        return enter_run(Registry(folder), run)
    except (EdgeError, OSError) as error:
        log.warning("the models are not entered in registry %s: %s", folder, error)
        return None


def _fill(folder: Path, run: Path, version: Version) -> None:
    """Copy the version's files, and write its card."""
    for tier in version.tiers:
        path = run / "onnx" / f"tier-{tier.tier}.onnx"
        for source in (path, manifest_path(path)):
            _copy(source, folder / source.name)
    _copy(run / "signing.pub", folder / "signing.pub")
    model = RunFolder(run).version(version.round)
    if model.is_dir():
        (folder / "model").mkdir()
        for source in sorted(model.iterdir()):
            _copy(source, folder / "model" / source.name)
    write_synced(folder / "version.json", (version.model_dump_json(indent=2) + "\n").encode())
    write_synced(folder / "README.md", card.model_card(version, read_manifest(model)).encode())


def _copy(source: Path, to: Path) -> None:
    if source.is_file():
        shutil.copyfile(source, to)
        sync(to)
