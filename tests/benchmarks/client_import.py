"""How long the import of a device takes before it has anything to train: what a board waits for.

A fresh interpreter that imports what `edge-client run` does, against one that imports nothing.
"""

from __future__ import annotations

import subprocess
import sys
import time

from tests.benchmarks.figure import Figure

TARGET_S = 0.3
CLIENT = "import edge_client.commands.run, edge_client.agent, edge_client.profile"


def import_figure(times: int) -> Figure:
    """Seconds beyond those of the bare interpreter, in turns with it; torch must not be imported."""
    _seconds(CLIENT)
    pairs = [(_seconds("pass"), _seconds(CLIENT)) for _ in range(times)]
    torch = _imports_torch()
    return Figure(
        "overhead",
        "import of the client without training",
        "s",
        tuple(ours - bare for bare, ours in pairs),
        target=TARGET_S,
        detail=f"beyond a bare interpreter ({min(bare for bare, _ in pairs):.3f} s); torch is "
        f"{'IMPORTED' if torch else 'not imported'}",
        reason="numpy, pydantic and its classes of all messages are most of it (python -X importtime)",
        raw={"pairs": pairs, "imports_torch": torch},
    )


def _seconds(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - started


def _imports_torch() -> bool:
    code = f"{CLIENT}, sys; print('torch' in sys.modules)"
    return "True" in subprocess.check_output([sys.executable, "-c", code], text=True)
