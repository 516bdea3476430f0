"""The graphs that were drawn on this machine, kept for the next process that exports such a network.

They lie in `$EDGE_GRAPHS`, or else in `edge-federation/graphs` below `$XDG_CACHE_HOME` (`~/.cache` unless
that is set), in a folder per kind of network. What is found there is only tried: `export` compares what it
computes with torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from pathlib import Path

from torch import nn

from edge_client.inference.export.weights import MAX_GRAPH_BYTES, OPSET, weights_of
from edge_client.storage.atomic_files import write_synced
from edge_client.system.hardware.versions import release

log = logging.getLogger(__name__)

TRIED = 8
"""Graphs of one kind that are looked at, the newest first: each costs a comparison."""


def known_graphs(module: nn.Module, input_shape: tuple[int, ...]) -> list[bytes]:
    """The graphs that may be this network's."""
    with contextlib.suppress(OSError, RuntimeError):
        paths = sorted(_folder(module, input_shape).glob("*.onnx"), key=_age, reverse=True)
        return [path.read_bytes() for path in paths[:TRIED] if path.stat().st_size <= MAX_GRAPH_BYTES]
    return []


def keep_graph(module: nn.Module, input_shape: tuple[int, ...], graph: bytes) -> None:
    """Keep a graph; where there is no place for it, it is drawn again another time."""
    if len(graph) > MAX_GRAPH_BYTES:
        return
    try:
        path = _folder(module, input_shape) / f"{hashlib.sha256(graph).hexdigest()}.onnx"
        write_synced(path, graph, durable=False)
    except (OSError, RuntimeError) as error:
        log.info("the graph is not kept: %s", error)


def _age(path: Path) -> float:
    return path.stat().st_mtime


def _folder(module: nn.Module, input_shape: tuple[int, ...]) -> Path:
    """Networks are of a kind where their classes and the names of their weights are the same.

    What was drawn by other libraries, or by other code than this, is of another kind. Raises `RuntimeError`
    where there is no home.
    """
    code = hashlib.sha256(Path(__file__).with_name("graph_export.py").read_bytes()).hexdigest()
    versions = [release(name) or "none" for name in ("torch", "onnx", "onnxscript")]
    kind = (code, OPSET, versions, type(module).__qualname__, input_shape, sorted(weights_of(module)))
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    graphs = os.environ.get("EDGE_GRAPHS") or f"{base}/edge-federation/graphs"
    return Path(graphs).expanduser() / hashlib.sha256(repr(kind).encode()).hexdigest()[:16]
