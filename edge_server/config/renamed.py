"""Renamed sections of the federation file, and run folders of earlier versions."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

RENAMED = {"blobs": "object-store"}
"""{old: new}."""
_OF_A_RUN = ("history.jsonl", "journal.sqlite", "made.json")


def is_of_a_run(path: Path) -> bool:
    """Whether this is the resolved federation file in a run folder."""
    in_a_run = any((path.parent / name).exists() for name in _OF_A_RUN)
    return path.name == "federation.toml" and in_a_run and (path.parent / "models").is_dir()


def as_written(table: Mapping[str, Any], source: object) -> dict[str, Any]:
    """A run file's table of an earlier version, with the current section names and the steps it trained."""
    for old in RENAMED.keys() & table.keys():
        log.info("%s: [%s] of an earlier version is read as [%s]", source, old, RENAMED[old])
    current = {RENAMED.get(section, section): value for section, value in table.items()}
    if "training" in current:
        current["training"] = {"warm-up-steps": 0, **current["training"]}
    return current
