"""Removes data and keys from text before it leaves the device. Pure: what is hidden is an argument.

Too much is removed rather than too little: a password ends with the next space, the name of a data file with
its line, an HTTP address with its host.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

SECRET, FILE, DATA, KEY_BLOCK, ENCODED = "<secret>", "<file>", "<data>", "<key>", "<encoded>"
LONGEST_TEXT = 65_536  # characters of one text that are read; the rest is left out
MIN_CHARS = 3  # shorter secrets and names of files are not looked for: they are parts of ordinary words

_SENSITIVE = (
    r"(?:(?i:password|passwd|passphrase|passcode|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|"
    r"signing[_-]?key|authori[sz]ation|credential|cookie|session[_-]?id|signature)"
    r"|(?<![a-zA-Z])(?i:pass|pwd|pw|auth|psk|pin|otp))(?i:s)?(?![a-z])"
)
_WORD_OF_VALUE = (
    r"(?:(?i:bearer|basic|digest)\s+\S+|[\[({][^\])}\n]*[\])}]?\S*"
    r"""|\\{1,9}["'][^"'\n]*["']?\S*|"(?:[^"\\\n]|\\.)*"?\S*|'(?:[^'\\\n]|\\.)*'?\S*|\S+)"""
)
_FURTHER = rf"(?:(?<=,)[ \t]{{1,9}}(?![\w.-]{{1,60}}\\{{0,9}}[\"']?\s{{0,9}}[:=]){_WORD_OF_VALUE})*"
_VALUE = _WORD_OF_VALUE + _FURTHER  # and further items behind commas, unless these have keys of their own
_NAMED_SECRET = re.compile(_SENSITIVE)
_PEM = re.compile(r"-----BEGIN [^-]{0,80}-----.*?(?:-----END [^-]{0,80}-----|\Z)", re.DOTALL)
_PEM_END = re.compile(r"\A.*-----END [^-]{0,80}-----", re.DOTALL)
_CODE = re.compile(r"edge1\.\S*")
_ADDRESS = re.compile(r"\b(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]{0,20})://(?P<rest>[^\s\"'<>]+)")
# Headers whose values have several items.
_LINE = re.compile(r"(?P<key>(?i:cookie|authori[sz]ation)\\{0,9}[\"']?\s{0,9}[:=]\s{0,9})[^\n]+")
# What is between a key and its value: also a comma between two quoted texts, and `value=` of an element.
_SIGN = r"""(?:\\{0,9}["']?\s{0,9}(?:=>|:=|[:=])|\\{0,9}["']\s{0,9},?\s{0,9}(?:value=)?)"""
_ASSIGNED = re.compile(rf"(?P<key>{_SENSITIVE}[\w.-]{{0,60}}+{_SIGN}\s{{0,9}}){_VALUE}")
_ELEMENT = re.compile(
    rf"(?P<key>(?!(?<=<)secret>[^<]*+(?!</)){_SENSITIVE}[\w:.-]{{0,60}}+(?:\s[^<>\n]{{0,200}})?>)(?:<!\[CDATA\[)?[^<]+"
)
_LOGIN = re.compile(
    rf"(?P<key>(?<!\S)(?:-u\s{{0,9}}|--(?:proxy-)?user[=\s]\s{{0,9}}))(?=\S*:|[\"']){_WORD_OF_VALUE}"
)
# A user's name and password before a host, without a scheme.
_ACCOUNT = re.compile(
    r"""(?P<key>(?<![^\s"'(\[<=,;]))[^\s"'(\[<=,;:@/]{1,64}+:(?!//)(?:[^\s"'@]{1,256}+@)+(?=[\w\[])"""
)
_JWT = re.compile(r"\beyJ[\w-]{5,}(?:\.[\w-]*){1,4}")
_OPTION = re.compile(rf"(?P<key>(?<!\S)--?[\w-]{{0,60}}?{_SENSITIVE}[\w-]{{0,60}}+\s+){_VALUE}")
_SCHEME = re.compile(r"(?P<key>\b(?i:bearer|basic)\s+)\S+")
_LONG_RUN = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{40,}={0,2}(?![\w+/=-])")
_WORD = re.compile(r"\w+")
# What follows the data's path, up to a quote or the end of the line: names may have spaces.
_INSIDE = re.compile(re.escape(DATA) + r"[/#?][^\n\"']*")


@dataclass(frozen=True)
class Hidden:
    """What a device hides.

    `data`: paths of its data. `places`: other folders with the words that replace them. `secrets` are hidden
    wherever they occur, `names` of data files as whole words, and all words with one of the `suffixes`.
    """

    data: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    suffixes: frozenset[str] = frozenset()


