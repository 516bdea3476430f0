"""Python processes in which some packages cannot be imported, nor in the processes that they start."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

BLOCKING = """
import sys

class Blocker:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(name + " is blocked", name=name)

sys.meta_path.insert(0, Blocker)
"""


def run_without(packages: Sequence[str], folder: Path, code: str, *arguments: object) -> tuple[str, str]:
    """What `code` prints and logs; `folder` is for a file that every new process imports first."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(BLOCKING.format(packages=tuple(packages)))
    path = os.pathsep.join([str(folder), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr
