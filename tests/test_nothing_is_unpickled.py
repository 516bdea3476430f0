"""No package unpickles or evaluates received bytes."""

import io
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.arrays import read_npy, read_npz
from schemas.errors import ConfigError, PeerError
from tests.groups import decode_groups
from tests.unpickling import findings

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas", "edge_client", "edge_server")

KNOWN = {
    # Pickles between a process and its own worker processes, over their own pipes.
    ("edge_server/simulation/local_engine.py", "multiprocessing"),
    ("edge_server/simulation/local_engine.py", "concurrent.futures.ProcessPoolExecutor"),
    ("edge_server/simulation/local_engine.py", "concurrent.futures.process"),
    ("edge_server/simulation/experiments/runner.py", "multiprocessing"),
    ("edge_server/coordinator/aggregators/pool.py", "multiprocessing"),
    ("edge_server/coordinator/model_process.py", "multiprocessing"),
    ("edge_server/coordinator/worker_processes.py", "multiprocessing"),
    ("edge_server/config/own_networks.py", "pickle"),
    # A table in memory, of a run's records: no file is read.
    ("edge_server/simulation/library/extras.py", "pandas"),
    # Cloudpickle between the simulation and its Ray cluster, whose machines run its code anyway.
    ("edge_server/simulation/ray_engine.py", "ray"),
    # CIFAR is published as pickles: torchvision reads the user's own files and checks their MD5 sums.
    ("edge_client/data/named_sets.py", "torchvision.datasets"),
    # Imports torchvision or timm, of a fixed list.
    ("edge_client/models/zoo.py", "importlib.import_module"),
    # Downloads a published file, which is then read as arrays alone.
    ("edge_server/coordinator/pretrained/sources.py", "torch.hub"),
    # Compiles a graph that this process has just recorded from a network of known parts; it loads none.
    ("edge_client/training/step_capture.py", "torch.jit"),
    # Imports by name: the project's own `schemas`; the user's own `python:` source, model
    # (with --model-code) or app (with --flower).
    ("edge_client/system/user_code.py", "__import__"),
    ("edge_client/system/user_code.py", "importlib.import_module"),
    # The project's own module for a kind of tables, of a fixed list.
    ("edge_client/data/tables/kinds.py", "importlib.import_module"),
    # The packages of another runtime, of a fixed list.
    ("edge_client/inference/runtimes.py", "importlib.import_module"),
}
"""Every place that the threat model must list; each entry corresponds to a line of code."""


@cache
def found_in_packages() -> set[tuple[str, str]]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(paths) > 200
    return {
        (path.relative_to(ROOT).as_posix(), finding.name)
        for path in paths
        for finding in findings(path.read_text())
    }


def test_only_known_places_unpickle_or_evaluate():
    assert found_in_packages() - KNOWN == set()


def test_the_known_places_still_exist():
    assert KNOWN - found_in_packages() == set()


def test_the_threat_model_lists_every_known_place():
    text = (ROOT / "deploy" / "docs" / "explanation" / "threat-model.md").read_text()
    assert [path for path, _ in sorted(KNOWN) if path not in text] == []


@pytest.mark.parametrize(
    ("source", "names"),
    # Source text that is parsed and never executed.
    [
        ("import pickle", ["pickle"]),
        ("import os, pickle as p", ["pickle"]),
        ("from pickle import loads as read", ["pickle"]),
        ("def f():\n    from cloudpickle import loads", ["cloudpickle"]),
        ("import joblib.numpy_pickle", ["joblib"]),
        ("import yaml", ["yaml"]),
        ("import importlib\nimportlib.import_module('dill')", ["dill", "importlib.import_module"]),
        ("import torch\ntorch.load(path)", ["torch.load"]),
        ("import torch as t\nt.load(path, weights_only=False)", ["torch.load"]),
        ("from torch import load as read\nread(path)", ["torch.load"]),
        ("import torch\ntorch.load(path, weights_only=flag)", ["torch.load"]),
        ("import torch\ntorch.jit.load(path)", ["torch.jit"]),
        ("import torch.hub as hub\nhub.load('a', 'b')", ["torch.hub", "torch.hub"]),
        ("import numpy as np\nnp.load(path)", ["numpy.load"]),
        ("import numpy\nnumpy.load(path, allow_pickle=True)", ["allow_pickle", "numpy.load"]),
        ("archive(path, allow_pickle=flag)", ["allow_pickle"]),
        ("eval(text)", ["eval"]),
        ("run = exec", ["exec"]),
        ("__import__(name)", ["__import__"]),
        ("from multiprocessing import Queue", ["multiprocessing"]),
        ("from concurrent.futures import ProcessPoolExecutor", ["concurrent.futures.ProcessPoolExecutor"]),
        ("from torchvision import datasets", ["torchvision.datasets"]),
    ],
)
def test_code_that_could_unpickle_is_found(source: str, names: list[str]):
    assert [finding.name for finding in findings(source)] == sorted(names, key=names.index)


@pytest.mark.parametrize(
    "source",
    # Source text that is never executed.
    [
        '"""Nothing here is ever unpickled: no pickle.loads, no eval()."""  # import pickle',
        "import torch\ntorch.load(path, weights_only=True)",
        "import numpy as np\nnp.load(path, mmap_mode='r', allow_pickle=False)\nnp.loadtxt(path)",
        "module.eval()\nmodel.compile()\nre.compile('a')",
        "from concurrent.futures import ThreadPoolExecutor, TimeoutError",
        "import json\njson.load(file)\nstore.load(path)",
        "from edge_client.training.evaluation import eval\neval(model)",
        "import raylib\nimport marshalling",
    ],
)
def test_harmless_code_is_not_reported(source: str):
    assert findings(source) == []


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def test_an_array_file_that_contains_a_pickle_is_refused_and_not_executed(tmp_path: Path):
    trap = np.array([Evil(tmp_path / "ran")], dtype=object)
    np.save(tmp_path / "a.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "a.npz", images=trap)
    for read, name in ((read_npy, "a.npy"), (read_npz, "a.npz")):
        with pytest.raises(ConfigError):
            read(tmp_path / name)
    assert not (tmp_path / "ran").exists()
    # The trap does work when the file is unpickled.
    np.load(tmp_path / "a.npy", allow_pickle=True)
    assert (tmp_path / "ran").exists()


def test_a_blob_that_is_a_torch_file_is_refused(tmp_path: Path):
    """`torch.save` writes a zip file that contains a pickle."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", b"cos\nsystem\n(S'true'\ntR.")
    for data in (archive.getvalue(), b"cos\nsystem\n(S'true'\ntR."):
        with pytest.raises(PeerError):
            decode_groups(data)


def test_inference_on_a_device_loads_no_unpickler(tmp_path: Path):
    """numpy imports pickle itself, so the test looks for other modules that could read pickles from files."""
    code = (
        "import sys, edge_client.cli.commands.infer, edge_client.inference.onnx_model;"
        "import edge_client.security.trusted_key;"
        "print(sorted(sys.modules.keys() & {'cloudpickle', 'dill', 'joblib', 'shelve', 'yaml', 'torch'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n")
