"""Flower in an environment of its own: what it pins is none of ours, and the other way round."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WANTED = "flwr[simulation]"
"""Both of its engines. The newest release of which all dependencies can be had."""
CONSTRAINTS = Path(__file__).parents[3] / "deploy" / "constraints.txt"
PINNED = ("torch", "numpy")
"""The same on both sides; Flower itself wants other releases of some of the rest."""


class NotInstalled(Exception):
    """Flower cannot be installed here; says why."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with Flower and torch."""

    folder: Path

    def program(self, name: str) -> str:
        """The path of one of its commands."""
        return str(self.folder / "bin" / name)

    def version(self, package: str) -> str:
        """The release of a package that is installed in it."""
        code = f"import importlib.metadata as m; print(m.version('{package}'))"
        return subprocess.check_output([self.program("python"), "-c", code], text=True).strip()


def default_folder() -> Path:
    """Below the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "edge-federation" / "flower"


def installed(folder: Path) -> Environment:
    """The environment in `folder`, made where there is none; raises `NotInstalled`."""
    environment, done = Environment(folder), folder / "installed-both"
    if done.exists():
        return environment
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pins = folder / "constraints.txt"
        pins.write_text(_pins(CONSTRAINTS.read_text()))
        # Wheels alone: pip would otherwise go back to releases so old that they do not build.
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
    """Make it, so that no benchmark's time has that in it; without it they tell why they have no figures."""
    try:
        print(f"Flower lies in {installed(default_folder()).folder}")
    except NotInstalled as error:
        print(f"no Flower: {error}")


def _pins(text: str) -> str:
    pattern = rf"^(?:{'|'.join(PINNED)})==.*$"
    return "".join(line + "\n" for line in re.findall(pattern, text, flags=re.MULTILINE))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "nothing was said").splitlines()[-1]
        raise NotInstalled(f"{' '.join(command[1:4])} ended with {done.returncode}: {last[:300]}")


if __name__ == "__main__":
    main()
