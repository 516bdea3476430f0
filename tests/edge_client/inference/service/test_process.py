"""`edge-client serve` as a process: its imports, memory use and exit."""

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from PIL import Image

from edge_client.cli.main import main
from tests.edge_client.inference.test_onnx_model import BARE, ROOT, run_bare, write_model
from tests.edge_client.signed import STRANGER, public_file, sign_file

LIMIT_BYTES = 55e6


def write_two_nn(path: Path) -> Path:
    """A network like two-nn (1,663,370 parameters), built by hand, which is faster than an export."""
    rng = np.random.default_rng(0)

    def tensor(name: str, *shape: int) -> Any:
        return numpy_helper.from_array((rng.standard_normal(shape) / 30).astype(np.float32), name)

    weights = [
        tensor("w1", 32, 1, 5, 5),
        tensor("b1", 32),
        tensor("w2", 64, 32, 5, 5),
        tensor("b2", 64),
        tensor("w3", 512, 3136),
        tensor("b3", 512),
        tensor("w4", 10, 512),
        tensor("b4", 10),
    ]
    padded = {"pads": [2, 2, 2, 2], "kernel_shape": [5, 5]}
    pooled = {"kernel_shape": [2, 2], "strides": [2, 2]}
    layers = [
        helper.make_node("Conv", ["input", "w1", "b1"], ["c1"], **padded),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], **pooled),
        helper.make_node("Conv", ["p1", "w2", "b2"], ["c2"], **padded),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("MaxPool", ["r2"], ["p2"], **pooled),
        helper.make_node("Flatten", ["p2"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r3"]),
        helper.make_node("Gemm", ["r3", "w4", "b4"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        layers,
        "two-nn",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, 28, 28])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )
    assert sum(int(np.prod(weight.dims)) for weight in weights) == 1_663_370
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(model, {"input.shape": "[1, 28, 28]"})
    save(model, str(path))
    return path


@contextmanager
def serving(*words: object, log: Path) -> Iterator[tuple[subprocess.Popen[str], http.client.HTTPConnection]]:
    """`edge-client serve` with the base install alone."""
    command = [sys.executable, "-c", BARE, "serve", *map(str, words), "--port", "0", "--format", "json"]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        printed = "".join(iter(process.stdout.readline, "}\n"))
        port = int(json.loads(printed + "}")["url"].rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        yield process, connection
        connection.close()
    finally:
        process.kill()
        process.wait(60)


def post(connection: http.client.HTTPConnection, body: bytes) -> tuple[int, Any]:
    connection.request("POST", "/predict", body)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def own_memory(process: subprocess.Popen[str], connection: http.client.HTTPConnection) -> float:
    """The bytes that are of no file: how many pages of libraries are mapped is up to the system."""
    connection.request("GET", "/metrics")
    resident = re.search(
        rb"^process_resident_memory_bytes (\S+)", connection.getresponse().read(), re.MULTILINE
    )
    own = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert resident is not None
    assert own is not None
    assert float(resident[1]) < 2 * LIMIT_BYTES
    return 1024 * float(own[1])


def test_serving_two_nn_needs_less_than_55_mb_of_its_own_and_only_the_base_install(tmp_path: Path) -> None:
    Image.fromarray(np.arange(784, dtype=np.uint8).reshape(28, 28)).save(tmp_path / "a.png")
    path = write_two_nn(tmp_path / "model.onnx")
    with serving(path, "--poll-s", "0.05", log=tmp_path / "log") as (process, connection):
        body = (tmp_path / "a.png").read_bytes()

        def ask(_: int) -> None:
            with closing(http.client.HTTPConnection("127.0.0.1", connection.port, timeout=60)) as own:
                for _ in range(10):
                    status, answer = post(own, body)
                    assert status == 200
                    assert len(answer["results"][0]["top"]) == 1

        with ThreadPoolExecutor(8) as devices:
            list(devices.map(ask, range(8)))
        # Freed memory is returned after the next check.
        least = min(own_memory(process, connection) for _ in range(200))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert least < LIMIT_BYTES, f"{least / 1e6:.1f} MB"


def test_serving_imports_tls_only_when_needed() -> None:
    code = """
import sys
from edge_client.cli.commands.serve import _import_http
_import_http()
assert "http.server" in sys.modules and "ssl" not in sys.modules
import ssl
ssl.create_default_context()
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_a_bad_model_is_logged_in_one_line_and_the_old_one_stays_in_use(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.onnx")
    sign_file(path)
    key = public_file(tmp_path / "signing.pub")
    with serving(path, "--trust", key, "--poll-s", "60", log=tmp_path / "log") as (process, connection):
        before = post(connection, b'{"pixels": [[0, 9, 0]]}')
        assert before[0] == 200
        (tmp_path / "next").write_bytes(b"no model")
        (tmp_path / "next").replace(path)
        sign_file(path, STRANGER)
        process.send_signal(signal.SIGHUP)
        for _ in range(2000):
            connection.request("GET", "/healthz")
            health = json.loads(connection.getresponse().read())
            if health["trouble"]:
                break
        assert "is not trusted" in health["trouble"]
        assert post(connection, b'{"pixels": [[0, 9, 0]]}') == before
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    (line,) = [line for line in (tmp_path / "log").read_text().splitlines() if "WARNING" in line]
    assert "still serving model.onnx: " in line


def placed(folder: Path, words: tuple[str, ...]) -> list[str]:
    """The arguments, with existing files."""
    write_model(folder / "good.onnx")
    (folder / "bad.onnx").write_bytes(b"no model")
    public_file(folder / "signing.pub")
    named = [str(folder / word) if word.endswith((".onnx", ".pub")) else word for word in words]
    return ["serve", *named, "--port", "0", "--quiet"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("bad.onnx",), "is not an ONNX model"),
        (("no.onnx",), "cannot read"),
        ((), "either MODEL.onnx or --state-dir"),
        (("good.onnx", "--state-dir", "."), "either MODEL.onnx or --state-dir"),
        (("--state-dir", "nowhere"), "there is no such folder"),
        (("good.onnx", "--trust", "signing.pub"), "no signed manifest"),
        (("good.onnx", "--host", "203.0.113.7"), "cannot listen at 203.0.113.7"),
        (("good.onnx", "--broker", "x://y"), "unknown scheme"),
        (("good.onnx", "--broker", "mqtt://y", "--device-id", "a/b"), "--device-id 'a/b'"),
    ],
)
def test_bad_arguments_give_one_line_and_exit_code_2(
    tmp_path: Path, words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(placed(tmp_path, words)) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("edge-client: ")
    assert why in line
    assert captured.out == ""


def test_the_mqtt_channel_names_the_missing_package(tmp_path: Path) -> None:
    done = run_bare(*placed(tmp_path, ("good.onnx", "--broker", "mqtt://127.0.0.1")))
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'edge-federation[mqtt]'" in done.stderr
    assert "Traceback" not in done.stderr
