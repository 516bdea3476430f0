"""Weights in files: safetensors, torch's state dicts, ONNX. Nothing in a file is ever run.

Files are mapped into memory, and an array is read when it is asked for.
"""

import hashlib
import json
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.models.registry import InputRecord
from schemas.errors import ConfigError
from schemas.tensors.arrays import AnyArray, ComputedArrays, Kind, LazyArrays
from schemas.tensors.chunks import MAX_BLOB_BYTES

# Weights from elsewhere, and why a source of them is refused.

KEY = "[model] from"


@dataclass(frozen=True)
class WeightFile:
    """The `arrays` of a source by the names that it gives them, made when they are read.

    Numbers with a point are float32, whatever the source holds. `stated` is how the user names it, `classes`
    are the names of its outputs in their order, `sha256` is the digest of its bytes, hex.
    """

    arrays: LazyArrays
    stated: str
    sha256: str
    inputs: InputRecord | None = None
    classes: tuple[str, ...] = ()


def refuse(reason: str, remedy: str) -> ConfigError:
    """The error of a source that is not taken."""
    return ConfigError(reason, key=KEY, remedy=remedy)


def one_line(error: BaseException) -> str:
    """What a library says of a failure, in a line."""
    said = getattr(error, "reason", error)  # of a URL that does not open
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__


GB = 1024**3
MAX_OLD_BYTES = 1 * GB  # of a file of torch before 1.6, which is read as a whole
SAVE_ALONE = "save the network's weights alone: torch.save(network.state_dict(), PATH)"
# The keys under which a checkpoint has the weights, the first that is there counts: averaged ones are better.
WRAPPERS = (
    "state_dict_ema", "model_ema", "ema_state_dict", "state_dict", "model_state_dict", "model", "module",
    "network", "net", "params", "weights",
)  # fmt: skip
CLASS_KEYS = ("class_names", "classes")


def read_safetensors(path: Path) -> WeightFile:
    """The arrays of a safetensors file; raises `ConfigError` for one that cannot be read."""
    from safetensors import safe_open

    check_size(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except Exception as error:  # the library raises types of its own, and others for foreign headers
        raise _damage_error(path, "safetensors file", error) from error
    return _make_file(path, as_arrays(tensors), _class_names(metadata))


def read_torch(path: Path) -> WeightFile:
    """The state dict in a file of `torch.save`, also inside a checkpoint; raises `ConfigError`."""
    content = _load_torch(path)
    tensors, place = _find_tensors(content, path)
    classes = _class_names(content if place else {})
    return _make_file(path, as_arrays(tensors), classes)


def read_onnx(path: Path) -> WeightFile:
    """The initialisers of an ONNX file, also those in a file beside it; raises `ConfigError`."""
    import onnx

    check_size(path)
    try:
        model = onnx.load(path, load_external_data=False)
        tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        kinds = {name: _onnx_kind(tensor, path.parent) for name, tensor in tensors.items()}
    except ConfigError:
        raise
    except Exception as error:  # onnx and protobuf raise types of their own
        raise _damage_error(path, "ONNX file", error) from error

    def make(name: str, start: int, stop: int) -> AnyArray:
        try:
            array = onnx.numpy_helper.to_array(tensors[name], str(path.parent))
            whole = np.asarray(array, np.float32 if kinds[name][0].kind == "f" else None)
        except Exception as error:
            raise _damage_error(path, "ONNX file", error) from error
        return whole[start:stop] if whole.ndim else whole

    metadata = {entry.key: entry.value for entry in model.metadata_props}
    return _make_file(path, ComputedArrays(kinds, make), _class_names(metadata))


def check_size(path: Path, most: int = MAX_BLOB_BYTES) -> None:
    """Raise `ConfigError` for a file that is missing, or larger than any network's weights."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise refuse(f"{path} cannot be read: {error.strerror}", "name a file of weights") from error
    if size > most:
        raise refuse(
            f"{path} has {size / GB:.1f} GB, and weights have at most {most / GB:.0f} GB", SAVE_ALONE
        )


def _make_file(path: Path, arrays: ComputedArrays, classes: tuple[str, ...]) -> WeightFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return WeightFile(arrays, str(path), digest, classes=classes)


def _damage_error(path: Path, kind: str, error: Exception) -> ConfigError:
    return refuse(f"{path} is no {kind}, or is cut off: {one_line(error)}", "copy it again")


def _load_torch(path: Path) -> Any:
    import torch

    check_size(path)
    try:
        if not (is_archive := zipfile.is_zipfile(path)):
            check_size(path, MAX_OLD_BYTES)
        elif any(entry.compress_type for entry in zipfile.ZipFile(path).infolist()):
            raise refuse(f"{path} is compressed, which torch does not map", SAVE_ALONE)
        with warnings.catch_warnings(action="ignore"):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    except ConfigError:
        raise
    except Exception as error:  # torch raises anything for a foreign file
        text = str(error)
        if unsafe := re.search(r"GLOBAL (\S+)", text):
            raise refuse(f"{path} is refused, for reading it would run '{unsafe[1]}'", SAVE_ALONE) from error
        if "weights_only" in text:
            kind = "a network of TorchScript" if "TorchScript" in text else "no state dict"
            raise refuse(f"{path} is {kind}, or is cut off", SAVE_ALONE) from error
        raise _damage_error(path, "file of torch", error) from error


def _find_tensors(content: Any, path: Path) -> tuple[Mapping[str, Any], str]:
    """The state dict in what a file holds, and the key under which it lies; empty if it is the whole."""
    candidates = dict(_state_dicts(content))
    if "" in candidates:
        return candidates[""], ""
    key = next((name for name in WRAPPERS if name in candidates), None)
    if key is None and len(candidates) == 1:
        key = next(iter(candidates))
    if key is None:
        several = f"several state dicts ({', '.join(candidates)})" if candidates else "no state dict"
        raise refuse(f"{path} holds {several}", SAVE_ALONE)
    return candidates[key], key


def _state_dicts(content: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tensors by name of a dict, and of the dicts in it."""
    import torch

    parts = {"": content, **(content if isinstance(content, Mapping) else {})}
    for key, part in parts.items():
        if isinstance(key, str) and isinstance(part, Mapping):
            tensors = {
                name: tensor
                for name, tensor in part.items()
                if isinstance(name, str) and isinstance(tensor, torch.Tensor)
            }
            if tensors:
                yield key, tensors


def as_arrays(tensors: Mapping[str, Any]) -> ComputedArrays:
    """Tensors of torch as arrays, those with a point as float32."""
    kinds = {name: (_dtype(tensor), tuple(tensor.shape)) for name, tensor in tensors.items()}

    def make(name: str, start: int, stop: int) -> AnyArray:
        tensor = tensors[name].detach()
        tensor = tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
        array = (tensor.float() if kinds[name][0].kind == "f" else tensor).numpy()
        return np.asarray(array[start:stop] if array.ndim else array)

    return ComputedArrays(kinds, make)


def _dtype(tensor: Any) -> np.dtype[Any]:
    """The type as which a tensor is read; that of no use, if numpy does not have it."""
    import torch

    if tensor.is_floating_point() or tensor.is_quantized:
        return np.dtype(np.float32)
    try:
        return np.dtype(torch.empty(0, dtype=tensor.dtype).numpy().dtype)
    except TypeError:
        return np.dtype("V1")


def _onnx_kind(tensor: Any, folder: Path) -> Kind:
    """The type and shape of an initialiser; raises `ValueError` if its data is not of that size."""
    from onnx import external_data_helper, helper

    dtype, shape = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)), tuple(tensor.dims)
    is_real = dtype.kind == "f" or dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    if external_data_helper.uses_external_data(tensor):
        about = external_data_helper.ExternalDataInfo(tensor)
        check_size(folder / about.location)
        if about.length != dtype.itemsize * int(np.prod(shape)):
            raise ValueError(f"'{tensor.name}' has {about.length} bytes, which is not its size")
    return (np.dtype(np.float32) if is_real else dtype), shape


def _class_names(content: Mapping[Any, Any]) -> tuple[str, ...]:
    """The names of classes that a file states: a list, or its JSON; empty if it has none."""
    for key in CLASS_KEYS:
        names = content.get(key)
        if isinstance(names, str):
            try:
                names = json.loads(names)
            except ValueError:
                continue
        if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
            return tuple(names)
    return ()
