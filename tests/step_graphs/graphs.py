"""The graphs of a case, drawn as a server draws them; the server's cache on disk keeps them."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from edge_client.pruning.surgery import arrays_of
from edge_server.coordinator.global_model import GlobalModel
from edge_server.coordinator.step_graphs import StepGraphs
from schemas.strategy import Component
from tests.step_graphs.cases import Case, Network, network, objectives


def write_graphs(case: Case, folder: Path) -> dict[str, Path]:
    """The files of the case's graphs by the names of their blobs."""
    return write(drawn(network(case.model, case.tier), objectives(case)), folder)


def write(graphs: Mapping[str, bytes], folder: Path) -> dict[str, Path]:
    """The files of the graphs, by the same names."""
    paths = {name: folder / f"{name}.onnx" for name in graphs}
    for name, data in graphs.items():
        paths[name].write_bytes(data)
    return paths


def drawn(found: Network, chosen: tuple[Component, ...]) -> dict[str, bytes]:
    """The network's graphs with these objectives, by the names of their blobs."""
    return _drawing(found).of(arrays_of(found.whole), found.spec, chosen, {}, trains=True)


@lru_cache(maxsize=1)
def _drawing(found: Network) -> StepGraphs:
    """Draws each graph of a network once."""
    whole = GlobalModel(found.whole, found.model, found.channels)
    return StepGraphs(whole, found.channels, found.model)
