"""How long the import of a device takes before it has anything to train: what a board waits for.

A fresh interpreter that imports what `edge-client run` does, against one that imports nothing. Both find
their modules compiled, as they are where the package is installed: the first import, which is not counted,
leaves the bytecode in a folder that goes with the benchmark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from tests.benchmarks.figure import Figure

TARGET_S = 0.3
CLIENT = "import edge_client.commands.run, edge_client.agent, edge_client.profile"


def import_figure(times: int) -> Figure:
    """Seconds beyond those of the bare interpreter, in turns with it; torch must not be imported."""
    with tempfile.TemporaryDirectory(prefix="bytecode-") as bytecode:
        compiled = _compiled(bytecode)
        _seconds(CLIENT, compiled)
        pairs = [(_seconds("pass", compiled), _seconds(CLIENT, compiled)) for _ in range(times)]
    torch = _imports_torch()
    return Figure(
        "overhead",
        "import of the client without training",
        "s",
        tuple(ours - bare for bare, ours in pairs),
        target=TARGET_S,
        detail=f"beyond a bare interpreter ({min(bare for bare, _ in pairs):.3f} s); torch is "
        f"{'IMPORTED' if torch else 'not imported'}",
        reason="pydantic and paho alone are two thirds of it, classes of messages and events come next",
        raw={"pairs": pairs, "imports_torch": torch},
    )


def _compiled(folder: str) -> dict[str, str]:
    """The environment of an interpreter that keeps its bytecode there, whatever ours does with its own."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder}


def _seconds(code: str, environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - started


def _imports_torch() -> bool:
    code = f"{CLIENT}, sys; print('torch' in sys.modules)"
    return "True" in subprocess.check_output([sys.executable, "-c", code], text=True)
