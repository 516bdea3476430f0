"""Runs that start from files of weights, and files that are refused."""

import contextlib
import json
import math
import os
import random
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import save_file

from edge_client.models.build import build_model
from edge_client.models.registry import InputRecord
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import arrays_of
from edge_server.cli.main import main
from edge_server.coordinator.initial_model import find_initial_model
from edge_server.coordinator.pretrained.model import PretrainedModel
from edge_server.coordinator.pretrained.sources import find_source
from edge_server.storage.records import StartedFrom, WeightsTaken
from edge_server.storage.run_folder import RunFolder
from schemas.errors import ConfigError
from schemas.tensors.arrays import kind_of
from schemas.values import ModelSpec
from tests.edge_server.coordinator.test_initial_model import begun, file, params_in, started
from tests.edge_server.own_networks import NAME

Weights = dict[str, Any]
SPEC = ModelSpec(name=f"{NAME}:hidden", input_shape=(1, 4, 4), num_classes=3)
HEAD = ("3.weight", "3.bias")


@pytest.fixture(scope="module")
def weights() -> Weights:
    """The weights of the network `hidden` for three classes, other than those that a run draws."""
    return dict(build_model(SPEC, seed=99).state_dict())


def initialisers(weights: Weights, path: Path, **metadata: str) -> None:
    arrays = [onnx.numpy_helper.from_array(array.numpy(), name) for name, array in weights.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph([], "graph", [], [], arrays))
    onnx.helper.set_model_props(model, metadata)
    onnx.save(model, path)


def beside(weights: Weights, path: Path) -> None:
    initialisers(weights, path)
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="arrays.data", size_threshold=0)


WRITERS: dict[str, tuple[str, Callable[[Weights, Path], object]]] = {
    "safetensors": ("w.safetensors", save_file),
    "torch": ("w.pth", torch.save),
    "torch before 1.6": ("w.pt", lambda w, path: torch.save(w, path, _use_new_zipfile_serialization=False)),
    "checkpoint": (
        "last.ckpt",
        lambda w, path: torch.save({"epoch": 3, "model": {f"module.{n}": w[n] for n in w}}, path),
    ),
    "half": ("w.bin", lambda w, path: torch.save({name: w[name].to(torch.float16) for name in w}, path)),
    "bfloat16": ("b.safetensors", lambda w, path: save_file({n: w[n].to(torch.bfloat16) for n in w}, path)),
    "double": ("d.pth", lambda w, path: torch.save({name: w[name].double() for name in w}, path)),
    "onnx": ("w.onnx", initialisers),
    "onnx with a file beside it": ("w.onnx", beside),
}


def read(path: Path) -> tuple[Mapping[str, Any], StartedFrom]:
    """What the network `hidden` takes from a file."""
    module = build_model(SPEC)
    first = find_initial_model(file(f"from={path}"), [])
    assert first is not None
    return first.read(SPEC, trace_channels(module, SPEC.input_shape), arrays_of(module), ())


@pytest.mark.parametrize("kind", WRITERS)
def test_weights_of_every_kind_are_taken(kind: str, weights: Weights, tmp_path: Path) -> None:
    name, write = WRITERS[kind]
    write(weights, tmp_path / name)
    mine, about = read(tmp_path / name)
    rounded = {"half": torch.float16, "bfloat16": torch.bfloat16}.get(kind, torch.float32)
    for key, tensor in weights.items():
        np.testing.assert_array_equal(mine[key], tensor.to(rounded).float())
        assert mine[key].dtype == np.float32
    assert about.weights == WeightsTaken(numbers=203, of=203, taken={"1": 2, "3": 2})


