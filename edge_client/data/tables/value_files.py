"""Files of JSON or CBOR values, one after the other; CBOR needs cbor2 (the extra `cbor`)."""

import json
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from schemas.errors import ConfigError

_SOLID = re.compile(r"\S")


def read_values(path: Path) -> list[Any]:
    """The values of a file; one that is half written behind others waits for the next look.

    What begins with a bracket or a brace is JSON. Raises `ConfigError` for a file that is neither.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if data.lstrip()[:1] in (b"[", b"{"):
        return list(_json_values(path, data))
    return list(_cbor_values(path, data))


def _json_values(path: Path, data: bytes) -> Iterator[Any]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not JSON in UTF-8: {error}") from error
    decoder, end = json.JSONDecoder(), 0
    while following := _SOLID.search(text, end):
        try:
            value, end = decoder.raw_decode(text, following.start())
        except ValueError as error:
            if end > 0:
                return
            raise ConfigError(f"{path} is not JSON: {error}") from error
        yield value


def _cbor_values(path: Path, data: bytes) -> Iterator[Any]:
    try:
        import cbor2
    except ModuleNotFoundError as error:
        remedy = "pip install 'edge-federation[cbor]', or write JSON"
        raise ConfigError(f"{path} needs {error.name}, which is not installed", remedy=remedy) from error
    file = BytesIO(data)
    while file.tell() < len(data):
        start = file.tell()
        try:
            yield cbor2.load(file)
        except cbor2.CBORDecodeEOF:
            if start > 0:
                return
            raise ConfigError(f"{path} is cut off") from None
        except (cbor2.CBORError, ValueError) as error:
            raise ConfigError(f"{path} is not CBOR", quoted=error) from error
