"""Cache of the graphs drawn on this machine, for later exports of the same kind of network.

The cache is `$EDGE_GRAPHS`, by default `edge-federation/graphs` below `$XDG_CACHE_HOME` (`~/.cache`), with a
folder per kind of network. A cached graph is not trusted: `onnx` compares its outputs with torch.
"""

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from torch import nn

from edge_client.inference.export.graph_export import weights_of
from edge_client.models.graphs.checks import OPSET
from edge_client.models.graphs.filling import MAX_GRAPH_BYTES
from edge_client.storage.atomic_files import write_synced
from edge_client.system.libraries import release

log = logging.getLogger(__name__)

TRIED = 8  # number of graphs of one kind that are tried, the newest first: each costs a comparison


def known_graphs(module: nn.Module, input_shape: tuple[int, ...]) -> Iterator[bytes]:
    with contextlib.suppress(OSError, RuntimeError):
        graphs = _folder(module, input_shape).glob("*.onnx")
        paths = sorted(graphs, key=lambda path: path.stat().st_mtime, reverse=True)
        yield from [path.read_bytes() for path in paths[:TRIED] if path.stat().st_size <= MAX_GRAPH_BYTES]


def keep_graph(module: nn.Module, input_shape: tuple[int, ...], graph: bytes) -> None:
    """Store a graph; a failure is only logged, since the graph can be drawn again."""
    if len(graph) > MAX_GRAPH_BYTES:
        return
    try:
        path = _folder(module, input_shape) / f"{hashlib.sha256(graph).hexdigest()}.onnx"
        write_synced(path, graph, durable=False)
    except (OSError, RuntimeError) as error:
        log.info("the graph is not kept: %s", error)


def _folder(module: nn.Module, input_shape: tuple[int, ...]) -> Path:
    """The folder of networks with the same class and weight names, drawn by the same code and libraries.

    Raises `RuntimeError` if there is no home directory.
    """
    code = hashlib.sha256(Path(__file__).with_name("graph_export.py").read_bytes()).hexdigest()
    versions = [release(name) or "none" for name in ("torch", "onnx", "onnxscript")]
    kind = (code, OPSET, versions, type(module).__qualname__, input_shape, sorted(weights_of(module)))
    return graphs_folder() / hashlib.sha256(repr(kind).encode()).hexdigest()[:16]


def graphs_folder() -> Path:
    """The folder of drawn graphs; raises `RuntimeError` if there is no home directory."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("EDGE_GRAPHS") or f"{base}/edge-federation/graphs").expanduser()
