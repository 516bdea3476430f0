"""The model that a run starts from, where `[model] from` names one: a version, a round's model, a run.

Weights from elsewhere are in `pretrained`.

It is read once, when the run begins. A resumed run reads only its origin, from `start.json`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from edge_client.data.classes import list_names, numbers
from edge_client.data.columns import column_misfit
from edge_client.data.tasks.registry import learning_task
from edge_client.models.build import class_layer
from edge_client.models.registry import InputRecord
from edge_client.storage.atomic_files import write_synced
from edge_server.config.config import Config
from edge_server.coordinator.pretrained.files import KEY
from edge_server.coordinator.pretrained.model import PretrainedModel
from edge_server.coordinator.pretrained.sources import SOURCES, find_source, record_of
from edge_server.releases.registry.registry import FILE, Registry
from edge_server.storage.records import StartedFrom
from edge_server.storage.run_folder import FIXED_STATE, STATE, RunFolder, read_fixed, read_manifest
from edge_server.strategy.closing import load_checkpoint
from edge_server.strategy.groups.device_sums import Rows
from schemas.errors import ConfigError, PeerError, near
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Array, Arrays, Groups, kind_of
from schemas.tensors.files import FileGroups
from schemas.values import Feature, ModelSpec, Preprocessing

NOTE = "start.json"
SHOWN = 3  # The most differing parameters that an error names


@dataclass(frozen=True)
class RunModel:
    """The model of a run to start from: its file, its manifest, and the name that the user `stated`.

    `origin` is where it comes from if it is the run's own copy.
    """

    path: Path
    stated: str
    version: str | None
    manifest: dict[str, Any]
    origin: StartedFrom | None = None

    def read(
        self, spec: ModelSpec, channel_map: ChannelMap, own: Arrays, names: Sequence[str]
    ) -> tuple[Arrays, StartedFrom]:
        """Its parameters and their origin; raises `ConfigError` unless they fit the network.

        Rows of the output layer come from the class of the same name, whatever its place. Those of classes
        that it does not know are what the run has drawn itself: `own` parameters, for the classes `names`.
        """
        rows = self._rows(spec, names)
        layer = None if rows is None else self._output_layer(spec)
        try:
            arrays = FileGroups(self.path)["model"]
            self._check_fit(arrays, spec, channel_map, layer)
            params = {name: np.array(arrays[name]) for name in channel_map.parameters}
            with self.path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, PeerError, KeyError) as error:
            raise ConfigError(f"{self.path} is not a model of a run: {error}", key=KEY) from error
        if self.manifest.get("state_sha256", digest) != digest:
            raise ConfigError(f"{self.path} is damaged: it is not what its manifest.json says", key=KEY)
        odd = next((name for name, array in params.items() if not np.isfinite(array).all()), None)
        if odd is not None:
            raise ConfigError(f"{self.path}: '{odd}' has numbers that are not finite", key=KEY)
        if rows is not None:
            for name in params:
                if name.rpartition(".")[0] == layer:
                    params[name] = _by_class(params[name], own[name], rows)
        return params, self.origin or self._make_started_from(digest, spec, names, rows)

    def read_fixed(self, drawn: Arrays) -> Arrays:
        """What the network's factory had drawn besides its weights, in place of what it has `drawn` now.

        Raises `ConfigError` if the model was written without it.
        """
        fixed = read_fixed(self.path.parent) if drawn else {}
        if missing := sorted(drawn.keys() - fixed.keys()):
            raise ConfigError(
                f"{self.stated} lacks '{missing[0]}', which the network draws when it is built, and "
                "its weights belong to",
                key=KEY,
                remedy=f"start from a model with {FIXED_STATE} beside it",
            )
        return fixed

    def groups(self) -> Groups:
        """What its run keeps besides it, {} for a model without its run; raises `ConfigError`."""
        number = _number(self.path.parent)
        checkpoint = RunFolder(self.path.absolute().parents[2]).checkpoint(number)
        if number < 0 or not checkpoint.is_file():
            return {}
        return load_checkpoint(checkpoint, FileGroups(self.path)).groups

    def read_sums(self, group: str, spec: ModelSpec, names: Sequence[str]) -> tuple[Arrays, Rows]:
        """The sums of devices that its run keeps in this group, and the place there of each class here.

        Raises `ConfigError` for sums of classes that this run lacks.
        """
        sums, rows = self.groups().get(group, {}), self._rows(spec, names)
        left = [] if rows is None else [name for k, name in enumerate(self._class_list) if k not in rows]
        if sums and left:
            raise ConfigError(
                f"the run of {self.stated} keeps sums of examples of {list_names(left)}, and this run lacks "
                "such classes",
                key=KEY,
                remedy="name them in [data] classes too, or set earlier = false in [strategy] groups",
            )
        return sums, rows

    def ranks(self, channel_map: ChannelMap) -> Arrays:
        """How many of its tiers keep each channel, {group: [C]}: the best of a ratio are that tier's part."""
        tiers = [SubModelSpec.model_validate(tier) for tier in self.manifest.get("tiers", {}).values()]
        ranks = {name: np.zeros(group.channels, np.float32) for name, group in channel_map.groups.items()}
        for name, counts in ranks.items():
            for spec in tiers:
                counts[list(spec.indices(name, len(counts)))] += 1
        return ranks

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of its classes in the order of its outputs; empty if the classes are numbers."""
        return () if self._class_list == numbers(len(self._class_list)) else self._class_list

    @property
    def _class_list(self) -> tuple[str, ...]:
        """As `classes`, numbers included; empty if it has no list of them."""
        described, preprocessing = self.manifest.get("model"), self.manifest.get("preprocessing")
        names = preprocessing.get("class_names") if isinstance(preprocessing, dict) else None
        count = described.get("num_classes") if isinstance(described, dict) else None
        if isinstance(names, list) and names:
            return tuple(map(str, names))
        return numbers(count) if isinstance(count, int) else ()

    def _rows(self, spec: ModelSpec, names: Sequence[str]) -> Rows:
        """The place here of each class of the run, None for a new one; None in all if it has the same ones.

        Raises `ConfigError` if it shares no class with the run.
        """
        theirs, count = self._class_list, spec.num_classes
        ours = tuple(names) or numbers(count)
        unnamed = len(theirs) == count and not (names and self.classes)
        if not theirs or ours == theirs or unnamed or not learning_task(spec.task).has_named_outputs:
            return None
        if not set(theirs) & set(ours):
            raise ConfigError(
                f"{self.stated} is a model of the classes {list_names(theirs)}, this run has "
                f"{list_names(ours)}: none is the same; name the run's classes in [data] classes",
                key=KEY,
            )
        return tuple(theirs.index(name) if name in theirs else None for name in ours)

    def _output_layer(self, spec: ModelSpec) -> str:
        """The layer with a row per class; `ConfigError` for a network without one."""
        try:
            return class_layer(spec)
        except ConfigError as error:
            raise ConfigError(
                f"{self.stated} has other classes than this run, or in another order: {error}", key=KEY
            ) from error

    @property
    def columns(self) -> tuple[Feature, ...]:
        """Its inputs in their order; empty if they have no names."""
        preprocessing = self.manifest.get("preprocessing")
        columns = preprocessing.get("columns") if isinstance(preprocessing, dict) else None
        try:
            return tuple(map(Feature.model_validate, columns or ()))
        except (TypeError, ValidationError):
            return ()

    @property
    def inputs(self) -> InputRecord | None:
        """The inputs that it was trained on, where its run stated what pictures become; else None."""
        try:
            about = Preprocessing.model_validate(self.manifest["preprocessing"])
            return record_of(about, ModelSpec.model_validate(self.manifest["model"]).input_shape)
        except (KeyError, ValueError):
            return None

    def check_columns(self, columns: Sequence[Feature]) -> None:
        """Raise `ConfigError` where the run has other `columns`, in whatever order."""
        if why := column_misfit(columns, self.columns):
            raise ConfigError(f"{self.stated} is a model of other data than this run's: {why}", key=KEY)

    def _make_started_from(
        self, digest: str, spec: ModelSpec, names: Sequence[str], rows: tuple[int | None, ...] | None
    ) -> StartedFrom:
        run, number = self.manifest.get("run"), self.manifest.get("round")
        ours = tuple(names) or numbers(spec.num_classes)
        placed = () if rows is None else tuple(zip(ours, rows, strict=True))
        return StartedFrom(
            stated=self.stated,
            state_sha256=digest,
            version=self.version,
            run=run if isinstance(run, str) else None,
            round=number if isinstance(number, int) else None,
            new_classes=tuple(name for name, row in placed if row is None),
            left_classes=() if rows is None else tuple(name for name in self._class_list if name not in ours),
        )

    def _check_fit(self, arrays: Arrays, spec: ModelSpec, channel_map: ChannelMap, layer: str | None) -> None:
        """Raise `ConfigError` with the differences; the output `layer` has a row for each class here."""
        wanted = {name: tuple(layout.shape) for name, layout in channel_map.parameters.items()}
        for name, shape in wanted.items():
            if name.rpartition(".")[0] == layer:
                wanted[name] = (len(self._class_list), *shape[1:])
        found = {name: tuple(kind_of(arrays, name)[1]) for name in arrays}
        odd = [name for name in sorted({**wanted, **found}) if wanted.get(name) != found.get(name)]
        if not odd:
            return
        named = [_difference(name, found.get(name), wanted.get(name)) for name in odd[:SHOWN]]
        more = [f"{len(odd) - SHOWN} more"] if len(odd) > SHOWN else []
        raise ConfigError(
            f"{self.stated} is not of the network '{spec.name}' for {spec.input_shape} and "
            f"{spec.num_classes} classes: {'; '.join([*named, *more])}",
            key=KEY,
        )


InitialModel = RunModel | PretrainedModel


def find_initial_model(
    config: Config, registries: Sequence[Path], folder: RunFolder | None = None
) -> InitialModel | None:
    """The model that the configuration starts from; None if it names none.

    The run's own `folder` is searched first: a run that was cut off at its beginning has the model there.
    Raises `ConfigError` for a name that is neither a version in a registry, the path of a model, nor a source
    of weights.
    """
    stated = config.model.from_
    if stated is None:
        return None
    note = noted_start(folder) if folder is not None else None
    if folder is not None and note is not None and note.stated == stated and folder.model(0).is_file():
        manifest = read_manifest(folder.version(0))
        return RunModel(folder.model(0), stated, note.version, manifest, note)
    names: list[str] = []
    for registry in (each for each in registries if (each / FILE).is_file()):
        versions = [version.version for version in Registry(registry).versions()]
        if stated in versions:
            path = registry / stated / "model" / STATE
            return RunModel(path, stated, stated, read_manifest(path.parent))
        names += versions
    model = next((each for each in _candidates(Path(stated).expanduser()) if each.is_file()), None)
    if model is not None and _is_run_model(model):
        return RunModel(model, stated, None, read_manifest(model.parent))
    if (source := find_source(stated)) is not None:
        return PretrainedModel(source, stated, source.inputs(stated))
    match = near(stated, names)
    hint = f" (did you mean '{match}'?)" if match else ""
    examples = ", ".join(kind.example for kind in SOURCES.values())
    raise ConfigError(
        f"{KEY}: '{stated}' is not a version of a registry{hint}, a run folder, a folder models/round-NNNN, "
        f"{STATE}, nor a source of weights, such as {examples}; `edge-server models list` shows the versions"
    )


def note_start(folder: RunFolder, about: StartedFrom) -> None:
    """Write the origin of the run's first model to its folder."""
    write_synced(folder.path / NOTE, (about.model_dump_json(indent=2) + "\n").encode())


