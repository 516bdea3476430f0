"""The kinds of sources that weights come from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_client.models.inputs import InputRecord
from edge_server.coordinator.pretrained import files, libraries
from edge_server.coordinator.pretrained.file_inputs import inputs_of_file
from edge_server.coordinator.pretrained.weight_file import WeightFile


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


SOURCES: Mapping[str, SourceKind] = {
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
