"""The kinds of sources that weights come from."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edge_client.inference.export.metadata import read_preprocessing
from edge_client.models.registry import InputRecord
from edge_server.coordinator.pretrained import files, libraries
from edge_server.coordinator.pretrained.files import WeightFile, check_size
from schemas.errors import ConfigError
from schemas.values import ModelSpec, Preprocessing

# The inputs of weights in a file: stated in an exported model, or in what timm's hub puts beside weights.

BESIDE = "config.json"


def inputs_of_file(path: Path) -> InputRecord | None:
    """What is stated of the inputs; None if nothing is, or nothing that can be read.

    Raises `ConfigError` for a file of weights that is missing or too large.
    """
    check_size(path)
    try:
        return _read_export(path) if path.suffix.lower() == ".onnx" else _read_beside(path.with_name(BESIDE))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def record_of(about: Preprocessing, input_shape: tuple[int, ...]) -> InputRecord | None:
    """The inputs of a model of this shape; None if what pictures become was not stated for it."""
    if (how := about.resizing) is None or len(input_shape) != 3:
        return None
    colours, height, width = input_shape
    if not {len(about.mean), len(about.std)} <= {1, colours}:
        return None
    mean, std = (figures * (colours // len(figures)) for figures in (about.mean, about.std))
    return InputRecord((height, width), mean, std, how.crop, how.interpolation)


def _read_export(path: Path) -> InputRecord | None:
    """Of a model that a run has exported."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        properties = onnx.load(path, load_external_data=False).metadata_props
    except DecodeError:
        return None
    metadata = {entry.key: entry.value for entry in properties}
    return record_of(read_preprocessing(metadata), tuple(json.loads(metadata["input.shape"])))


def _read_beside(path: Path) -> InputRecord | None:
    """Of weights that were fetched by hand from timm's hub."""
    about: dict[str, Any] = json.loads(path.read_bytes())["pretrained_cfg"]
    shape = ModelSpec(name="timm", input_shape=about["input_size"], num_classes=1).input_shape
    figures = {"mean": about["mean"], "std": about["std"], "resizing": {"crop": about.get("crop_pct")}}
    record = record_of(Preprocessing.model_validate(figures), shape)
    return None if record is None else replace(record, interpolation=about.get("interpolation"))


@dataclass(frozen=True)
class SourceKind:
    """One kind of source: how it is written, whether a text means it, and how it is read.

    `inputs` are those that the weights were trained on, as far as it is known without reading them, or
    `ConfigError` for weights that are not there. `read` gets the text and the shape of an example.
    """

    example: str
    is_meant: Callable[[str], bool]
    inputs: Callable[[str], InputRecord | None]
    read: Callable[[str, tuple[int, ...]], WeightFile]


def _file_kind(example: str, read: Callable[[Path], WeightFile], *suffixes: str) -> SourceKind:
    return SourceKind(
        example,
        lambda text: Path(text).suffix.lower() in suffixes,
        lambda text: inputs_of_file(Path(text).expanduser()),
        lambda text, _: read(Path(text).expanduser()),
    )


PACKAGE = "package:"


def _in_package(text: str) -> Path:
    """The file `package:NAME/PATH` of an installed Python package, which is not imported."""
    name, _, inside = text.removeprefix(PACKAGE).partition("/")
    spec = find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"there is no Python package {name!r} here", key="[model] from", remedy=f"pip install {name}"
        )
    folder = Path(spec.submodule_search_locations[0]).resolve()
    path = (folder / inside).resolve()
    if not inside or not path.is_relative_to(folder):
        raise ConfigError(
            f"{text} is not a file of the package",
            key="[model] from",
            remedy=f"write {PACKAGE}NAME/PATH, where PATH begins in the package's folder",
        )
    return path


def _read_from_package(text: str, shape: tuple[int, ...]) -> WeightFile:
    path = _in_package(text)
    found = next((kind for kind in FILES.values() if kind.is_meant(str(path))), None)
    if found is None:
        raise ConfigError(
            f"{path.name} is not a file of weights",
            key="[model] from",
            remedy=f"name one such as {', '.join(kind.example for kind in FILES.values())}",
        )
    return found.read(str(path), shape)


FILES: Mapping[str, SourceKind] = {
    "safetensors": _file_kind("weights.safetensors", files.read_safetensors, ".safetensors"),
    "torch": _file_kind(
        "weights.pth",
        files.read_torch,
        ".pt",
        ".pth",
        ".bin",
        ".ckpt",
        ".tar",
    ),
    "onnx": _file_kind("network.onnx", files.read_onnx, ".onnx"),
}
SOURCES: Mapping[str, SourceKind] = {
    # Before files, which are known by the end of the text.
    "package": SourceKind(
        "package:NAME/weights.pth",
        lambda text: text.startswith(PACKAGE),
        lambda text: inputs_of_file(_in_package(text)),
        _read_from_package,
    ),
    **FILES,
    "torchvision": SourceKind(
        "torchvision:resnet18",
        lambda text: text.startswith("torchvision:"),
        libraries.inputs_of,
        libraries.read_torchvision,
    ),
    "timm": SourceKind(
        "timm:mobilenetv3_small_100",
        lambda text: text.startswith("timm:"),
        libraries.inputs_of,
        libraries.read_timm,
    ),
}


def find_source(stated: str) -> SourceKind | None:
    """The kind of source that a text means; None for another one."""
    return next((kind for kind in SOURCES.values() if kind.is_meant(stated)), None)
