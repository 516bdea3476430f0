"""The owner's settings for remote diagnostics."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RemoteSettings:
    """Whether an operator may ask this device for diagnostics; `data_root` is hidden as the data is."""

    enabled: bool = True
    data_root: Path | None = None
