"""The kinds of sources that weights come from; what torchvision and timm publish is read here."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edge_client.inference.export.metadata import read_preprocessing
from edge_client.models import registry, zoo
from edge_client.system.plain_text import say
from edge_server.coordinator.pretrained import files
from schemas.errors import ConfigError
from schemas.tensors.files import digest_of_tensors
from schemas.values import ModelSpec, Preprocessing

# Weights that torchvision and timm publish: `torchvision:NAME`, `torchvision:NAME.WEIGHTS`, `timm:NAME`.
# They are downloaded once, here on the server, and kept where the library keeps them: `TORCH_HOME` and
# `HF_HOME` name other folders. A device downloads nothing.


def read_torchvision(stated: str, input_shape: tuple[int, ...]) -> files.WeightFile:
    """The weights of torchvision's own list; its default ones if none are named. Raises `ConfigError`."""
    from torchvision import models

    _, network = registry.library_and_network(stated.partition(".")[0])
    published = models.get_model_weights(network)
    chosen = published[stated.partition(".")[2]] if "." in stated else published.DEFAULT
    file = files.read_torch(_fetch(chosen.url))
    classes = tuple(map(str, chosen.meta.get("categories", ())))
    return replace(file, stated=stated, inputs=inputs_of(stated), classes=classes)


def read_timm(stated: str, input_shape: tuple[int, ...]) -> files.WeightFile:
    """The weights of timm's registry, as its network of this input has them. Raises `ConfigError`.

    timm renames old arrays, and fits positions of pictures of another size and first layers of other colours.
    """
    import timm

    name = stated.partition(":")[2]
    about = _timm_record(name)
    options: dict[str, Any] = {}
    if len(input_shape) == 3:
        options["in_chans"] = input_shape[0]
        if about.fixed_input_size:
            options["img_size"] = input_shape[1:]
    say(f"edge-server: timm gets the weights of '{name}', unless it has them", file=sys.stderr)
    try:
        module = timm.create_model(name, pretrained=True, **options)
    except Exception as error:  # of timm, of its hub, of the network, of the disk
        raise _unreachable(stated, error, "let timm get them once on this machine") from error
    arrays = files.as_arrays(module.state_dict())
    return files.WeightFile(
        arrays,
        stated,
        digest_of_tensors(arrays),
        inputs=inputs_of(stated),
        classes=tuple(about.label_names or ()),
    )


def inputs_of(stated: str) -> registry.InputRecord:
    """What the library says of the inputs of weights; `ConfigError` if it has none of this name."""
    try:
        record = zoo.input_record(stated)
    except ConfigError as error:
        raise ConfigError(error.reason, key=files.KEY, remedy=error.remedy) from error
    library, _, name = stated.partition(":")
    if library == "timm":
        _timm_record(name)
    return record


def _timm_record(name: str) -> Any:
    """What timm knows of weights; `ConfigError` if it has none."""
    import timm

    about = timm.get_pretrained_cfg(name)
    if about is None or not about.has_weights:
        others = timm.list_models(f"{name.partition('_')[0]}*", pretrained=True)
        example = f", such as timm:{others[0]}" if others else ""
        raise files.refuse(
            f"timm knows the network '{name}' and has no weights of it", f"name others{example}"
        )
    return about


def _fetch(url: str) -> Path:
    """The file of a URL in torch's cache, downloaded unless it is there.

    Its name has the beginning of its digest, and another file is refused.
    """
    from torch import hub

    path = Path(hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    if path.exists():
        return path
    say(f"edge-server: downloading {url} to {path}", file=sys.stderr)
    digest = hub.HASH_REGEX.search(path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        hub.download_url_to_file(url, str(path), digest and digest[1], progress=sys.stderr.isatty())
    except Exception as error:  # of the network, of the disk, or another digest
        raise _unreachable(url, error, f"copy it to {path} by another way") from error
    return path


def _unreachable(what: str, error: Exception, remedy: str) -> ConfigError:
    return files.refuse(
        f"{what} cannot be downloaded: {files.one_line(error)}", f"{remedy}, or name a file of weights"
    )


# The inputs of weights in a file: stated in an exported model, or in what timm's hub puts beside weights.

BESIDE = "config.json"


def inputs_of_file(path: Path) -> registry.InputRecord | None:
    """What is stated of the inputs; None if nothing is, or nothing that can be read.

    Raises `ConfigError` for a file of weights that is missing or too large.
    """
    files.check_size(path)
    try:
        return _read_export(path) if path.suffix.lower() == ".onnx" else _read_beside(path.with_name(BESIDE))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def record_of(about: Preprocessing, input_shape: tuple[int, ...]) -> registry.InputRecord | None:
    """The inputs of a model of this shape; None if what pictures become was not stated for it."""
    if (how := about.resizing) is None or len(input_shape) != 3:
        return None
    colours, height, width = input_shape
    if not {len(about.mean), len(about.std)} <= {1, colours}:
        return None
    mean, std = (figures * (colours // len(figures)) for figures in (about.mean, about.std))
    return registry.InputRecord((height, width), mean, std, how.crop, how.interpolation)


def _read_export(path: Path) -> registry.InputRecord | None:
    """Of a model that a run has exported."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        properties = onnx.load(path, load_external_data=False).metadata_props
    except DecodeError:
        return None
    metadata = {entry.key: entry.value for entry in properties}
    return record_of(read_preprocessing(metadata), tuple(json.loads(metadata["input.shape"])))


def _read_beside(path: Path) -> registry.InputRecord | None:
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
    inputs: Callable[[str], registry.InputRecord | None]
    read: Callable[[str, tuple[int, ...]], files.WeightFile]


def _file_kind(example: str, read: Callable[[Path], files.WeightFile], *suffixes: str) -> SourceKind:
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


def _read_from_package(text: str, shape: tuple[int, ...]) -> files.WeightFile:
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
    "torch": _file_kind("weights.pth", files.read_torch, ".pt", ".pth", ".bin", ".ckpt", ".tar"),
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
        "torchvision:resnet18", lambda text: text.startswith("torchvision:"), inputs_of, read_torchvision
    ),
    "timm": SourceKind(
        "timm:mobilenetv3_small_100", lambda text: text.startswith("timm:"), inputs_of, read_timm
    ),
}


def find_source(stated: str) -> SourceKind | None:
    """The kind of source that a text means; None for another one."""
    return next((kind for kind in SOURCES.values() if kind.is_meant(stated)), None)
