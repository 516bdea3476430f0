"""How long a device's imports take before it trains.

A fresh interpreter that imports what `edge-client run` imports, against one that imports nothing, in turns;
and one that imports only paho and pydantic: the minimum for a device that speaks MQTT with checked messages.
All find compiled modules, as in an installed package: the first import, which is not counted, writes the
bytecode to a folder that is deleted with the benchmark.
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
"""pydantic imports its attributes on first access."""


Turn = tuple[float, float, float]
"""Seconds of an interpreter that imports nothing, the libraries, the client."""


@contextlib.contextmanager
def imports() -> Iterator[Callable[[], Turn]]:
    """Yield a function that takes one turn; turns spread over time average out speed changes."""
    with tempfile.TemporaryDirectory(prefix="bytecode-") as bytecode:
        compiled = _compiled(bytecode)
        for code in (FLOOR, CLIENT):
            _seconds(code, compiled)
        yield lambda: (_seconds("pass", compiled), _seconds(FLOOR, compiled), _seconds(CLIENT, compiled))


def import_figure(turns: Sequence[Turn]) -> Figure:
    """Seconds beyond the bare interpreter's; torch must not be imported."""
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
        reason="in addition to paho and pydantic, classes are created: a hundred frozen dataclasses for "
        "events and commands, sixty of pydantic's for messages",
        raw={"bare_floor_client_s": turns, "imports_torch": torch},
    )


def _compiled(folder: str) -> dict[str, str]:
    """The environment of an interpreter that stores its bytecode in `folder`, whatever ours does."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder}


def _seconds(code: str, environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - started


def _imports_torch() -> bool:
    code = f"{CLIENT}, sys; print('torch' in sys.modules)"
    return "True" in subprocess.check_output([sys.executable, "-c", code], text=True)