def noted_start(folder: RunFolder) -> StartedFrom | None:
    """The origin of the run's first model; None if it began with fresh parameters."""
    try:
        return StartedFrom.model_validate_json((folder.path / NOTE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{folder.path / NOTE} cannot be read: {reason}; put it back") from error


def _is_run_model(path: Path) -> bool:
    """Whether a file is, or once was, the state of a run: its arrays have a group, those of weights none."""
    try:
        with safe_open(path, framework="numpy") as file:
            is_grouped = all("/" in name for name in file.keys())  # noqa: SIM118
    except (SafetensorError, OSError):
        is_grouped = path.name == STATE
    return is_grouped or find_source(str(path)) is None


def _candidates(path: Path) -> Iterator[Path]:
    """The path as a file, a round's folder, a version's folder, a run folder with its last model."""
    yield path
    yield path / STATE
    yield path / "model" / STATE
    for version in sorted((path / "models").glob("round-*"), key=_number, reverse=True):
        yield version / STATE


def _number(version: Path) -> int:
    text = version.name.partition("-")[2]
    return int(text) if text.isdecimal() else -1


def _by_class(theirs: Array, own: Array, rows: Sequence[int | None]) -> Array:
    """Their row [...] for each class that has one, else our own; [L, ...] for L classes."""
    return np.stack([own[place] if row is None else theirs[row] for place, row in enumerate(rows)])


def _difference(name: str, there: tuple[int, ...] | None, here: tuple[int, ...] | None) -> str:
    if there is None:
        return f"'{name}' {here} is missing"
    return (
        f"'{name}' is {there}, not {here}" if here is not None else f"'{name}' {there} is not in the network"
    )
