"""The one filter for text that is printed: what others wrote cannot move the cursor or turn the direction."""

from typing import TextIO

# Unicode categories that end lines, move the cursor or change the writing direction.
CONTROL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def plain(text: str, keep: str = "") -> str:
    """The text with its control characters escaped, but those in `keep`: an escape is `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    # Imported here: only text from elsewhere needs it.
    from unicodedata import category

    return "".join(
        _escape_character(letter) if category(letter) in CONTROL and letter not in keep else letter
        for letter in text
    )


def say(
    *words: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False
) -> None:
    """Print as `print` does, with all control characters but line ends and tabs escaped."""
    print(*(plain(str(word), keep="\n\t") for word in words), sep=sep, end=end, file=file, flush=flush)


def _escape_character(character: str) -> str:
    # A codec would be read from disk at its first use, which fails where no descriptor is free.
    return ascii(character)[1:-1]
