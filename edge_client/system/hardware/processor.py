"""The processor: its name, its cores, its architecture."""

import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from edge_client.system.hardware.sysfs import MAX_NAME, ROOT, name, text


@dataclass(frozen=True)
class Pressure:
    """Share of the last ten seconds, 0 to 1, in which `some` tasks, or all, waited."""

    some: float
    full: float


def read_load(root: Path = ROOT) -> float | None:
    """Tasks that run or wait to run, averaged over the last minute."""
    words = text(root / "proc/loadavg").split()
    return _number(words[0]) if words else None


def pressure(resource: str = "memory", root: Path = ROOT) -> Pressure | None:
    """The machine's pressure on `memory`, `cpu` or `io`; None if the kernel does not report it.

    Linux, Documentation/accounting/psi: lines like `some avg10=0.12 avg60=0.05 avg300=0.01 total=123`.
    """
    shares = {}
    for line in text(root / "proc/pressure" / resource).splitlines():
        kind, *values = line.split() or [""]
        for value in values:
            if value.startswith("avg10="):
                shares[kind] = _number(value.removeprefix("avg10="))
    some = shares.get("some")
    return None if some is None else Pressure(some / 100, (shares.get("full") or 0.0) / 100)


def _number(word: str) -> float | None:
    """The number in the text, if it is 0 or more."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None


@dataclass(frozen=True)
class Processor:
    """`cores` are those that this process may use; `board` is an Arm board's name, `model` the chip's."""

    model: str
    board: str | None
    cores: int
    architecture: str


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor(root: Path = ROOT) -> Processor:
    keys = _keys(root)
    return Processor(
        model=(keys.get("model name") or keys.get("Hardware") or platform.processor())[:MAX_NAME],
        board=name(root / "proc/device-tree/model") or keys.get("Model"),
        cores=usable_cores(),
        architecture=platform.machine(),
    )


def saturates_bytes(root: Path = ROOT) -> bool:
    """Whether onnxruntime's sums of products of 8 bits overflow here: on x86 without VNNI.

    AVX2 adds pairs of products in 16 bits (onnxruntime, Quantize ONNX Models: "reduce_range").
    """
    flags = set(_keys(root).get("flags", "").split())
    return "avx2" in flags and not flags & {"avx512_vnni", "avx_vnni"}


def _keys(root: Path) -> dict[str, str]:
    """The last value of each key of `/proc/cpuinfo`."""
    pairs = (line.partition(":") for line in text(root / "proc/cpuinfo").splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon and value.isprintable()}
