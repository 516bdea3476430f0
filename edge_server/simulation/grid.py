"""A grid of settings: the words of a sweep, expanded to the words of each of its runs."""

import itertools
import re
from collections.abc import Sequence

from schemas.errors import ConfigError

_TOKEN = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|.""", re.DOTALL)


def expand_grid(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Every combination of the values of `key=a,b` words, in order, the last word's values first.

    Commas in quotes, brackets and braces belong to the value: `strategy.uplink=["int8","zstd"]` is one.
    Raises `ConfigError` for a value that is missing or there twice.
    """
    return list(itertools.product(*map(_single_words, words)))


def _single_words(word: str) -> list[str]:
    key, equals, text = word.partition("=")
    values = _values(text)
    if len(values) > 1 and "" in values:
        raise ConfigError(f"'{word}': a value is missing beside a comma; a sweep is key=a,b")
    if twice := next((value for value in values if values.count(value) > 1), None):
        raise ConfigError(f"'{word}': {twice} is named twice: name each value once")
    return [f"{key}{equals}{value}" for value in values]


def _values(text: str) -> list[str]:
    values, depth = [""], 0
    for token in _TOKEN.findall(text):
        depth += (token in "[{") - (token in "]}")
        if token == "," and depth == 0:
            values.append("")
        else:
            values[-1] += token
    return [value.strip() for value in values] if len(values) > 1 else [text]
