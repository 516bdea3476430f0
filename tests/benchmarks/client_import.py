"""How long the import of a device takes before it has anything to train: what a board waits for.

A fresh interpreter that imports what `edge-client run` does, against one that imports nothing, in turns; and
one that imports paho and pydantic alone: below that no device comes that speaks MQTT in checked messages. All
find their modules compiled, as they are where the package is installed: the first import, which is not
counted, leaves the bytecode in a folder that goes with the benchmark.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

from tests.benchmarks.figure import Figure

TARGET_S = 0.3
CLIENT = "import edge_client.commands.run, edge_client.agent, edge_client.profile"
FLOOR = "import paho.mqtt.client, pydantic; pydantic.BaseModel, pydantic.TypeAdapter"
"""What pydantic offers it imports when it is asked for."""


def import_figure(times: int) -> Figure:
    """Seconds beyond those of the bare interpreter, in turns with it; torch must not be imported."""
    with tempfile.TemporaryDirectory(prefix="bytecode-") as bytecode:
        compiled = _compiled(bytecode)
        for code in (FLOOR, CLIENT):
            _seconds(code, compiled)
        taken = [[_seconds(code, compiled) for code in ("pass", FLOOR, CLIENT)] for _ in range(times)]
    floor = statistics.median(libraries - bare for bare, libraries, _ in taken)
    torch = _imports_torch()
    return Figure(
        "overhead",
        "import of the client without training",
        "s",
        tuple(ours - bare for bare, _, ours in taken),
        target=TARGET_S,
        detail=f"beyond a bare interpreter ({min(one[0] for one in taken):.3f} s); paho and pydantic alone "
        f"take {floor:.3f} s of it; torch is {'IMPORTED' if torch else 'not imported'}",
        reason="beside paho and pydantic it is the making of classes: a hundred frozen dataclasses for what "
        "may happen and be done, sixty of pydantic's for what is said",
        raw={"bare_floor_client_s": taken, "imports_torch": torch},
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