class Masker:
    """Masks texts and documents of one device."""

    def __init__(self, hidden: Hidden) -> None:
        known = {secret for secret in hidden.secrets if len(secret) >= MIN_CHARS}
        self._secrets = sorted(known | {quote(secret, safe="") for secret in known}, key=len, reverse=True)
        self._data = [_folder(path) for path in _longest_first(hidden.data)]
        self._places = [(_folder(path), hidden.places[path]) for path in _longest_first(hidden.places)]
        telling = (name for name in hidden.names if len(name) >= MIN_CHARS and not name.isdigit())
        self._names = _by_first_word(telling)
        kinds = "|".join(re.escape(suffix) for suffix in sorted(hidden.suffixes) if suffix)
        word = rf"(?<![^\s'\"/=:(\[])[^\s'\"/=:(\[]+(?i:{kinds})(?!\w)"
        self._files = re.compile(word) if kinds else None

    def text(self, text: str) -> str:
        text = text[:LONGEST_TEXT]
        for secret in self._secrets:
            text = text.replace(secret, SECRET)
        for path in self._data:
            text = path.sub(DATA, text)
        text = "".join(_without(text, self._names))
        text = _INSIDE.sub(DATA, text)
        if self._files is not None:
            text = self._files.sub(FILE, text)
        for folder, word in self._places:
            text = folder.sub(word, text)
        return mask_secrets(text)

    def document(self, value: Any) -> Any:
        """A JSON document with each of its texts masked, names of its fields included.

        A field whose name says that it is secret loses its value.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._value(str(key), part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(part) for part in value]
        return value

    def _value(self, key: str, value: Any) -> Any:
        if value is not None and _NAMED_SECRET.search(key):
            return SECRET
        return self.document(value)


def mask_secrets(text: str) -> str:
    """The text without PEM blocks, enrolment codes, addresses' credentials, passwords and tokens."""
    text = _PEM_END.sub(KEY_BLOCK, _PEM.sub(KEY_BLOCK, text))
    text = _CODE.sub(SECRET, text)
    text = _ADDRESS.sub(_address, text)
    text = _JWT.sub(SECRET, text)
    for pattern in (_LINE, _ELEMENT, _ASSIGNED, _OPTION, _LOGIN, _SCHEME):
        text = pattern.sub(rf"\g<key>{SECRET}", text)
    text = _ACCOUNT.sub(f"{SECRET}@", text)
    return _LONG_RUN.sub(_mask_long_run, text)


def _address(found: re.Match[str]) -> str:
    """Scheme, host and port. The path of HTTP may be a secret; elsewhere a query may."""
    # A password may have slashes: everything before the last @ is hidden.
    credentials, _, rest = found["rest"].rpartition("@")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    behind = rest[len(authority) :]
    if found["scheme"].lower() in ("http", "https", "ws", "wss"):
        behind = f"/{SECRET}" if len(behind) > 1 else behind
    elif "?" in behind:
        behind = behind.partition("?")[0] + f"?{SECRET}"
    return f"{found['scheme']}://{SECRET + '@' if credentials else ''}{authority}{behind}"


def _mask_long_run(found: re.Match[str]) -> str:
    """Digests in hex and paths stay; other long runs of mixed letters and digits may be keys."""
    text = found[0]
    mixed = all(any(kind(letter) for letter in text) for kind in (str.isupper, str.islower, str.isdigit))
    is_path = text.count("/") > len(text) / 12
    return ENCODED if mixed and not is_path else text


def _longest_first(paths: Iterable[str]) -> list[str]:
    return sorted((path for path in paths if path not in ("", "/", ".")), key=len, reverse=True)


def _folder(path: str) -> re.Pattern[str]:
    return re.compile(re.escape(path.rstrip("/")) + r"(?![\w-])")


def _by_first_word(names: Iterable[str]) -> dict[str, list[tuple[int, str]]]:
    """All spellings of names by their first run of letters, with its position; the longest first."""
    index: dict[str, list[tuple[int, str]]] = {}
    spellings = {spelling for name in names for spelling in _spellings(name)}
    for name in sorted(spellings, key=len, reverse=True):
        word = _WORD.search(name)
        if word is not None:
            index.setdefault(word[0], []).append((word.start(), name))
    return index


def _spellings(name: str) -> set[str]:
    """A name as it is, and as messages and addresses write it."""
    escaped = name.encode("unicode_escape").decode("ascii")
    return {name, repr(name)[1:-1], quote(name, errors="replace"), escaped}


def _without(text: str, index: Mapping[str, list[tuple[int, str]]]) -> Iterator[str]:
    end = 0
    for word in _WORD.finditer(text) if index else ():
        for offset, name in index.get(word[0], ()):
            begin = word.start() - offset
            if begin >= end and text.startswith(name, begin) and _ends(text, begin + len(name)):
                yield text[end:begin]
                yield FILE
                end = begin + len(name)
                break
    yield text[end:]


def _ends(text: str, at: int) -> bool:
    return at >= len(text) or not (text[at].isalnum() and text[at - 1].isalnum())
