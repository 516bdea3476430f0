"""What a source's name states besides its path: options, and the part of it that is read.

Options stand behind its path: `csv:room.csv?label=Occupancy&window=10`.

A reader states its purpose. A source with official parts returns that part. Any other source is whole for its
owner: a device trains on all of its data, a server tests on all of its own. If one source serves both, as in
a simulation, each reader names its part: `npz:shapes.npz#train` is four fifths of every class,
`npz:shapes.npz#test` the other fifth.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl

from schemas.errors import ConfigError, nearest

if TYPE_CHECKING:
    from edge_client.data.dataset import LabelledData


Split = Literal["train", "test"]

_PART = re.compile(r"#(train|test)$")


def named_part(source: str) -> tuple[str, Split | None]:
    """The source without its part, and the part."""
    match = _PART.search(source)
    if match is None:
        return source, None
    return source[: match.start()], "train" if match[1] == "train" else "test"


def split_off(data: "LabelledData", split: Split) -> "LabelledData":
    """The train (80%) or test (20%) part of data without an official split, always the same.

    Every fifth example in the order of its stratum is for testing, so both parts contain each class. Origins
    stay whole.
    """
    import numpy as np

    from edge_client.data.partition import holdout

    if data.origins is not None:
        train, test = holdout(data, fraction=0.2, seed=0)
        return test if split == "test" else train
    order = np.random.default_rng(0).permutation(len(data))
    order = order[np.argsort(data.strata[order], kind="stable")]
    for_test = np.arange(len(order)) % 5 == 4
    return data.subset(np.sort(order[for_test if split == "test" else ~for_test]))


def last_fifth(data: "LabelledData", split: Split) -> "LabelledData":
    """The train (first 80%) or test (last 20%) part in the source's order, as a series needs."""
    import numpy as np

    cut = len(data) - len(data) // 5
    return data.subset(np.arange(cut, len(data)) if split == "test" else np.arange(cut))


def options_of(text: str, known: Collection[str], *, source: str) -> dict[str, str]:
    """The options `key=value&key=value`; `ConfigError` for another form, or an unknown or repeated key."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True) if text else []
    except ValueError as error:
        raise ConfigError(f"options are written ?key=value&key=value, not {text!r}", place=source) from error
    found = dict(pairs)
    for key, _ in pairs:
        if key not in known:
            raise ConfigError(
                f"no option '{key}'{nearest(key, known)}; it has {', '.join(known)}", place=source
            )
    if len(found) < len(pairs):
        raise ConfigError(f"an option is stated twice in {text!r}", place=source)
    return found


def names_in(options: Mapping[str, str], key: str) -> tuple[str, ...]:
    """The names in a list with commas; empty if the option is unset."""
    return tuple(name.strip() for name in options.get(key, "").split(",") if name.strip())


def whole_option(options: Mapping[str, str], key: str, default: int, *, least: int, source: str) -> int:
    """A whole number of at least `least`; `ConfigError` for anything else."""
    text = options.get(key)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"{key}={text} is not a whole number of at least {least}", place=source)
    return int(text)


def number_option(
    options: Mapping[str, str], key: str, default: float, *, least: float, most: float, source: str
) -> float:
    """A number between the bounds; `ConfigError` for anything else."""
    try:
        value = float(options.get(key, default))
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise ConfigError(
            f"{key}={options.get(key)} must be a number from {least:g} to {most:g}", place=source
        )
    return value


def place_and_options(text: str, data_root: Path | None = None) -> tuple[Path, str]:
    """The path, below the data root if there is one, and the options behind a question mark.

    A question mark may belong to the name of what exists.
    """
    marks = [place for place, letter in enumerate(text) if letter == "?"]
    for cut in (len(text), *reversed(marks)):
        if _exists(path := _below(data_root, text[:cut])):
            return path, text[cut + 1 :]
    place, _, options = text.partition("?")
    return _below(data_root, place), options


def _below(root: Path | None, text: str) -> Path:
    path = Path(text).expanduser()
    return path if root is None else root / path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        # Options can be longer than a name may be.
        return False


def one_of(options: Mapping[str, str], key: str, words: Sequence[str], *, source: str) -> str:
    """One of these words, by default the first; `ConfigError` for anything else."""
    word = options.get(key, words[0])
    if word not in words or (key in options and not word):
        raise ConfigError(f"{key}={word} must be {' or '.join(filter(None, words))}", place=source)
    return word
