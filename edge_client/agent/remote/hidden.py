"""What this device hides in diagnostics: its data, its folders, its broker's password."""

import contextlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

from edge_client.agent.remote.masking import Hidden
from edge_client.agent.settings import AgentSettings

MOST_NAMES, MOST_FILES = 10_000, 200_000
"""Names of data files that are looked for one by one, and files whose endings are: an index takes memory."""
LONGEST_SUFFIX = 6
NO_PATHS = frozenset({"digits", "python"})


def hidden_by(settings: AgentSettings) -> Hidden:
    """What to hide, by the device's settings and the files of its data now."""
    kind, colon, stated = settings.source.partition(":")
    root = settings.remote.data_root
    path = _path_of(stated, root) if colon and kind not in NO_PATHS else None
    names: list[str] = []
    suffixes: set[str] = set()
    for name in islice(_names(path), MOST_FILES) if path is not None else ():
        suffixes.add(_suffix(name))
        if len(names) < MOST_NAMES:
            names.append(name)
    address = settings.address
    return Hidden(
        data=tuple(_data_paths(kind, stated, path, root)),
        places=dict(_places(settings.state)),
        secrets=tuple(secret for secret in (address.username, address.password) if secret),
        names=tuple(names),
        suffixes=frozenset(suffixes - {""}),
    )


def _places(state: Path) -> Iterator[tuple[str, str]]:
    yield str(state), "<state>"
    yield str(state.absolute()), "<state>"
    # A service's user may have no home folder.
    with contextlib.suppress(RuntimeError):
        yield str(Path.home()), "~"


def _path_of(stated: str, root: Path | None) -> Path:
    """The path in a source such as `csv:room.csv?label=open` or `npz:digits.npz#train`."""
    text = stated
    if not _exists(text):
        text = stated.partition("?")[0].partition("#")[0]
    path = _expanded(text)
    return path if root is None else root / path


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _exists(text: str) -> bool:
    try:
        return _expanded(text).exists()
    except (OSError, ValueError):
        return False


def _data_paths(kind: str, stated: str, path: Path | None, root: Path | None) -> Iterator[str]:
    """The paths of the data in the spellings that messages may have."""
    for folder in (root, path):
        if folder is not None:
            yield str(folder.absolute())
            yield str(folder.resolve())
            # A relative path of one word may be an ordinary word, and is hidden behind its kind alone.
            yield from (str(folder),) if len(folder.parts) > 1 else ()
    if path is not None:
        yield f"{kind}:{stated.partition('?')[0]}"
        yield f"{kind}:{path}"
    for option in stated.partition("?")[2].split("&"):
        value = unquote(option.partition("=")[2])
        if "/" in value:
            yield value


def _names(path: Path) -> Iterator[str]:
    """The names of a data file, or of all files in a data folder."""
    if path.is_file():
        yield path.name
    for _, _, files in os.walk(path):
        yield from files


def _suffix(name: str) -> str:
    suffix = Path(name).suffix.lower()
    return (
        suffix
        if 2 <= len(suffix) <= LONGEST_SUFFIX and suffix[1:].isalnum() and not suffix[1:].isdigit()
        else ""
    )
