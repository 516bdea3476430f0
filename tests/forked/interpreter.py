"""What the interpreter does with its words, in a process that runs already."""

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

_BEFORE = tuple(os.environ.get("PYTHONPATH", "").split(os.pathsep))
"""PYTHONPATH as this process was started."""


def run_python(words: Sequence[str]) -> int:
    """Run `-c CODE`, `-m MODULE ...` or `SCRIPT ...`; options before them are ignored."""
    first = next(place for place, word in enumerate(words) if word in ("-c", "-m") or word[0] != "-")
    kind, *rest = words[first:]
    main = sys.modules["__main__"] = ModuleType("__main__")
    if kind == "-c":
        _begin("", "-c", rest[1:])
        exec(rest[0], vars(main))
    elif kind == "-m":
        _begin(str(Path.cwd()), "-m", rest[1:])
        # As a program it is executed again.
        sys.modules.pop(rest[0], None)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        _begin(str(Path(kind).resolve().parent), kind, rest)
        runpy.run_path(kind, run_name="__main__")
    return 0


def _begin(folder: str, program: str, words: Sequence[str]) -> None:
    """Set the program's words and the path on which it looks for modules, with PYTHONPATH of its own."""
    sys.argv = [program, *words]
    named = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [folder, *named, *(entry for entry in sys.path if entry not in ("", *_BEFORE))]
