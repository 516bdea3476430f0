"""Flower in its own environment: its pinned versions and ours do not affect each other."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WANTED = "flwr[simulation]"
"""Both of its engines, in the newest release whose dependencies are all available."""
CONSTRAINTS = Path(__file__).parents[3] / "deploy" / "constraints.txt"
PINNED = ("torch", "numpy")
"""Packages with the same version on both sides; Flower requires other versions of some of the rest."""


class NotInstalled(Exception):
    """Flower cannot be installed here; the message has the reason."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with Flower and torch."""

    folder: Path

    def program(self, name: str) -> str:
        """The path of one of its commands."""
        return str(self.folder / "bin" / name)

    def version(self, package: str) -> str:
        """The installed version of a package."""
        code = f"import importlib.metadata as m; print(m.version('{package}'))"
        return subprocess.check_output([self.program("python"), "-c", code], text=True).strip()


def default_folder() -> Path:
    """The environment's folder below the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "edge-federation" / "flower"


def installed(folder: Path) -> Environment:
    """The environment in `folder`, created if missing; raises `NotInstalled`."""
    environment, done = Environment(folder), folder / "installed-both"
    if done.exists():
        return environment
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pins = folder / "constraints.txt"
        pins.write_text(_pins(CONSTRAINTS.read_text()))
        # Only wheels: pip would otherwise choose releases so old that they do not build.
        pip = [
            environment.program("python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        _run([*pip, "--only-binary", ":all:", "--constraint", str(pins), WANTED, "torch"])
        done.write_text(environment.version("flwr") + "\n")
    except OSError as error:
        raise NotInstalled(f"{folder}: {error}") from error
    return environment


def main() -> None:
    """Create the environment in advance; if that fails, benchmarks report why they have no figures."""
    try:
        print(f"Flower is installed in {installed(default_folder()).folder}")
    except NotInstalled as error:
        print(f"no Flower: {error}")


def _pins(text: str) -> str:
    pattern = rf"^(?:{'|'.join(PINNED)})==.*$"
    return "".join(line + "\n" for line in re.findall(pattern, text, flags=re.MULTILINE))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        raise NotInstalled(f"{' '.join(command[1:4])} ended with {done.returncode}: {last[:300]}")


if __name__ == "__main__":
    main()
