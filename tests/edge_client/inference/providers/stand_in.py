"""Providers that misbehave, in front of the real onnxruntime: each computes with the CPU, and then spoils it.

The process of a trial imports it in place of onnxruntime (`conftest.py` puts it on the path), so that the
product knows nothing of it. Answers to inputs that were seen before come at once: a fast provider.
"""

import ctypes
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

OFFERED, FLAG = "STAND_INS", "STAND_IN_FLAG"  # variables: names of providers; a file that makes one fail
HANGS = "hangs"  # the content with which it does not even do that


class Spoiled:
    """A session with the CPU's answers to inputs, kept by their bytes, each passed through `spoil`."""

    def __init__(self, name: str, session: Any, spoil: Callable[[list[Any]], list[Any]]) -> None:
        self._name, self._session, self._spoil = name, session, spoil
        self._kept: dict[bytes, list[Any]] = {}

    def get_providers(self) -> list[str]:
        return [self._name, "CPUExecutionProvider"]

    def get_inputs(self) -> Any:
        return self._session.get_inputs()

    def get_modelmeta(self) -> Any:
        return self._session.get_modelmeta()

    def get_outputs(self) -> Any:
        return self._session.get_outputs()

    def run(self, names: Any, inputs: dict[str, Any]) -> list[Any]:
        key = b"".join(array.tobytes() for array in inputs.values())
        if key not in self._kept:
            self._kept[key] = self._session.run(names, inputs)
        return self._spoil(self._kept[key])

    def io_binding(self) -> "Binding":
        return Binding(self._session.io_binding())

    def run_with_iobinding(self, binding: "Binding") -> None:
        key = b"".join(array.tobytes() for _, array in sorted(binding.inputs.items()))
        if key not in self._kept:
            self._session.run_with_iobinding(binding.real)
            self._kept[key] = [array.copy() for array in binding.outputs.values()]
        spoiled = self._spoil(self._kept[key])
        for array, found in zip(binding.outputs.values(), spoiled, strict=False):
            array[...] = found


class Binding:
    """onnxruntime's binding, and the arrays that are bound to it by name."""

    def __init__(self, real: Any) -> None:
        self.real, self.inputs, self.outputs = real, dict[str, Any](), dict[str, Any]()

    def bind_input(self, name: str, *where: Any) -> None:
        self.inputs[name] = _bound_array(*where)
        self.real.bind_input(name, *where)

    def bind_output(self, name: str, *where: Any) -> None:
        self.outputs[name] = _bound_array(*where)
        self.real.bind_output(name, *where)


def _bound_array(kind: str, number: int, dtype: Any, shape: Sequence[int], address: int) -> Any:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape)


def _lie(outputs: list[Any]) -> list[Any]:
    """The right shape, and wrong numbers."""
    return [output * 1.01 + 0.01 for output in outputs]


def _crash(outputs: list[Any]) -> list[Any]:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError("unreachable")


def _hang(outputs: list[Any]) -> list[Any]:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    while True:
        time.sleep(60)


def _fail_later(outputs: list[Any]) -> list[Any]:
    flag = Path(os.environ[FLAG])
    if not flag.exists():
        return outputs
    if flag.read_text() == HANGS:
        threading.Event().wait()
    raise RuntimeError("the device is gone")


def _change_shape(outputs: list[Any]) -> list[Any]:
    return [outputs[0][:, :-1]]


def _slow_down(outputs: list[Any]) -> list[Any]:
    time.sleep(0.02)
    return outputs


STAND_INS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "XnnpackExecutionProvider": _lie,
    "ACLExecutionProvider": _crash,
    "QNNExecutionProvider": _hang,
    "CUDAExecutionProvider": _fail_later,
    "CoreMLExecutionProvider": _change_shape,
    "OpenVINOExecutionProvider": _slow_down,
}
"""What each does; another provider cannot start, and onnxruntime takes the CPU."""


def flag() -> str:
    return os.environ[FLAG]


def offered() -> list[str]:
    return [*filter(None, os.environ.get(OFFERED, "").split(",")), "CPUExecutionProvider"]


def make_opener(real: Callable[..., Any]) -> Callable[..., Any]:
    """`onnxruntime.InferenceSession` with the stand-ins."""

    def open_session(source: Any, options: Any = None, providers: Any = (), **more: Any) -> Any:
        first = providers[0] if providers else "CPUExecutionProvider"
        name = first if isinstance(first, str) else first[0]
        session = real(source, options, providers=["CPUExecutionProvider"])
        return Spoiled(name, session, STAND_INS[name]) if name in STAND_INS else session

    return open_session
