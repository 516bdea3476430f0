"""Boards at sites: each has an environment, a state folder and a launcher of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path

from tests.fleet.networks import Site

PROJECT = Path(__file__).parents[2]
COMMAND = """\
#!{python}
import sys

from edge_client.cli.main import main

sys.exit(main())
"""
SETTINGS = """\
share = "{share}"
state-dir = "state"
trainer = "onnx"
telemetry-every-s = 2
keep-trying = true
"""


class Board:
    """One board, made from its enrolment archive in `folder`; `share` is its part of the digits."""

    def __init__(self, name: str, site: Site, archive: Path, folder: Path, share: str) -> None:
        self.name, self.site, self._folder = name, site, folder / name
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        with (self._folder / "client.toml").open("a") as file:
            file.write(SETTINGS.format(share=share))
        self._program = _environment(self._folder / "environment")
        self._process: subprocess.Popen[bytes] | None = None
        root = self._folder / "client"
        subprocess.run([self._program, "install", "--root", root], check=True, stdout=subprocess.DEVNULL)
        self._launcher = root / "launch"

    @property
    def log(self) -> str:
        """What the board has logged."""
        path = self._folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Switch the board on."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.site.command(str(self._launcher), "run", "--config", "client.toml"),
                cwd=self._folder,
                stdout=log,
                stderr=log,
                env=_bare_environment(),
                start_new_session=True,
            )

    def stop(self, *, power_cut: bool = False) -> None:
        """Switch the board off, or cut its power."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL if power_cut else signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None


@contextlib.contextmanager
def switched_off(boards: dict[str, Board]) -> Iterator[None]:
    """Switch off all boards at the end of the block."""
    try:
        yield
    finally:
        for board in boards.values():
            board.stop(power_cut=True)


def _environment(folder: Path) -> Path:
    """A virtual environment with the client of this project; returns its command."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    paths = folder / "lib" / version / "site-packages" / "project.pth"
    paths.write_text(f"{sysconfig.get_path('purelib')}\n{PROJECT}\n")
    program = folder / "bin" / "edge-client"
    program.write_text(COMMAND.format(python=python))
    program.chmod(0o755)
    return program


def _bare_environment() -> dict[str, str]:
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "EDGE_SERVICE")
    return {name: value for name, value in os.environ.items() if name not in hidden} | {
        "OMP_NUM_THREADS": "1"
    }
