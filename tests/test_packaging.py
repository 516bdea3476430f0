"""The wheel with only its base dependencies, as on a board, installed in a separate environment.

`make try-python` installs it from an index.
"""

import json
import subprocess
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_client.data.sources import load_source
from tests.wheel import installed_with_extra, run

NOT_COUNTED = {"onnxruntime", "numpy", "pip", "setuptools"}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with the wheel and its base dependencies."""
    return installed_with_extra(tmp_path_factory, "")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that classifies digits [N, 1, 8, 8] by the nearest of the ten classes' mean images."""
    train, path = load_source("digits", split="train"), tmp_path_factory.mktemp("model") / "digits.onnx"
    pixels = train.images.reshape(len(train), -1).astype(np.float32) / 16
    means = np.stack([pixels[train.labels == label].mean(axis=0) for label in range(10)])
    # |x - m|^2 is |x|^2 - 2 x.m + |m|^2, and |x|^2 is the same for every class.
    weights, bias = 2 * means.T, -(means**2).sum(axis=1)
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("Gemm", ["flat", "w", "b"], ["y"])],
        "nearest-mean",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(model, {"input.shape": "[1, 8, 8]", "preprocessing": '{"scale": 16.0}'})
    onnx.save(model, str(path))
    return path


def test_the_wheel_installs_no_heavy_packages(board, tmp_path):
    program = (
        "import json; from importlib.metadata import distributions;"
        "print(json.dumps([d.name.lower().replace('_', '-') for d in distributions()]))"
    )
    names = set(json.loads(run(board / "python", "-c", program, cwd=tmp_path).stdout))
    assert {"edge-federation", "numpy", "onnxruntime", "pillow", "pydantic", "safetensors"} <= names
    assert names & {"torch", "torchvision", "paho-mqtt", "onnx", "onnxscript", "rich", "pytest"} == set()


@pytest.mark.parametrize("program", ["edge-server", "edge-client"])
def test_the_commands_are_installed_and_print_help(board, tmp_path, program):
    helped = run(board / program, "--help", cwd=tmp_path)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert f"usage: {program}" in helped.stdout


def test_the_wheel_contains_the_data_files(board, tmp_path):
    program = (
        "from importlib.resources import files; import edge_client, edge_server, schemas;"
        "found = [files('edge_server.config.recipes') / 'fedavg.toml',"
        " files('edge_server.cli') / 'demo.toml',"
        " files('edge_server.observability.report') / 'report.css',"
        " files('edge_server.observability.dashboard') / 'assets' / 'index.html',"
        " *(files(package) / 'py.typed' for package in (edge_client, edge_server, schemas))];"
        "print([path.name for path in found if not path.is_file()], edge_client.__file__)"
    )
    done = run(board / "python", "-c", program, cwd=tmp_path)
    missing, _, where = done.stdout.strip().partition(" ")
    assert missing == "[]", done.stderr
    assert Path(where).is_relative_to(board.parent)


def test_the_shipped_digits_load(board, tmp_path):
    program = (
        "from edge_client.data.sources import load_source;"
        "data = [load_source('digits', split=split) for split in ('train', 'test')];"
        "print(sum(map(len, data)), data[0].input_shape, data[0].num_classes)"
    )
    done = run(board / "python", "-c", program, cwd=tmp_path)
    assert done.stdout == "1797 (1, 8, 8) 10\n", done.stderr


def test_infer_classifies_digits(board, digits, tmp_path):
    test = load_source("digits", split="test")
    np.savez(tmp_path / "test.npz", images=test.images, labels=test.labels)
    done = run(
        board / "edge-client", "infer", digits, tmp_path / "test.npz", "--format", "json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["labelled"] == len(document["results"]) == len(test)
    # The accuracy of the nearest mean image; 0.1 is chance.
    assert document["accuracy"] > 0.85


def test_bench_measures(board, digits, tmp_path):
    words = ("--threads", "1", "--seconds", "0.1", "--format", "json")
    done = run(board / "edge-client", "bench", digits, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["runs"] > 0
    assert result["median_ms"] > 0


def test_the_base_install_without_onnxruntime_and_numpy_is_small(board, tmp_path):
    """The file sizes of all installed packages in bytes; pip itself is not counted."""
    program = (
        "import json; from importlib.metadata import distributions;"
        "size = lambda d: sum(f.locate().stat().st_size for f in d.files or () if f.locate().is_file());"
        "print(json.dumps({d.name.lower(): size(d) for d in distributions()}))"
    )
    done = run(board / "python", "-c", program, cwd=tmp_path)
    sizes = json.loads(done.stdout)
    counted = {name: size for name, size in sizes.items() if name not in NOT_COUNTED}
    assert counted["edge-federation"] > 100_000
    assert sum(counted.values()) < 100e6, counted


def test_serve_answers(board, digits, tmp_path):
    test = load_source("digits", split="test").subset(range(20))
    np.savez(tmp_path / "test.npz", images=test.images)
    words = ("serve", digits, "--port", "0", "--format", "json", "--quiet")
    command = [str(board / "edge-client"), *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            reported = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            with urlopen(
                reported["url"] + "/predict", (tmp_path / "test.npz").read_bytes(), timeout=60
            ) as answer:
                results = json.load(answer)["results"]
            with urlopen(reported["url"] + "/healthz", timeout=60) as answer:
                assert json.load(answer)["ready"]
        finally:
            process.terminate()
        assert process.wait(60) == 0
    right = sum(
        result["top"][0]["index"] == label for result, label in zip(results, test.labels, strict=True)
    )
    # The nearest mean image's correct results out of 20; 2 is chance.
    assert right > 14


def test_running_a_client_without_the_extra_reports_what_to_install(board, tmp_path):
    done = run(board / "edge-client", "run", "--state-dir", tmp_path / "state", "--once", cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert "edge-federation[client]" in done.stderr


@pytest.mark.parametrize("words", [("demo",), ("check", "fedavg")], ids=["demo", "check"])
def test_running_a_server_without_the_extra_reports_what_to_install(board, tmp_path, words):
    done = run(board / "edge-server", *words, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert "edge-federation[server]" in done.stderr
