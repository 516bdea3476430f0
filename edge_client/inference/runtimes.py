"""Other runtimes that an exported file is for: how each loads and runs it, and the form that it takes.

A runtime is imported when it is asked for. `RUNTIMES` has them by name.
"""

import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.inference.providers.table import CPU
from edge_client.models.graphs.boxes import without_boxes
from schemas.errors import ConfigError, nearest

Numbers = NDArray[np.float32]
Run = Callable[[Numbers], Sequence[NDArray[Any]]]
"""What the file gives for inputs [N, ...]: first `logits` [N, L], of a detector then its boxes."""
Shape = tuple[int, ...]

INPUT, OUTPUT = "input", "logits"  # the names in an exported file
TOLERANCE = 1e-4  # of outputs, absolute up to 1 and relative above
MAX_SHOWN = 200  # characters of a converter's last line


@dataclass(frozen=True)
class Runtime:
    """One runtime: `load(file)` gives what runs the file that `convert(model, shape, file)` has written.

    Without `convert` it reads the ONNX file itself. `suffix` is that of the file; `module` is imported,
    `packages` are what pip installs for it. What does not read boxes takes a detector's network alone.
    """

    title: str
    packages: tuple[str, ...]
    module: str
    suffix: str
    load: Callable[[Path], Run]
    convert: Callable[[Path, Shape, Path], None] | None = None
    reads_int8: bool = False
    reads_boxes: bool = False

    def check_installed(self) -> None:
        """Raise `ConfigError` with the command that installs it."""
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            raise ConfigError(
                f"{self.title} is not installed", remedy=f"pip install {' '.join(self.packages)}"
            ) from error


def find_runtime(name: str) -> Runtime:
    """The runtime of that name; `ConfigError` for another one."""
    if name not in RUNTIMES:
        raise ConfigError(f"unknown runtime {name!r}{nearest(name, RUNTIMES)}")
    return RUNTIMES[name]


@contextlib.contextmanager
def run_elsewhere(name: str, model: Path, shape: Shape, folder: Path | None = None) -> Iterator[Run]:
    """What runs the ONNX file `model` for examples of `shape` in the runtime of that name.

    What the runtime takes is written into `folder`, by default one for the time being. Raises `ConfigError`
    if the runtime is missing, or cannot read the file.
    """
    runtime = find_runtime(name)
    with tempfile.TemporaryDirectory(prefix="edge-runtime-") as usual:
        path = (folder or Path(usual)) / f"{model.stem}{runtime.suffix}"
        convert_model(runtime, model, shape, path)
        with refused_in_one_line(runtime, model):
            run = runtime.load(path)
        yield run


def check_form(runtime: Runtime, model: Path) -> None:
    """Raise `ConfigError` for a file of 8-bit integers that the runtime does not compute rightly."""
    if not runtime.reads_int8 and b"DequantizeLinear" in model.read_bytes():
        raise ConfigError(
            f"{model.name} has 8-bit integers, which {runtime.title} does not compute rightly",
            remedy="take the export of 32 bits: the server's, or a device's model.fp32.onnx beside it",
        )


def convert_model(runtime: Runtime, model: Path, shape: Shape, target: Path) -> None:
    """Write the file of an ONNX file that `runtime` takes; raises `ConfigError`."""
    runtime.check_installed()
    check_form(runtime, model)
    data = model.read_bytes() if runtime.reads_boxes else without_boxes(model.read_bytes())
    # A converter may leave files beside the one that it reads.
    with refused_in_one_line(runtime, model), tempfile.TemporaryDirectory(prefix="edge-runtime-") as folder:
        source = Path(folder) / model.name
        source.write_bytes(data)
        if runtime.convert is None:
            target.write_bytes(data)
        else:
            runtime.convert(source, shape, target.resolve())


