"""The graphs of a case, drawn as a server draws them; the server's cache on disk keeps them."""

from functools import lru_cache
from pathlib import Path

from edge_client.pruning.surgery import arrays_of
from edge_server.coordinator.global_model import GlobalModel
from edge_server.coordinator.step_graphs import StepGraphs
from tests.step_graphs.cases import Case, Network, network, objectives


def write_graphs(case: Case, folder: Path) -> dict[str, Path]:
    """The files of the graphs by the names of their blobs."""
    drawn = _drawn(case)
    paths = {name: folder / f"{name}.onnx" for name in drawn}
    for name, data in drawn.items():
        paths[name].write_bytes(data)
    return paths


def _drawn(case: Case) -> dict[str, bytes]:
    found = network(case.model, case.tier)
    drawing = _drawing(found)
    return drawing.of(arrays_of(found.whole), found.spec, objectives(case), {}, trains=True)


@lru_cache(maxsize=1)
def _drawing(found: Network) -> StepGraphs:
    whole = GlobalModel(found.whole, found.model, found.channels)
    return StepGraphs(whole, found.channels, found.model.input_shape, found.model.name)
