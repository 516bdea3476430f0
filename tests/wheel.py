"""The wheel of this checkout, and environments in which it is installed without downloads."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.once import made_once

ROOT = Path(__file__).parents[1]
PARTS = ("schemas", "edge_client", "edge_server", "pyproject.toml", "LICENSE", "README.md")
HIDDEN = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
"""Environment variables that point to this checkout."""


class NoWheel(RuntimeError):
    """The wheel cannot be built here, with the reason."""


def run(*command: object, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a command without the environment variables that point to this checkout."""
    words = [str(word) for word in command]
    return subprocess.run(
        words, capture_output=True, text=True, cwd=cwd, env=environment_variables(), timeout=timeout
    )


def environment_variables() -> dict[str, str]:
    """The environment variables that do not point to this checkout."""
    return {name: value for name, value in os.environ.items() if name not in HIDDEN}


def built_wheel(temporary: pytest.TempPathFactory) -> Path:
    """The wheel, built once; the test is skipped if that needs an index that cannot be reached."""
    try:
        (path,) = made_once(temporary, "wheel", build_wheel).glob("*.whl")
    except NoWheel as reason:
        pytest.skip(str(reason))
    return path


def build_wheel(folder: Path) -> None:
    """Build the wheel of this checkout into an existing folder; raises `NoWheel`."""
    if importlib.util.find_spec("build") is None:
        raise NoWheel("`build` is not installed")
    # A build leaves folders next to the code.
    source = folder / "source"
    source.mkdir()
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, source / name)
    # An installed hatchling saves the download.
    isolation = ["--no-isolation"] if importlib.util.find_spec("hatchling") else []
    built = run(sys.executable, "-m", "build", "--wheel", *isolation, "--outdir", folder, cwd=source)
    if built.returncode and not isolation:
        raise NoWheel(f"the build needs an index: {(built.stdout + built.stderr)[-300:]}")
    assert built.returncode == 0, built.stdout + built.stderr
    shutil.rmtree(source)


def installed_with_extra(temporary: pytest.TempPathFactory, extra: str) -> Path:
    """The `bin` folder of an environment with the wheel and exactly what that extra requires, "" being none.

    The required packages are links to this environment's, so that nothing is downloaded.
    """
    wheel = built_wheel(temporary)
    made = made_once(temporary, f"environment-{extra}", lambda folder: install_wheel(wheel, folder, extra))
    return programs_of(made)


def programs_of(folder: Path) -> Path:
    """The `bin` folder of an environment that `install_wheel` has made in `folder`."""
    return folder / "venv" / "bin"


def install_wheel(wheel: Path, folder: Path, extra: str) -> None:
    """Make an environment in an existing folder, with the wheel and what its extra requires."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = programs_of(folder) / "python"
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    installed = run(
        sys.executable, "-m", "pip", f"--python={python}", "install",
        "--quiet", "--no-deps", "--disable-pip-version-check", wheel, cwd=folder,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    for package in _required("edge-federation", {extra}, {}).values():
        _link(package, site)
    # pip compiles the modules beside the packages too; compiled at each start, they take time and memory.
    run(python, "-m", "compileall", "-q", "-l", site, cwd=folder)


def _required(name: str, extras: set[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """What a package requires, directly or not, by name; without the package itself."""
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        wanted = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras | {""}
        )
        if wanted and requirement.name not in found:
            found[requirement.name] = distribution(requirement.name)
            _required(requirement.name, requirement.extras, found)
    return found


def _link(package: Distribution, site: Path) -> None:
    for top in sorted(_tops(package)):
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(package.locate_file(top))))


def _tops(package: Distribution) -> Iterator[str]:
    """The files and folders of a package at the top of site-packages."""
    for top in {Path(str(file)).parts[0] for file in package.files or ()}:
        if top not in {"..", "__pycache__"}:
            yield top
