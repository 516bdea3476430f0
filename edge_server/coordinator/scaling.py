"""Scaling by a federated pass: before the first round devices are asked for the statistics of their data."""

import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.config.scaling import Scaling, scaling_in
from edge_server.coordinator.initial_model import find_initial_model
from edge_server.observability.data_statistics import as_json, last_statistics
from edge_server.storage.records import DataStatistics, Distribution, Summary
from edge_server.storage.run_folder import PASS, RunFolder
from schemas.errors import EdgeError
from schemas.values import Preprocessing

Measure = Callable[[Config, Path], Summary]  # Runs a configuration in a folder
SNIPPET = "statistics.toml"
CONSTANT = 1e-12  # A smaller standard deviation is that of a constant, which stays near 0


def with_scaling(config: Config, out: Path, registries: Sequence[Path], measure: Measure) -> Config:
    """The configuration with the figures of `scaling = "federated"`, which the run keeps to its end.

    They come from the run in `out`, if it has begun, else from the model that it starts from, else from a
    pass. Raises `EdgeError` if the pass fails, and `KeyboardInterrupt` if it is interrupted.
    """
    data = config.data
    if data.scaling != "federated" or data.statistics is not None or config.federation.statistics:
        return config
    found = (
        _read_recorded(out) or _of_model(config, registries) or _measure_scaling(config, out / PASS, measure)
    )
    return config.model_copy(update={"data": data.model_copy(update={"statistics": found})})


def scaling_of(found: DataStatistics) -> Scaling:
    """Mean and standard deviation of each feature, and of each number that is learned."""
    targets = found.targets
    return Scaling(
        mean=found.features.mean,
        std=_deviations(found.features),
        columns=found.columns,
        target_mean=() if targets is None else targets.mean,
        target_std=() if targets is None else _deviations(targets),
    )


def write_results(folder: Path, found: DataStatistics) -> Path:
    """Write all figures as JSON, and the section `[data.statistics]` as TOML, whose path is returned."""
    write_synced(folder / "statistics.json", (json.dumps(as_json(found), indent=2) + "\n").encode())
    figures = scaling_of(found).model_dump(by_alias=True)
    lines = [f"{key} = {json.dumps(values, ensure_ascii=False)}" for key, values in figures.items() if values]
    path = folder / SNIPPET
    write_synced(path, "\n".join(["[data.statistics]", *lines, ""]).encode())
    return path


def _deviations(found: Distribution) -> tuple[float, ...]:
    deviations = (math.sqrt(variance) for variance in found.variance)
    return tuple(std if std > CONSTANT else 1.0 for std in deviations)


def _read_recorded(out: Path) -> Scaling | None:
    written = out / "federation.toml"
    return load_config(str(written)).data.statistics if written.is_file() else None


def _of_model(config: Config, registries: Sequence[Path]) -> Scaling | None:
    """The scaling with which the model that the run starts from was trained."""
    first = find_initial_model(config, registries)
    try:
        described = first.manifest["preprocessing"] if first is not None else None
        return None if described is None else scaling_in(Preprocessing.model_validate(described))
    except (KeyError, ValidationError):
        return None


def _measure_scaling(config: Config, folder: Path, measure: Measure) -> Scaling:
    """The result of the pass in `folder`, which is run unless it has ended well."""
    found = last_statistics(folder) if _has_finished(folder) else None
    if found is None:
        summary = measure(config.for_statistics(), folder)
        if summary.outcome == "interrupted":
            raise KeyboardInterrupt
        found = last_statistics(folder)
        if summary.outcome != "finished" or found is None:
            raise EdgeError(f"[data] scaling: the pass in {folder} has failed: {summary.detail}")
    return scaling_of(found)


def _has_finished(folder: Path) -> bool:
    """Whether a pass has ended there; one that ended without a result is removed, to be repeated."""
    ended = RunFolder(folder).has_ended
    finished = (
        ended and Summary.model_validate_json((folder / "summary.json").read_bytes()).outcome == "finished"
    )
    if ended and not finished:
        shutil.rmtree(folder)
    return finished
