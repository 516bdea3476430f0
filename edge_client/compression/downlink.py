"""The down-link codecs that a strategy names, for models on their way to devices."""

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
    """Send deltas; one of `every` model versions is sent whole.

    A device also fetches the deltas that it missed: a new device fetches at most `every` frames.
    """

    every: int = 10

    def __post_init__(self) -> None:
        if not isinstance(self.every, int) or not 2 <= self.every <= MAX_FRAMES:
            raise ValueError(f"every is a whole number from 2 to {MAX_FRAMES}, not {self.every}")


# In the order in which they may be named. No codec leaves numbers out: a model needs all.
DOWNLINK: Mapping[str, Callable[..., Any]] = {"delta": Differences, "fp16": Fp16, "int8": Int8, "zstd": Zstd}


@dataclass(frozen=True)
class DownlinkCodecs:
    """The down-link codecs of a strategy; without any, models are sent whole in float32."""

    delta: Differences | None = None
    number: NumberCodec | None = None
    pack: Zstd | None = None

    @property
    def whole(self) -> NumberCodec | None:
        """The number codec of whole models, with all levels: few levels suffice only for deltas."""
        return Int8() if self.delta and isinstance(self.number, Int8) else self.number


def make_downlink(named: Iterable[Component]) -> DownlinkCodecs:
    """The codecs of these components; raises `ConfigError` for unknown names or options, or a wrong order."""
    named = list(named)
    for component in named:
        if component.name not in DOWNLINK:
            hint = nearest(component.name, DOWNLINK)
            raise ConfigError(f"no codec of models is '{component.name}'{hint}", key="downlink")
    made = make_codecs(named, DOWNLINK, "downlink")
    return DownlinkCodecs(made.get("delta"), made.get("fp16", made.get("int8")), made.get("zstd"))
