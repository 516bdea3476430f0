"""The address of `--metrics`, as given on the command line."""

import re
from dataclasses import dataclass

from schemas.errors import ConfigError

DEFAULT = "127.0.0.1:9464"


@dataclass(frozen=True)
class Listen:
    """A host and a port to listen at."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_listen(text: str, *, option: str = "--metrics") -> Listen:
    """Parse `HOST:PORT` or `[IPV6]:PORT`; raises `ConfigError` for anything else, also for `:PORT`."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})", text)
    if match is None or int(match[3]) > 65535:
        hint = "; without an address, put --metrics last" if option == "--metrics" else ""
        raise ConfigError(
            f"expected HOST:PORT, for instance {DEFAULT}, or 0.0.0.0:9464 for all of this machine's "
            f"addresses{hint}",
            key=f"{option} {text!r}",
        )
    return Listen(match[1] or match[2], int(match[3]))
