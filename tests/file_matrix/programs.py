"""Programs and packages that write files, with their versions."""

import importlib.metadata
import platform
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

VERSIONS = {
    "ffmpeg": "-version",
    "sox": "--version",
    "convert": "-version",
    "heif-enc": "--version",
    "avifenc": "--version",
    "cwebp": "-version",
    "espeak-ng": "--version",
    "sqlite3 (shell)": "-version",
    "ssconvert": "--version",
    "flac": "--version",
    "oggenc": "--version",
    "opusenc": "--version",
    "lame": "--version",
    "pnmtopng": "-version",
    "mosquitto_pub": "--help",
}
"""Programs, with the option by which each tells its version."""
STANDARD = ("csv", "sqlite3", "wave", "json", "gzip")
"""Modules of Python itself."""
LAYOUT = "as "
"""Begins the name of a writer whose files are written here as it writes them."""


@cache
def version_of(writer: str) -> str | None:
    """The version of a program or package: None if it is missing, empty for a layout."""
    if writer.startswith(LAYOUT):
        return ""
    if writer in STANDARD:
        return platform.python_version()
    if writer in VERSIONS:
        return _version_of_program(writer.partition(" ")[0], VERSIONS[writer])
    try:
        return importlib.metadata.version(writer)
    except importlib.metadata.PackageNotFoundError:
        return None


def run(*command: str | Path, stdin: bytes | None = None) -> bytes:
    """The output of a program that must succeed."""
    done = subprocess.run([str(part) for part in command], input=stdin, capture_output=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.decode(errors='replace')[-500:]}")
    return done.stdout


def _version_of_program(program: str, option: str) -> str | None:
    if shutil.which(program) is None:
        return None
    done = subprocess.run([program, option], capture_output=True, timeout=60)
    text = (done.stdout + done.stderr).decode(errors="replace")
    match = re.search(r"\d+(\.\d+)+", text)
    return match[0] if match else "?"
