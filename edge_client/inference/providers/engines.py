"""Folders in which providers keep what they build for a model, so that the next start is quick."""

import hashlib
import logging
import os
import shutil
from pathlib import Path

from edge_client.inference.providers.record import cache_folder
from edge_client.inference.providers.table import Provider
from edge_client.system.hardware.sysfs import ROOT

log = logging.getLogger(__name__)

MAX_FOLDERS = 8  # the ones used last: two slots, two files beside them, with two providers each


def engines_folder(
    row: Provider, digest: str, *, threads: int | None, runtime: str, root: Path = ROOT
) -> str:
    """The folder for a model, a provider with its options and driver, and a version of onnxruntime.

    Empty if the provider keeps nothing, or if there is no place for it.
    """
    if not row.builds_engines:
        return ""
    kind = (digest, row.runtime_name, sorted(row.options(threads, "").items()), row.driver(root), runtime)
    try:
        folder = cache_folder() / "engines" / hashlib.sha256(repr(kind).encode()).hexdigest()[:32]
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        _remove_oldest(folder.parent)
    except (OSError, RuntimeError) as error:
        log.warning("what %s builds is not kept: %s", row.name, error)
        return ""
    return str(folder)


def _remove_oldest(folder: Path) -> None:
    used = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in used[MAX_FOLDERS:]:
        shutil.rmtree(path, ignore_errors=True)
