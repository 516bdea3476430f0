"""What a drawn graph depends on besides the network: the code that draws, and its libraries."""

import hashlib
from functools import cache
from pathlib import Path

from edge_client.models import modes
from edge_client.pruning import attention
from edge_client.system.libraries import release
from edge_client.training.objectives import scaler
from edge_client.training.step_graphs import names

LIBRARIES = ("torch", "onnx", "onnxscript")


@cache
def drawing_version() -> str:
    """A digest that changes when the same network may be drawn differently."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    files += [Path(str(module.__file__)) for module in (names, attention, modes, scaler)]
    digest = hashlib.sha256(repr([release(name) for name in LIBRARIES]).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()
