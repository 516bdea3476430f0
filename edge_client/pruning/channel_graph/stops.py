"""Where the tracer does not follow channels, and what the author of a network can do about it."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.fx import Node

SERIES = "'tcn' is a network for series that is cut"
HEADS = "write attention with a linear layer each for queries, keys and values, as 'vit-tiny' does"
SIZES = "give the number of channels or heads as -1, since a tier has fewer"
SUMS = "a sum with a parameter or with channels that stay whole stays whole too: put the width between sums"
OTHERS = "put the width into linear layers and convolutions around it"
# By the name of a layer's type, a function or a method.
REMEDIES: Mapping[str, str] = {
    **dict.fromkeys(("GRU", "LSTM", "RNN"), SERIES),
    **dict.fromkeys(("MultiheadAttention", "TransformerEncoderLayer", "chunk", "split"), HEADS),
    **dict.fromkeys(("reshape", "unflatten", "view"), SIZES),
    "add": SUMS,
}


@dataclass(frozen=True)
class Stop:
    """A layer, function or method at which channels stay whole on every tier."""

    kind: str
    layer: str = ""

    @property
    def operation(self) -> str:
        """As its author wrote it, with the layer's name."""
        return f"nn.{self.kind} '{self.layer}'" if self.layer else f"{self.kind}()"

    @property
    def remedy(self) -> str:
        return REMEDIES.get(self.kind, OTHERS)


def stop_at(node: Node, layer: nn.Module) -> Stop:
    """The stop at a call of `layer`, of a function or of a method."""
    if node.op == "call_module":
        return Stop(type(layer).__name__, str(node.target))
    return Stop(str(getattr(node.target, "__name__", node.target)))


def line_of(error: BaseException) -> str:
    """The last line of the network's own code that led to `error`: file, number and text; or nothing."""
    library = str(Path(torch.__file__).parent)
    own = (str(Path(__file__).parent), "<eval_with_key>")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((library, *own)):
            return f"line {frame.lineno} of {Path(frame.filename).name} ({frame.line})"
    return ""
