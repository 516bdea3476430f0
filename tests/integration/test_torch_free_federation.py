"""Devices in an environment with only the wheel and its extra `onnx-client`: no torch, no onnx."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edge_client.inference.export.onnx import find_graph
from edge_client.inference.onnx_model import load_model
from edge_client.models.build import build_model
from edge_client.transport.broker_link import BrokerAddress, parse_address
from edge_server.cli.demo import device_name, end_device
from edge_server.config.config import Config
from edge_server.storage.records import Summary
from edge_server.transport.broker.launch import find_mosquitto, running_broker
from schemas.values import ModelSpec
from tests.benchmarks.torch_free import LIMIT_BYTES
from tests.integration.conftest import BROKERS, Run, demo_config
from tests.integration.device_threads import devices
from tests.memory_limit import LimitedGroup, NoGroup, limited_group
from tests.pictures import write_pictures
from tests.slow import SLOW
from tests.wheel import environment_variables, installed_with_extra, run

pytestmark = SLOW

NETWORK = ModelSpec(name="two-nn", input_shape=(1, 28, 28), num_classes=10)
ROUNDS = 3
DRAWING_S = 200
"""Seconds for the run: a busy machine draws the step graphs for more than a minute."""
HEAVY = ("torch", "torchvision", "onnx", "onnxscript")
MAX_MEMORY_KB = 115_000
"""Peak of a device that trains the smallest tier of `two-nn` on 28x28 pixels."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of the environment."""
    return installed_with_extra(tmp_path_factory, "onnx-client")


def test_the_extra_brings_neither_torch_nor_onnx(programs: Path, tmp_path: Path) -> None:
    code = f"from importlib.util import find_spec; print([name for name in {HEAVY} if find_spec(name)])"
    done = run(programs / "python", "-c", code, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@dataclass(frozen=True)
class Federation:
    """A run that has ended, the folder of its devices, and what the one without torch has used.

    `killed` is the number of processes killed for their limit of memory, or why there is no limit.
    """

    summary: Summary
    rounds: list[dict[str, Any]]
    state: Path
    peak_kb: int
    killed: int | NoGroup

    def log(self) -> str:
        """What the device without torch has written."""
        return (self.state / device_name(0) / "client.log").read_text()


@pytest.fixture(scope="module")
def federation(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A run of a device without torch that has 160 MiB, and of one with torch."""
    folder = tmp_path_factory.mktemp("federation")
    write_pictures(folder / "pictures.npz")
    # The server would draw the network in a process of its own.
    find_graph(build_model(NETWORK), NETWORK.input_shape)
    with running_broker(BROKERS[find_mosquitto() is not None], folder / "broker") as broker:
        yield trained_together(parse_address(broker.url), programs, folder)


def trained_together(address: BrokerAddress, programs: Path, folder: Path) -> Federation:
    """Run the federation; the server and the device with torch are threads of this process."""
    words = {"model.name": NETWORK.name, "clients.num-clients": 2, "rounds": ROUNDS, "local-epochs": 5}
    config = demo_config(**words, **{"data.source": f"npz:{folder}/pictures.npz#test"})
    own = config.data.model_copy(update={"source": f"npz:{folder}/pictures.npz#train"})
    of_devices, state = config.model_copy(update={"data": own}), folder / "devices"
    with ExitStack() as stack:
        group = limited(stack)
        limited_device = stack.enter_context(torch_free_device(of_devices, address, state, programs, group))
        stack.enter_context(devices(of_devices, address, state, first=1))
        run = Run(config, address, folder / "run")
        stack.callback(run.stop)
        summary = run.finished(within_s=DRAWING_S)
        killed = group if isinstance(group, NoGroup) else group.killed
        peak = peak_kb(limited_device)
    lines = (run.folder.path / "history.jsonl").read_text().splitlines()
    return Federation(summary, [json.loads(line) for line in lines], state, peak, killed)


def limited(stack: ExitStack) -> LimitedGroup | NoGroup:
    """A group with a limit of memory, or why this machine makes none."""
    try:
        return stack.enter_context(limited_group(f"edge-test-{os.getpid()}", LIMIT_BYTES))
    except NoGroup as reason:
        return reason


@contextmanager
def torch_free_device(
    config: Config, address: BrokerAddress, state: Path, programs: Path, group: LimitedGroup | NoGroup
) -> Iterator[subprocess.Popen[bytes]]:
    """A device of the environment that stays after the run, so that its peak can be read."""
    folder = state / device_name(0)
    folder.mkdir(parents=True)
    words = {
        "--broker": address,
        "--federation": config.federation.name,
        "--device-id": device_name(0),
        "--data": config.data.source,
        "--share": f"1/{config.clients.num_clients}",
        "--tier": 1,
        "--threads": 1,
        "--state-dir": folder,
    }
    command = [str(programs / "edge-client"), "run", *(str(word) for pair in words.items() for word in pair)]
    if isinstance(group, LimitedGroup):
        command = group.command(command)
    with (folder / "client.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment_variables())
    try:
        yield process
    finally:
        end_device(process)


def peak_kb(process: subprocess.Popen[bytes]) -> int:
    """The largest resident memory that the process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found
    return int(found[1])


def test_devices_with_and_without_torch_train_together(federation: Federation) -> None:
    log, rounds = federation.log(), federation.rounds
    assert federation.summary.outcome == "finished", log
    names = sorted(map(device_name, range(2)))
    assert [sorted(line["completed"]) for line in rounds] == [names] * ROUNDS, log
    assert rounds[-1]["test_accuracy"] > 0.8
    assert rounds[-1]["tier_accuracy"]["1"] > 0.8
    for name in names:
        delivered = load_model(federation.state / name / "models" / "model.onnx")
        assert delivered.provenance["run_id"] == federation.summary.run


def test_a_device_without_torch_needs_little_memory(federation: Federation) -> None:
    assert federation.peak_kb < MAX_MEMORY_KB, f"{federation.peak_kb} kB"


def test_a_device_without_torch_finishes_its_run_within_160_mib(federation: Federation) -> None:
    if isinstance(federation.killed, NoGroup):
        pytest.skip(str(federation.killed))
    assert federation.summary.outcome == "finished", federation.log()
    assert federation.killed == 0
    name = device_name(0)
    assert name in federation.rounds[-1]["completed"]
    assert (federation.state / name / "models" / "model.onnx").exists()
