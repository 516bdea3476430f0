"""The engines by name; the imports of an engine are late, since few runs need Ray."""

import os
import secrets
import socket
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from edge_client.system.hardware.processor import usable_cores
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.config.run_sections import SimulationSettings
    from edge_server.simulation.client_work import CohortWorkers, Engine, WorkSetup

    Begin = Callable[[WorkSetup], Engine[Any]]


REACHABLE_S = 10.0


def _local(settings: "SimulationSettings") -> "Begin":
    check_device(settings)
    workers = settings.workers or usable_cores()
    if workers == 1:
        from edge_server.simulation.local_engine import OwnProcessEngine

        return lambda setup: in_cohorts(OwnProcessEngine(setup), setup)
    from edge_server.simulation.local_engine import LocalEngine, warm_up

    warm_up()
    return lambda setup: in_cohorts(LocalEngine(setup, workers=workers), setup)


def in_cohorts(workers: "CohortWorkers[Any]", setup: "WorkSetup") -> "Engine[Any]":
    """An engine whose workers get the set-up's number of jobs at once."""
    if setup.cohort == 1:
        return workers
    from edge_server.simulation.cohorts import CohortEngine

    return CohortEngine(workers, size=setup.cohort)


def _ray(settings: "SimulationSettings") -> "Begin":
    if find_spec("ray") is None:
        raise ConfigError(
            "'ray' needs Ray", key="[simulation] engine", remedy="pip install 'edge-federation[ray]'"
        )
    # Ray reads these when it is imported.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if settings.ray_address is None:
        _keep_ray_to_this_process()
    else:
        _check_reachable(settings.ray_address)
    from edge_server.simulation.ray_engine import RayEngine, begun_cluster, joined_cluster

    if settings.ray_address is None:
        return lambda setup: RayEngine(setup, begun_cluster(settings.workers or usable_cores()))
    address = settings.ray_address
    return lambda setup: RayEngine(setup, joined_cluster(address, settings.workers))


def _keep_ray_to_this_process() -> None:
    """Make a cluster started here listen on loopback and accept only this process's token."""
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    if "RAY_AUTH_MODE" not in os.environ:
        # Otherwise Ray would write a token to the user's home folder.
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _check_reachable(address: str) -> None:
    """Check an address `host:port`, since Ray itself would wait for minutes; others are left to Ray."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=REACHABLE_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"no Ray at '{address}': {error}", key="[simulation] ray-address") from error


ENGINES: "dict[str, Callable[[SimulationSettings], Begin]]" = {"local": _local, "ray": _ray}


def check_device(settings: "SimulationSettings") -> None:
    """`ConfigError` if this machine has to train on a GPU and torch finds none."""
    if settings.engine != "local" or settings.device != "cuda":
        return
    import torch

    if not torch.cuda.is_available():
        raise ConfigError("torch finds no CUDA device here", key="[simulation] device", remedy="use 'cpu'")


def prepare_engine(settings: "SimulationSettings") -> "Begin":
    """A function that starts the engine. `ConfigError` if it cannot run; its processes start early."""
    return ENGINES[settings.engine](settings)
