"""Running models with onnxruntime alone; the models are built by hand."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from edge_client.cli.main import main
from edge_client.inference.benchmark import BenchResult, bench, collect, resident_bytes, thread_counts
from edge_client.inference.onnx_model import LoadedModel, load_model
from edge_client.inference.queries import read_image
from schemas.errors import ConfigError, EdgeError
from schemas.values import Preprocessing

ROOT = Path(__file__).parents[3]

BARE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "torchvision", "onnx", "onnxscript", "rich", "paho", "ALSO"}:
            raise ModuleNotFoundError(f"{name} is not installed here")
sys.meta_path.insert(0, Absent())
from edge_client.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""`edge-client` on a board that only infers: heavier packages cannot be imported."""


def write_model(
    path: Path, *, shape: tuple[int | str, ...] = (1, 1, 3), metadata: dict[str, str] | None = None
) -> Path:
    """Write a model that returns its inputs as logits (one Flatten)."""
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["y"])],
        "flatten",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "classes"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    default = {
        "input.shape": json.dumps(list(shape)),
        "preprocessing": '{"scale": 1.0}',
        "class_names": '["ant", "bee", "cat"]',
        "fl.tier": "2",
    }
    helper.set_model_props(model, default if metadata is None else metadata)
    onnx.save(model, str(path))
    return path


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.onnx")


def run_bare(*arguments: object, without: str = "") -> subprocess.CompletedProcess[str]:
    """Run `edge-client`; the package `without` cannot be imported either."""
    command = [sys.executable, "-c", BARE.replace("ALSO", without), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)


def test_metadata_describes_how_to_use_the_model(model_path: Path) -> None:
    model = load_model(model_path, threads=1)
    assert model.input_shape == (1, 1, 3)
    assert model.preprocessing.scale == 1.0
    assert model.provenance == {"tier": "2"}
    assert [model.class_name(index) for index in (0, 2, 3)] == ["ant", "cat", "3"]


def test_probabilities_by_hand(model_path: Path) -> None:
    # Logits ln 1, ln 2, ln 5 are probabilities 1/8, 2/8, 5/8, also with 1000 added to each.
    images = np.log(np.array([1, 2, 5], np.float32)).reshape(1, 1, 1, 3)
    both = np.concatenate([images, images + 1000])
    probabilities = load_model(model_path).predict(both)
    np.testing.assert_allclose(probabilities, [[0.125, 0.25, 0.625]] * 2, rtol=1e-3)


def test_predictions_do_not_depend_on_the_batch_size(model_path: Path) -> None:
    images = np.random.default_rng(0).random((7, 1, 1, 3), dtype=np.float32)
    model = load_model(model_path)
    for batch_size in (1, 3, 7):
        np.testing.assert_allclose(
            model.predict(images, batch_size=batch_size), model.predict(images), rtol=1e-6
        )


def test_classes_are_ranked_best_first(model_path: Path) -> None:
    model = load_model(model_path)
    ranked = model.rank(model.predict(np.array([[[[1, 3, 2]]]], np.uint8))[0], top=2)
    assert [entry.name for entry in ranked] == ["bee", "cat"]
    assert ranked[0].index == 1
    assert ranked[0].probability > ranked[1].probability


def test_accuracy_by_hand(model_path: Path) -> None:
    model = load_model(model_path)
    images = np.eye(3, dtype=np.float32).reshape(3, 1, 1, 3)
    assert model.accuracy(images, np.array([0, 1, 1])) == pytest.approx(2 / 3)
    assert model.accuracy(images[:0], np.zeros(0, np.int64)) is None


def test_wrong_shapes_are_refused(model_path: Path) -> None:
    with pytest.raises(ConfigError, match="takes images of 1x1x3, got 3x1x1"):
        load_model(model_path).predict(np.zeros((1, 3, 1, 1), np.uint8))


