"""The server of a federation, and a library to simulate federations and to read their runs.

import edge_server

run = edge_server.simulate("fedavg", "data.source=digits", "model.name=mlp", num_clients=10, rounds=5)
print(run.summary.test_accuracy)
run.history["test_accuracy"]  # a pandas DataFrame with a line per round
run.models[1]  # the ONNX file of tier 1
edge_server.load_run(run.folder)  # a run that has ended
edge_server.load_config("fedavg", ["rounds=3"])
edge_server.recipes()  # {name: summary}
"""

from typing import TYPE_CHECKING, Any

import edge_client as edge_client

if TYPE_CHECKING:
    from edge_server.config.config import Config as Config
    from edge_server.config.load import load_config as load_config
    from edge_server.config.load import recipes as recipes
    from edge_server.simulation.library.comparison import Comparison as Comparison
    from edge_server.simulation.library.comparison import compare as compare
    from edge_server.simulation.library.comparison import sweep as sweep
    from edge_server.simulation.library.run import Run as Run
    from edge_server.simulation.library.run import load_run as load_run
    from edge_server.simulation.library.simulate import RunFailed as RunFailed
    from edge_server.simulation.library.simulate import simulate as simulate
    from schemas.errors import ConfigError as ConfigError

__all__ = [
    "Comparison",
    "Config",
    "ConfigError",
    "Run",
    "RunFailed",
    "compare",
    "load_config",
    "load_run",
    "recipes",
    "simulate",
    "sweep",
]


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


def __getattr__(name: str) -> Any:
    """Import what is asked for: torch is imported with the first simulation."""
    found: Any
    match name:
        case "Comparison":
            from edge_server.simulation.library.comparison import Comparison as found
        case "Config":
            from edge_server.config.config import Config as found
        case "ConfigError":
            from schemas.errors import ConfigError as found
        case "Run":
            from edge_server.simulation.library.run import Run as found
        case "RunFailed":
            from edge_server.simulation.library.simulate import RunFailed as found
        case "compare":
            from edge_server.simulation.library.comparison import compare as found
        case "load_config":
            from edge_server.config.load import load_config as found
        case "load_run":
            from edge_server.simulation.library.run import load_run as found
        case "recipes":
            from edge_server.config.load import recipes as found
        case "simulate":
            from edge_server.simulation.library.simulate import simulate as found
        case "sweep":
            from edge_server.simulation.library.comparison import sweep as found
        case _:
            raise AttributeError(f"module 'edge_server' has no attribute {name!r}")
    return found
