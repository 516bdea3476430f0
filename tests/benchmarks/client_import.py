"""How long the import of a device takes before it has anything to train: what a board waits for.

A fresh interpreter that imports what `edge-client run` does, against one that imports nothing, in turns; and
one that imports paho and pydantic alone: below that no device comes that speaks MQTT in checked messages. All
find their modules compiled, as they are where the package is installed: the first import, which is not
counted, leaves the bytecode in a folder that goes with the benchmark.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

from tests.benchmarks.figure import Figure

TARGET_S = 0.3
CLIENT = "import edge_client.cli.commands.run, edge_client.agent.agent, edge_client.system.hardware.profile"
FLOOR = "import paho.mqtt.client, pydantic; pydantic.BaseModel, pydantic.TypeAdapter"
"""What pydantic offers it imports when it is asked for."""


Turn = tuple[float, float, float]
"""Seconds of a bare interpreter, of one that imports the libraries, of one that imports the client."""


@contextlib.contextmanager
def imports() -> Iterator[Callable[[], Turn]]:
    """What takes a turn when it is called; turns that lie apart see more of a machine whose speed changes."""
    with tempfile.TemporaryDirectory(prefix="bytecode-") as bytecode:
        compiled = _compiled(bytecode)
        for code in (FLOOR, CLIENT):
            _seconds(code, compiled)
        yield lambda: (_seconds("pass", compiled), _seconds(FLOOR, compiled), _seconds(CLIENT, compiled))


def import_figure(turns: Sequence[Turn]) -> Figure:
    """Seconds beyond those of the bare interpreter; torch must not be imported."""
    floor = statistics.median(libraries - bare for bare, libraries, _ in turns)
    torch = _imports_torch()
    return Figure(
        "overhead",
        "import of the client without training",
        "s",
        tuple(ours - bare for bare, _, ours in turns),
        target=TARGET_S,
        detail=f"beyond a bare interpreter ({min(turn[0] for turn in turns):.3f} s); paho and pydantic alone "
        f"take {floor:.3f} s of it; torch is {'IMPORTED' if torch else 'not imported'}",
        reason="beside paho and pydantic it is the making of classes: a hundred frozen dataclasses for what "
        "may happen and be done, sixty of pydantic's for what is said",
        raw={"bare_floor_client_s": turns, "imports_torch": torch},
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