class RuntimeSession:
    """What `LoadedModel` runs, in another runtime beside onnxruntime, and how far they are apart.

    Raises `ConfigError` for what the runtime cannot run.
    """

    def __init__(self, runtime: Runtime, run: Run, beside: Any, model: Path) -> None:
        self._runtime, self._run, self._beside, self._model = runtime, run, beside, model
        self.apart = 0.0

    def run(self, names: Any, inputs: Mapping[str, Numbers]) -> list[Numbers]:
        (given,) = inputs.values()
        with refused_in_one_line(self._runtime, self._model):
            answer, *_ = self._run(given)
        self.apart = max(self.apart, difference(answer, self._beside.run(names, inputs)[0]))
        return [answer]

    def get_inputs(self) -> Any:
        return self._beside.get_inputs()


@contextlib.contextmanager
def session_elsewhere(
    name: str, model: Path, shape: Shape, beside: Any, folder: Path | None = None
) -> Iterator[RuntimeSession]:
    """A session of the runtime of that name, compared with onnxruntime's: see `run_elsewhere`."""
    with run_elsewhere(name, model, shape, folder) as run:
        yield RuntimeSession(RUNTIMES[name], run, beside, model)


def compare_elsewhere(name: str, model: Path, inputs: Numbers, beside: Any, folder: Path) -> float:
    """How far a runtime's answers for inputs [N, ...] are from onnxruntime's, for one and for all.

    What it takes stays in `folder`.
    """
    with session_elsewhere(name, model, inputs.shape[1:], beside, folder) as session:
        for batch in (1, len(inputs)):
            session.run(None, {session.get_inputs()[0].name: inputs[:batch]})
    return session.apart


def difference(computed: Numbers, expected: Numbers) -> float:
    """The largest difference, absolute for outputs up to 1 and relative above; infinite for other shapes."""
    if computed.shape != expected.shape or not np.isfinite(computed).all():
        return float("inf")
    return float(np.abs(computed - expected).max() / max(1.0, float(np.abs(expected).max())))


