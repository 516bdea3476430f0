"""Providers that misbehave, in front of the real onnxruntime: each computes with the CPU, and then spoils it.

The process of a trial imports it in place of onnxruntime (`conftest.py` puts it on the path), so that the
product knows nothing of it. Answers to inputs that were seen before come at once: a fast provider.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

    def run(self, names: Any, inputs: dict[str, Any]) -> list[Any]:
        key = b"".join(array.tobytes() for array in inputs.values())
        if key not in self._kept:
            self._kept[key] = self._session.run(names, inputs)
        return self._spoil(self._kept[key])


def _lie(outputs: list[Any]) -> list[Any]:
    """The right shape, and wrong numbers."""
    return [outputs[0] * 1.01 + 0.01, *outputs[1:]]


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