def test_foreign_models_work_without_metadata(tmp_path: Path) -> None:
    model = load_model(write_model(tmp_path / "foreign.onnx", metadata={}))
    assert model.input_shape == (1, 1, 3)
    assert model.preprocessing.scale == 255.0
    assert model.class_name(1) == "1"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"input.shape": "[]"}, "is not fixed"),
        ({"input.shape": "x"}, "does not say how to use it"),
        ({"preprocessing": '{"scale": 0}'}, "does not say how to use it"),
        ({"preprocessing": "[]"}, "does not say how to use it"),
        ({"class_names": "3"}, "does not say how to use it"),
    ],
)
def test_broken_metadata_gives_a_one_line_error(
    tmp_path: Path, metadata: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_model(write_model(tmp_path / "model.onnx", metadata=metadata))
    assert "\n" not in str(caught.value)


def test_models_without_a_fixed_input_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not fixed"):
        load_model(write_model(tmp_path / "any.onnx", shape=(1, "height", "width"), metadata={}))


@pytest.mark.parametrize("damage", [b"", b"\x08", b"no model at all", None])
def test_damaged_files_give_a_one_line_error(model_path: Path, damage: bytes | None) -> None:
    data = model_path.read_bytes()
    model_path.write_bytes(data[: len(data) // 2] if damage is None else damage)
    with pytest.raises(ConfigError, match="is not an ONNX model") as caught:
        load_model(model_path)
    assert "\n" not in str(caught.value)
    assert "/proc/" not in str(caught.value)


def test_missing_files_give_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*No such file"):
        load_model(tmp_path / "no.onnx")
    with pytest.raises(ConfigError, match=r"cannot read .*Is a directory"):
        load_model(tmp_path)


def test_images_are_converted_for_the_model(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 2), (255, 255, 255, 255)).save(tmp_path / "a.png")
    read = read_image(tmp_path / "a.png", (1, 2, 4))
    assert (read.pixels.shape, read.pixels.dtype, read.notes) == ((1, 2, 4), np.uint8, ())
    assert (read.pixels == 255).all()
    Image.new("L", (8, 8), 51).save(tmp_path / "b.png")
    read = read_image(tmp_path / "b.png", (3, 2, 4), Preprocessing(scale=16.0))
    assert (read.pixels.shape, read.notes) == ((3, 2, 4), ("resized from 8x8 to 4x2",))
    # 51 of 255 is a fifth, and so is 3.2 of 16.
    np.testing.assert_allclose(read.pixels, 3.2, rtol=1e-6)


def test_unreadable_images_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    for path, shape in (
        (tmp_path / "a.png", (1, 2, 4)),
        (tmp_path / "no.png", (1, 2, 4)),
        (tmp_path / "a.png", (5,)),
    ):
        with pytest.raises(ConfigError, match=r"\.png"):
            read_image(path, shape)


def test_thread_counts_double() -> None:
    assert [thread_counts(most) for most in (1, 2, 3, 4, 6)] == [
        (1,),
        (1, 2),
        (1, 2, 3),
        (1, 2, 4),
        (1, 2, 4, 6),
    ]


def test_bench_measures(model_path: Path) -> None:
    results = list(bench(model_path, max_threads=2, seconds=0.05))
    assert [result.threads for result in results] == [1, 2]
    for result in results:
        assert 0 < result.median_ms <= result.p95_ms
        assert result.images_per_second > 0
        assert result.runs > 0
        assert 1e6 < result.rss_bytes < 1e10
    assert resident_bytes() > 1e6


def test_infer_needs_no_torch_and_no_onnx(model_path: Path, tmp_path: Path) -> None:
    Image.new("L", (3, 1), 0).save(tmp_path / "dark.png")
    np.savez(
        tmp_path / "set.npz", images=np.eye(3, dtype=np.float32).reshape(3, 1, 3), labels=np.array([0, 1, 1])
    )
    done = run_bare(
        "infer", model_path, tmp_path / "dark.png", tmp_path / "set.npz", "--top", 3, "--format", "json"
    )
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["provenance"] == {"tier": "2"}
    assert [result["top"][0]["name"] for result in document["results"][1:]] == ["ant", "bee", "cat"]
    assert [entry["probability"] for entry in document["results"][0]["top"]] == pytest.approx([1 / 3] * 3)
    assert (document["labelled"], document["accuracy"]) == (3, pytest.approx(2 / 3))


@pytest.mark.parametrize("command", ["bench", "infer"])
def test_a_tensor_larger_than_the_memory_is_said_in_one_line(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Larger than an address space, so that no system promises the memory.
    model = write_model(tmp_path / "huge.onnx", shape=(1, 10**7, 10**7) if command == "bench" else (1, 1, 3))
    if command == "infer":
        monkeypatch.setattr(LoadedModel, "run", lambda *_: np.empty((10**7, 10**8, 10**3), np.float32))
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 1, 3), np.float32))

    assert main([command, str(model), *([str(tmp_path / "x.npy")] if command == "infer" else [])]) == 2
    assert "needs more memory than this machine has free" in capsys.readouterr().err


def test_what_bench_has_measured_is_printed_when_the_next_result_never_comes(
    model_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = BenchResult(1, 7, 1.0, 2.0, 3.0, 4)

    def measured(*_: object, **__: object) -> Iterator[BenchResult]:
        yield one
        never.wait()

    never = threading.Event()
    monkeypatch.setattr("edge_client.inference.benchmark.bench", measured)
    try:
        assert main(["bench", str(model_path), "--deadline", "0.5", "--format", "json"]) == 1
    finally:
        never.set()
    told = capsys.readouterr()
    assert json.loads(told.out)["results"] == [asdict(one)]
    assert "not measured within 0.5 s: --deadline waits longer" in told.err


def test_ctrl_c_prints_what_bench_has_measured(
    model_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(*_: object, **__: object) -> Iterator[BenchResult]:
        yield BenchResult(1, 7, 1.0, 2.0, 3.0, 4)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        never.wait()

    never, before = threading.Event(), signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr("edge_client.inference.benchmark.bench", measured)
    try:
        assert main(["bench", str(model_path)]) == 130
    finally:
        never.set()
        signal.signal(signal.SIGINT, before)
    assert "1.000" in capsys.readouterr().out


def test_the_thread_that_measures_ends_before_the_interpreter_does() -> None:
    def measured() -> Iterator[BenchResult]:
        try:
            while True:
                time.sleep(0)
        finally:
            ended.set()
        yield

    ended = threading.Event()
    with pytest.raises(EdgeError, match="not measured within"):
        collect(measured(), [], 0.1)
    assert ended.is_set()


def test_bench_needs_no_torch_and_no_onnx(model_path: Path) -> None:
    done = run_bare("bench", model_path, "--threads", 1, "--seconds", 0.05, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    (result,) = json.loads(done.stdout)["results"]
    assert result["threads"] == 1
    assert result["median_ms"] > 0


def test_a_bare_board_reports_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model at all")
    done = run_bare("infer", tmp_path / "bad.onnx", "x.png")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "is not an ONNX model" in done.stderr