@contextlib.contextmanager
def refused_in_one_line(runtime: Runtime, model: Path) -> Iterator[None]:
    """Turn whatever a runtime raises into a `ConfigError`."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # each has classes of its own
        why = " ".join(str(error).split())[:MAX_SHOWN] or type(error).__name__
        raise ConfigError(f"{runtime.title} does not read {model.name}: {why}") from error


def _load_onnxruntime(path: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of a detector's thresholds, which are inputs with defaults
    session = onnxruntime.InferenceSession(str(path), options, providers=[CPU.runtime_name])
    name = session.get_inputs()[0].name
    return lambda inputs: session.run(None, {name: inputs})


def _load_openvino(path: Path) -> Run:
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32"}  # unasked it may be bfloat16, 1e-3 off
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    return lambda inputs: [np.array(output) for output in compiled([inputs]).values()]


def _load_opencv(path: Path) -> Run:
    import cv2

    network = cv2.dnn.readNetFromONNX(str(path))

    def run(inputs: Numbers) -> list[Numbers]:
        network.setInput(np.ascontiguousarray(inputs))
        return [np.array(network.forward())]

    return run


def _convert_mnn(model: Path, shape: Shape, target: Path) -> None:
    # The converter itself: the command `mnnconvert` around it installs a package with the first pip that it
    # finds, and reports the machine and the file to a service.
    code = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
    words = ("-f", "ONNX", "--modelFile", model, "--MNNModel", target, "--bizCode", "edge")
    _call([sys.executable, "-c", code, *map(str, words)], target)


def _load_mnn(path: Path) -> Run:
    import MNN.expr as expr
    import MNN.nn as network

    config = {"precision": "high", "backend": "CPU", "numThread": 1}
    manager = network.create_runtime_manager((config,))
    module = network.load_module_from_file(str(path), [INPUT], [OUTPUT], runtime_manager=manager)

    def run(inputs: Numbers) -> list[Numbers]:
        given = expr.const(inputs, list(inputs.shape), expr.data_format.NCHW, expr.dtype.float)
        answer = module.forward([given])[0]
        return [np.array(expr.convert(answer, expr.data_format.NCHW).read()).reshape(answer.shape)]

    return run


def _convert_ncnn(model: Path, shape: Shape, target: Path) -> None:
    import pnnx

    sizes = ",".join(map(str, (1, *shape)))
    weights = target.with_suffix(".bin")
    others = [f"{key}={os.devnull}" for key in ("pnnxparam", "pnnxbin", "pnnxpy", "ncnnpy")]
    # Unless told otherwise it writes weights of 16 bits.
    words = [f"inputshape=[{sizes}]", "fp16=0", f"ncnnparam={target}", f"ncnnbin={weights}", *others]
    _call([pnnx.EXEC_PATH, str(model), *words], target, weights)


def _load_ncnn(path: Path) -> Run:
    import ncnn

    network = ncnn.Net()
    for option in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
        if hasattr(network.opt, option):
            setattr(network.opt, option, False)
    network.opt.num_threads = 1
    network.load_param(str(path))
    network.load_model(str(path.with_suffix(".bin")))
    first, last = network.input_names()[0], network.output_names()[0]

    def run(inputs: Numbers) -> list[Numbers]:
        answers = []
        for example in inputs:  # a network there takes one example
            extractor = network.create_extractor()
            extractor.input(first, ncnn.Mat(np.ascontiguousarray(example)).clone())
            answers.append(np.array(extractor.extract(last)[1]).reshape(-1))
        return [np.stack(answers)]

    return run


def _load_tvm(path: Path) -> Run:
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    # The package comes with this runtime alone: who only infers has none.
    onnx: Any = importlib.import_module("onnx")
    built = relax.build(from_onnx(onnx.load(str(path)), keep_params_in_input=False), target="llvm")
    machine, device = relax.VirtualMachine(built, tvm.cpu()), tvm.cpu()

    def run(inputs: Numbers) -> list[Numbers]:
        answer: Any = machine["main"](tvm.runtime.tensor(inputs, device))
        return [np.array((answer if hasattr(answer, "numpy") else answer[0]).numpy())]

    return run


def _convert_litert(model: Path, shape: Shape, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="edge-runtime-") as folder:
        keep = ["-kat", INPUT]  # the axes stay as they are, [N, C, H, W]
        command = [sys.executable, "-m", "onnx2tf", "-i", str(model), "-o", folder, "-osd", "-n", *keep]
        written = Path(folder) / f"{model.stem}_float32.tflite"
        _call(command, written)
        target.write_bytes(written.read_bytes())


def _load_litert(path: Path) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)

    def run(inputs: Numbers) -> list[Numbers]:
        place = interpreter.get_input_details()[0]["index"]
        interpreter.resize_tensor_input(place, inputs.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(place, inputs)
        interpreter.invoke()
        return [np.array(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))]

    return run


def _call(command: list[str], *written: Path) -> None:
    """Run a converter, which shall have written these files; raises `ConfigError` with its last line."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode or not all(path.exists() for path in written):
        last = (done.stdout.strip().splitlines() or ["no message"])[-1][:MAX_SHOWN]
        ended = f"ended with {done.returncode}" if done.returncode else "wrote no file"
        raise ConfigError(f"the converter {ended}: {last}")


RUNTIMES: dict[str, Runtime] = {
    "onnxruntime": Runtime(
        "onnxruntime", ("onnxruntime",), "onnxruntime", ".onnx", _load_onnxruntime,
        reads_int8=True, reads_boxes=True,
    ),
    "openvino": Runtime(
        "OpenVINO", ("openvino",), "openvino", ".onnx", _load_openvino, reads_int8=True, reads_boxes=True
    ),
    "opencv": Runtime("OpenCV", ("opencv-python-headless",), "cv2", ".onnx", _load_opencv),
    "mnn": Runtime("MNN", ("MNN",), "MNN", ".mnn", _load_mnn, _convert_mnn),
    "ncnn": Runtime("ncnn", ("ncnn", "pnnx"), "ncnn", ".param", _load_ncnn, _convert_ncnn),
    "tvm": Runtime("TVM", ("apache-tvm", "onnx"), "tvm", ".onnx", _load_tvm),
    "litert": Runtime(
        "LiteRT", ("onnx2tf", "ai-edge-litert"), "ai_edge_litert", ".tflite", _load_litert, _convert_litert
    ),
}  # fmt: skip
