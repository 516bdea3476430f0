"""Options of a source behind its path: `csv:room.csv?label=Occupancy&window=10`."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl

from schemas.errors import ConfigError, nearest


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
