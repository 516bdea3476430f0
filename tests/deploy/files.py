"""Reads the files of deploy/ and checks whether our commands accept the options in them."""

import argparse
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from edge_client.cli.main import EDGE_CLIENT
from edge_server.cli.main import EDGE_SERVER

DEPLOY = Path(__file__).parents[2] / "deploy"
COMMANDS = {"edge-client": EDGE_CLIENT, "edge-server": EDGE_SERVER}
Unit = dict[str, dict[str, list[str]]]


@functools.cache
def documents(path: Path) -> list[Any]:
    """All documents of a YAML file, cached: callers must not change them."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def unit(name: str) -> Unit:
    """A unit file: values by section and key, in order, since a key may occur repeatedly."""
    found: Unit = {}
    section: dict[str, list[str]] = {}
    text = (DEPLOY / "systemd" / name).read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            section.setdefault(key, []).append(value)
    return found


@functools.cache
def verbs(command: str) -> dict[str, argparse.ArgumentParser]:
    """The verbs of one of our commands."""
    (chosen,) = (
        action.choices
        for action in COMMANDS[command].parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(chosen)


def unknown_arguments(command: str, words: Sequence[str]) -> list[str]:
    """The arguments that the command does not accept: the verb or options."""
    verb, *rest = words
    if verb not in verbs(command):
        return [verb]
    known = verbs(command)[verb]._option_string_actions
    options = [word.partition("=")[0] for word in rest if word.startswith("--")]
    return [option for option in options if option not in known]


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """All nested mappings."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(inner)
