"""Step graphs on disk, by the digest of all that they depend on; a damaged file counts as none.

They lie next to drawn networks (`edge_client.inference.export.graph_cache`), and are not compared with torch
again. A file has the sha256 of its graph, then the graph.
"""

import contextlib
import hashlib
import logging
from pathlib import Path

from edge_client.inference.export.graph_cache import graphs_folder
from edge_client.storage.atomic_files import write_synced

log = logging.getLogger(__name__)

DIGEST_BYTES = 32


def kept_graph(key: str) -> bytes | None:
    """The graph of this key, if there is a sound one."""
    try:
        data = _path(key).read_bytes()
    except (OSError, RuntimeError):
        return None
    graph = data[DIGEST_BYTES:]
    if hashlib.sha256(graph).digest() == data[:DIGEST_BYTES]:
        return graph
    log.warning("%s is damaged: its training step is drawn again", _path(key))
    return None


def keep_graph(key: str, graph: bytes) -> None:
    """Store a graph, which can be drawn again if that fails."""
    with contextlib.suppress(OSError, RuntimeError):
        write_synced(_path(key), hashlib.sha256(graph).digest() + graph, durable=False)


def _path(key: str) -> Path:
    """Raises `RuntimeError` if there is no home directory."""
    return graphs_folder() / "steps" / f"{key}.step"
