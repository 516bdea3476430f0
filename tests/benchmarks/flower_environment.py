"""An environment of its own for Flower's simulation engine: what it pins would not go with what we pin.

torch and numpy are those of `deploy/constraints.txt`, so that both sides train with the same kernels.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[2] / "deploy" / "constraints.txt"
PINNED = ("numpy==", "torch==")
WANTED = ("flwr[simulation]", "torch", "numpy")


class NotInstalled(Exception):
    """Flower cannot be had here."""


def default_folder() -> Path:
    """Below the user's cache, so that it is made once."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "edge-federation" / "flower-simulation"


def python(folder: Path) -> Path:
    """The interpreter of the environment in `folder`, which is made first where there is none.

    Raises `NotInstalled` with the reason.
    """
    program, done = folder / "bin" / "python", folder / "installed"
    if done.exists():
        return program
    pins = folder / "pins.txt"
    try:
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        lines = CONSTRAINTS.read_text().splitlines()
        pins.write_text("".join(f"{line}\n" for line in lines if line.startswith(PINNED)))
        # Wheels alone: pip would otherwise try to build ever older releases.
        pip = [str(program), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        _run([*pip, "--constraint", str(pins), *WANTED])
        done.touch()
    except OSError as error:
        raise NotInstalled(f"{folder}: {error}") from error
    return program


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing was said"]
        raise NotInstalled(f"{' '.join(command[1:4])} ended with {done.returncode}: {said[-1][:300]}")
