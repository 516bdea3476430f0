"""The version before, from the repository's history, installed in an environment of its own."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.wheel import ROOT, install_wheel, programs_of, run

VARIABLE = "UPGRADE_FROM"
"""Environment variable with the commit of the version before; without it these tests are skipped."""
BEFORE = os.environ.get(VARIABLE, "")
TODAY = (sys.executable, "-m")


def why_not() -> str:
    """Why the version before cannot be built; empty if it can."""
    if not BEFORE:
        return f"{VARIABLE} names no commit: make test-upgrade"
    found = subprocess.run(["git", "cat-file", "-e", f"{BEFORE}^{{commit}}"], cwd=ROOT, capture_output=True)
    return f"the history lacks the commit {BEFORE}: git fetch --unshallow" if found.returncode else ""


def install_before(folder: Path) -> tuple[str, ...]:
    """Build the wheel of that commit and install it; returns how its modules are run."""
    source = folder / "source"
    source.mkdir(parents=True)
    archive = folder / "source.tar"
    with archive.open("wb") as file:
        subprocess.run(["git", "archive", BEFORE], cwd=ROOT, stdout=file, check=True)
    with tarfile.open(archive) as tar:
        tar.extractall(source, filter="data")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
    built = run(*build, cwd=source)
    assert built.returncode == 0, built.stdout + built.stderr
    shutil.rmtree(source)
    (wheel,) = folder.glob("*.whl")
    install_wheel(wheel, folder, "server")
    # Isolated: neither this checkout nor PYTHONPATH may take the wheel's place.
    return str(programs_of(folder) / "python"), "-I", "-m"
