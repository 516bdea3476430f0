"""A strategy's down-link codecs, as it names them: what becomes of models on their way to devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edge_client.compression.chain import make_codecs
from edge_client.compression.quantization import Fp16, Int8, NumberCodec
from edge_client.compression.zstd import Zstd
from schemas.errors import ConfigError, nearest
from schemas.messages.tasks import MAX_FRAMES
from schemas.strategy import Component


@dataclass(frozen=True)
class Differences:
    """Only what has changed since the model before; of every `every` models one is sent whole.

    A device that has missed some fetches these too: `every` is what one that has nothing may have to fetch.
    """

    every: int = 10

    def __post_init__(self) -> None:
        if not isinstance(self.every, int) or not 2 <= self.every <= MAX_FRAMES:
            raise ValueError(f"every is a whole number from 2 to {MAX_FRAMES}, not {self.every}")


DOWNLINK: Mapping[str, Callable[..., Any]] = {
    "delta": Differences,
    "fp16": Fp16,
    "int8": Int8,
    "zstd": Zstd,
}
"""In the order in which they may be named. None leaves numbers out: a model needs them all."""


@dataclass(frozen=True)
class Down:
    """The codecs of one strategy; without any a model is sent whole, in float32."""

    delta: Differences | None = None
    number: NumberCodec | None = None
    pack: Zstd | None = None

    @property
    def whole(self) -> NumberCodec | None:
        """How the numbers of a whole model are written: few levels are enough for differences alone."""
        return Int8() if self.delta and isinstance(self.number, Int8) else self.number


def make_downlink(named: Iterable[Component]) -> Down:
    """The codecs of these pieces; raises `ConfigError` for names, options and orders that there are not."""
    named = list(named)
    for piece in named:
        if piece.name not in DOWNLINK:
            raise ConfigError(
                f"downlink: no codec of models is '{piece.name}'{nearest(piece.name, DOWNLINK)}"
            )
    made = make_codecs(named, DOWNLINK, "downlink")
    return Down(made.get("delta"), made.get("fp16", made.get("int8")), made.get("zstd"))
