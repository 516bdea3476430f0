"""The kinds of sources that weights come from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from edge_client.models.registry import InputRecord
from edge_server.coordinator.pretrained import file_inputs, files, libraries
from edge_server.coordinator.pretrained.weight_file import WeightFile
from schemas.errors import ConfigError


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
        lambda text: file_inputs.inputs_of_file(Path(text).expanduser()),
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
        lambda text: file_inputs.inputs_of_file(_in_package(text)),
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
