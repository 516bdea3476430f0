"""The server of a federation, and a library to simulate federations and to read their runs.

import edge_server

run = edge_server.simulate("fedavg", "data.source=digits", "model.name=mlp", num_clients=10, rounds=5)
run.history["test_accuracy"]  # one value per round
run.models[1]  # the ONNX file of tier 1
edge_server.load_run("runs/home")  # a run that has ended
edge_server.load_config("federation.toml", ["rounds=3"])
edge_server.recipes()  # {name: summary}
"""

from typing import TYPE_CHECKING, Any

import edge_client as edge_client

if TYPE_CHECKING:
    from edge_server.config.config import Config as Config
    from edge_server.config.load import load_config as load_config
    from edge_server.config.recipe_files import recipes as recipes
    from edge_server.simulation.from_python import simulate as simulate
    from edge_server.storage.run import Run as Run
    from edge_server.storage.run import load_run as load_run

__all__ = ["Config", "Run", "load_config", "load_run", "recipes", "simulate"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: torch is imported with the first simulation."""
    found: Any
    match name:
        case "Config":
            from edge_server.config.config import Config as found
        case "Run":
            from edge_server.storage.run import Run as found
        case "load_config":
            from edge_server.config.load import load_config as found
        case "load_run":
            from edge_server.storage.run import load_run as found
        case "recipes":
            from edge_server.config.recipe_files import recipes as found
        case "simulate":
            from edge_server.simulation.from_python import simulate as found
        case _:
            raise AttributeError(f"module 'edge_server' has no attribute {name!r}")
    return found