def test_a_run_starts_from_weights_and_notes_what_it_took(weights: Weights, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file(weights, path)
    coordinator = started(file(f"from={path}"), tmp_path / "run")
    mine = params_in(tmp_path / "run" / "models" / "round-0000")
    assert all(np.array_equal(mine[name], weights[name]) for name in weights)
    about = coordinator.model.started_from
    assert about is not None
    assert about.weights is not None
    assert json.loads((tmp_path / "run" / "start.json").read_text())["weights"]["taken"] == {"1": 2, "3": 2}
    assert coordinator.model.notices[:2] == (
        f"starts from {path} (100.0% of the network)",
        "  taken  4 arrays in 1, 3  203 of 203 numbers",
    )


def test_a_head_of_other_classes_is_drawn_and_the_table_says_why(weights: Weights, tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save({**weights, "aux.weight": torch.zeros(2, 2)}, path)
    drawn = begun(file(source="four_kinds"), tmp_path / "drawn")
    drawn.storage.close()
    coordinator = started(file(f"from={path}", source="four_kinds"), tmp_path / "run")
    params = coordinator.model.state.params
    assert all(np.array_equal(params[name], drawn.model.state.params[name]) for name in HEAD)
    assert all(np.array_equal(params[name], weights[name]) for name in ("1.weight", "1.bias"))
    assert coordinator.model.notices[1:4] == (
        "  taken             2 arrays in 1     170 of 214 numbers",
        "  drawn anew        3.weight, 3.bias  3 classes in the file, 4 here",
        "  left in the file  aux.weight        not of this network",
    )


def test_a_frozen_array_that_the_weights_lack_is_told(weights: Weights, tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save({name: weights[name] for name in weights if name != "1.bias"}, path)
    coordinator = started(file(f"from={path}", "training.train=head"), tmp_path / "run")
    assert coordinator.model.notices[-2] == (
        "the weights lack '1.bias', and no device trains what they lack, so that it stays random: name it in "
        "[training] train, or take other weights"
    )
    coordinator = started(file(f"from={path}", 'training.train=["1.bias"]'), tmp_path / "second")
    assert not any("random" in notice for notice in coordinator.model.notices)


def test_a_frozen_head_that_sums_solve_is_not_told(weights: Weights, tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save({name: weights[name] for name in weights if name not in HEAD}, path)
    told = {}
    for name, given in {"drawn": (), "solved": ("strategy.first-round=ridge",)}.items():
        run = started(file(f"from={path}", 'training.train=["1.*"]', *given), tmp_path / name)
        told[name] = any("random" in notice for notice in run.model.notices)
    assert told == {"drawn": True, "solved": False}


def test_rows_of_named_classes_go_by_name(weights: Weights, tmp_path: Path) -> None:
    path = tmp_path / "w.onnx"
    initialisers(weights, path, class_names='["hen", "elk", "cat"]')
    coordinator = started(file(f"from={path}", source="named_pictures"), tmp_path / "run")
    bias = coordinator.model.state.params["3.bias"]
    assert [bias[0], bias[2]] == [weights["3.bias"][2], weights["3.bias"][0]]
    about = coordinator.model.started_from
    assert about is not None
    assert about.new_classes == ("dog",)
    assert about.weights == WeightsTaken(numbers=203 - 11, of=203, taken={"1": 2, "3": 2})


def test_a_run_that_was_cut_off_at_its_beginning_reads_its_own_copy(weights: Weights, tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save(weights, path)
    config = file(f"from={path}")
    before = started(config, tmp_path / "run")
    path.unlink()
    again = find_initial_model(config, [], RunFolder(tmp_path / "run"))
    assert again is not None
    assert not isinstance(again, PretrainedModel)
    context = before.context
    params, about = again.read(context.spec, context.channel_map, before.model.state.params, ())
    assert about == before.model.started_from
    assert all(np.array_equal(params[name], weights[name]) for name in weights)


def test_a_description_beside_the_weights_says_what_their_inputs_were(
    weights: Weights, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    save_file(weights, path)
    first = find_initial_model(file(f"from={path}"), [])
    assert isinstance(first, PretrainedModel)
    assert first.inputs is None
    about = {
        "input_size": [3, 96, 64],
        "mean": [0.5],
        "std": [0.25],
        "crop_pct": 0.9,
        "interpolation": "bicubic",
    }
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "net", "pretrained_cfg": about}))
    first = find_initial_model(file(f"from={path}"), [])
    assert isinstance(first, PretrainedModel)
    assert first.inputs == InputRecord((96, 64), (0.5,) * 3, (0.25,) * 3, 0.9, "bicubic")


class Harmless:
    """What would write a file if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def sparse(path: Path) -> None:
    with path.open("wb") as made:
        made.write(struct.pack("<Q", 2) + b"{}")
        made.truncate(5 * 1024**3)


def packed(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def elsewhere(path: Path) -> None:
    """Let an ONNX file ask for data by a path that could be any on this machine."""
    model = onnx.load(path, load_external_data=False)
    for array in model.graph.initializer:
        location = next(entry for entry in array.external_data if entry.key == "location")
        location.value = str(path.parent / "arrays.data")
    path.write_bytes(model.SerializeToString())


def with_nan(weights: Weights) -> Weights:
    return {**weights, "1.bias": torch.full_like(weights["1.bias"], float("nan"))}


def narrower(weights: Weights) -> Weights:
    return {**weights, "1.weight": weights["1.weight"][:6], "1.bias": weights["1.bias"][:6]}


def of_type(weights: Weights, dtype: torch.dtype) -> Weights:
    return {name: tensor.to(dtype) for name, tensor in weights.items()}


BAD: dict[str, tuple[str, Callable[[Weights, Path], object], str]] = {
    "code": (
        "w.pth",
        lambda w, path: torch.save({**w, "x": Harmless(path.parent / "ran")}, path),
        r"is refused, for reading it would run 'posix.mkdir': save the network's weights alone",
    ),
    "old code": (
        "w.pth",
        lambda w, path: torch.save(
            {**w, "x": Harmless(path.parent / "ran")}, path, _use_new_zipfile_serialization=False
        ),
        r"is refused, for reading it would run 'posix.mkdir'",
    ),
    "a whole network": (
        "w.pt",
        lambda _, path: torch.save(torch.nn.Linear(2, 2), path),
        r"is refused, for reading it would run 'torch.nn.modules.linear.Linear'",
    ),
    "nan": ("w.pth", lambda w, path: torch.save(with_nan(w), path), r"'1.bias' has numbers that are not fin"),
    "nan in onnx": ("w.onnx", lambda w, path: initialisers(with_nan(w), path), r"'1.bias' has numbers that"),
    "another network": (
        "w.safetensors",
        lambda w, path: save_file({name.replace("1", "4"): tensor for name, tensor in w.items()}, path),
        r"fits 0% of the network '.*:hidden' for \(1, 4, 4\), and 75% are needed: '1.weight': not in the "
        r"file; '1.bias': not in the file: name the network that these weights are of",
    ),
    "another width": (
        "w.pth",
        lambda w, path: torch.save(narrower(w), path),
        r"'1.weight': \(6, 16\) in the file, \(10, 16\) here; '1.bias': \(6,\) in the file, \(10,\) here: ",
    ),
    "integers": (
        "w.pth",
        lambda w, path: torch.save(of_type(w, torch.int8), path),
        r"'1.weight': int8 in the file",
    ),
    "complex": (
        "w.pth",
        lambda w, path: torch.save(of_type(w, torch.complex64), path),
        r"'1.weight': complex64 in the file",
    ),
    "cut off": ("w.pth", lambda w, path: (torch.save(w, path), cut(path)), r"is no file of torch, or is cut"),
    "old and cut off": (
        "w.pt",
        lambda w, path: (torch.save(w, path, _use_new_zipfile_serialization=False), cut(path)),
        r"is no file of torch, or is cut off",
    ),
    "cut safetensors": (
        "w.safetensors",
        lambda w, path: (save_file(w, path), cut(path)),
        r"is no safetensors",
    ),
    "cut onnx": ("w.onnx", lambda w, path: (initialisers(w, path), cut(path)), r"is no ONNX file, or is cut"),
    "cut file beside it": (
        "w.onnx",
        lambda w, path: (beside(w, path), cut(path.parent / "arrays.data")),
        r"is no ONNX file, or is cut off",
    ),
    "another file's data": (
        "w.onnx",
        lambda w, path: (beside(w, path), elsewhere(path)),
        r"is no ONNX file, or is cut off",
    ),
    "compressed": ("w.pth", lambda w, path: (torch.save(w, path), packed(path)), r"is compressed, which"),
    "a shape without numbers": (
        "w.pth",
        lambda w, path: torch.save({**w, "1.weight": torch.zeros(1).expand(10**7, 10**7)}, path),
        r"'1.weight': \(10000000, 10000000\) in the file, \(10, 16\) here",
    ),
    "large": ("w.safetensors", lambda _, path: sparse(path), r"has 5.0 GB, and weights have at most 4"),
    "large, torch": ("w.pth", lambda _, path: sparse(path), r"has 5.0 GB, and weights have at most 4"),
    "no weights": ("w.pth", lambda _, path: torch.save({"epoch": 3}, path), r"holds no state dict: save"),
    "several": (
        "w.pth",
        lambda w, path: torch.save({"student": w, "teacher": w}, path),
        r"holds several state dicts \(student, teacher\): save",
    ),
    "missing": ("w.pth", lambda _, path: None, r"cannot be read: No such file or directory: name a file"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_refused_in_a_line(what: str, weights: Weights, tmp_path: Path) -> None:
    name, write, message = BAD[what]
    write(weights, tmp_path / name)
    with pytest.raises(ConfigError, match=message) as raised:
        read(tmp_path / name)
    assert str(raised.value).startswith("[model] from: ")
    assert raised.value.remedy
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "ran").exists()


def test_mutated_files_are_read_or_refused(weights: Weights, tmp_path: Path) -> None:
    rng = random.Random(0)
    for name, write in WRITERS.values():
        write(weights, tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        for _ in range(12):
            data = bytearray(whole)
            for _ in range(rng.choice((1, 3, 20))):
                data[rng.randrange(len(data))] = rng.randrange(256)
            (tmp_path / name).write_bytes(data)
            with contextlib.suppress(ConfigError):
                source = find_source(name)
                assert source is not None
                arrays = source.read(str(tmp_path / name), SPEC.input_shape).arrays
                [arrays[each] for each in arrays if math.prod(kind_of(arrays, each)[1]) < 1000]


def test_check_shows_the_table_and_ends_with_2_for_a_bad_file(
    weights: Weights, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check", "fedavg", f"data.source=python:{NAME}:pictures", f"model.name={NAME}:hidden"]
    path = tmp_path / "w.safetensors"
    save_file(weights, path)
    assert main([*words, f"from={path}"]) == 0
    assert "#   taken  4 arrays in 1, 3  203 of 203 numbers\n" in capsys.readouterr().out
    torch.save({"x": Harmless(tmp_path / "ran")}, tmp_path / "w.pth")
    assert main([*words, f"from={tmp_path / 'w.pth'}"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "would run 'posix.mkdir'" in said


def test_a_file_in_a_python_package_is_read_without_importing_the_package(
    tmp_path: Path, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped_weights" / "files").mkdir(parents=True)
    (tmp_path / "shipped_weights" / "__init__.py").write_text("raise RuntimeError")
    save_file(weights, tmp_path / "shipped_weights" / "files" / "net.safetensors")
    monkeypatch.syspath_prepend(tmp_path)
    text = "package:shipped_weights/files/net.safetensors"
    source = find_source(text)
    assert source is not None
    assert set(source.read(text, SPEC.input_shape).arrays) == set(weights)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("package:no_such_weights/net.pth", "no Python package 'no_such_weights' here: pip install no_such"),
        ("package:torch/../net.pth", "not a file of the package: write package:NAME/PATH"),
        ("package:torch/py.typed", "py.typed is not a file of weights: name one such as weights.safetensors"),
    ],
)
def test_a_package_without_such_a_file_is_told(text: str, words: str) -> None:
    source = find_source(text)
    assert source is not None
    with pytest.raises(ConfigError, match=words):
        source.read(text, SPEC.input_shape)
