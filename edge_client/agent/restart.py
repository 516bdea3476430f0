"""The end of a client that its launcher shall start again."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from edge_client.agent.client_update.launcher import PARENT_VARIABLE, RESTART, ROOT_VARIABLE


@dataclass(frozen=True)
class RestartWanted:
    """Event: the agent shall end, for another version to start."""


def install_root() -> Path | None:
    """The folder of the launcher that has started this process, if one has."""
    root = os.environ.get(ROOT_VARIABLE)
    return Path(root) if root else None


def restart(root: Path, words: list[str]) -> int:
    """Let the launcher in `root` start the client again: returns the exit code for it, or executes it."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.environ.get(PARENT_VARIABLE) != str(os.getppid()):
        launcher = str(root / "launch")
        os.execv(launcher, [launcher, *words])
    return RESTART
