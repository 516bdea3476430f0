"""A federation on this machine: each device is a process, of tier 1, 2 and so on."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from edge_client.data.sources import part_of
from edge_client.transport.broker_link import BrokerAddress
from edge_server.config.config import Config
from edge_server.coordinator.launch import serve
from edge_server.observability.snapshot import Watcher
from edge_server.storage.records import Summary
from schemas.errors import ConfigError

DEMO = Path(__file__).with_name("demo.toml")
BOARDS = ("pi-zero-attic", "pi-3-garage", "pi-4-kitchen", "jetson-porch", "mini-pc-office")
"""Names only: each process has the tier of such a board."""
WITHOUT_TORCH = """\
import sys
sys.modules.update(dict.fromkeys(("torch", "torchvision", "onnx", "onnxscript")))
from edge_client.cli.main import main
sys.exit(main())
"""  # Runs `edge-client` as on a board where these packages are not installed


def run_demo(
    config: Config,
    address: BrokerAddress,
    watcher: Watcher,
    *,
    out: Path,
    run: str | None = None,
    torch_free: int = 0,
) -> Summary:
    """Start the devices, serve the federation as `run`, end the devices; all files are in `out`.

    The first `torch_free` devices, which have the lowest tiers, cannot import torch.

    Devices and server share one source, by default the shipped digits: the server tests on the part that no
    device has.
    """
    source = config.data.source
    if source is None and config.model.input_shape is None:
        source = "digits"
    if source is None:
        raise ConfigError(
            "the devices of a demo need one, for instance data.source=digits", key="[data] source"
        )
    apart = config.data.model_copy(update={"source": part_of(source, "test")})
    config = config.model_copy(update={"data": apart})
    with devices(config, address, out / "devices", torch_free=torch_free):
        return serve(config, address, watcher, out=out, run=run)


@contextlib.contextmanager
def devices(
    config: Config, address: BrokerAddress, state: Path, *, torch_free: int = 0
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Device processes, one per client, the first `torch_free` of them without torch.

    Each process is ended by its process id at the end of the block.
    """
    count = config.clients.num_clients
    started: list[subprocess.Popen[bytes]] = []
    try:
        for index in range(count):
            program = ["-c", WITHOUT_TORCH] if index < torch_free else ["-m", "edge_client.cli.main"]
            started.append(start_device(config, address, state, index, [sys.executable, *program]))
        yield started
    finally:
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
        for process in started:
            end_device(process)


def device_name(index: int) -> str:
    """The name of device `index`, from 0."""
    board = BOARDS[index % len(BOARDS)]
    return board if index < len(BOARDS) else f"{board}-{index // len(BOARDS) + 1}"


def device_words(config: Config, address: BrokerAddress, state: Path, index: int) -> list[str]:
    """The arguments of `edge-client run` for device `index`, whose folder is below `state`."""
    simulated = config.simulation
    words = {
        "--broker": str(address),
        "--federation": config.federation.name,
        "--device-id": device_name(index),
        "--data": part_of(config.data.source, "train") if config.data.source else None,
        "--data-root": config.data.data_root,
        "--partition": config.data.partition_spec,
        "--share": f"{index + 1}/{config.clients.num_clients}",
        "--seed": config.federation.seed,
        "--tier": index % len(config.tiers.ratios) + 1,
        "--state-dir": state / device_name(index),
        "--threads": 1,
        "--hold-out": simulated.hold_out if "hold_out" in simulated.model_fields_set else None,
        "--model-code": config.model.name if ":" in config.model.name else None,
    }
    return ["--once", *(str(word) for pair in words.items() if pair[1] is not None for word in pair)]


def start_device(
    config: Config,
    address: BrokerAddress,
    state: Path,
    index: int,
    program: Sequence[str] = (sys.executable, "-m", "edge_client.cli.main"),
) -> subprocess.Popen[bytes]:
    """Start a device process, of tier 1 for index 0 and so on; it ends with the run.

    `program` is `edge-client` as a command.
    """
    folder = state / device_name(index)
    folder.mkdir(parents=True, exist_ok=True)
    command = [*program, "run", *device_words(config, address, state, index)]
    with (folder / "client.log").open("wb") as log:
        # A session of its own: Ctrl-C reaches the server alone, which ends the run for all.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def end_device(process: subprocess.Popen[bytes]) -> None:
    """End a device process if it still runs."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
