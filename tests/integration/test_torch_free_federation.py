"""Devices in an environment with only the wheel and its extra `onnx-client`: no torch, no onnx."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge_client.inference.onnx_model import load_model
from edge_client.transport.broker_address import BrokerAddress
from edge_server.cli.demo import device_name, end_device, start_device
from edge_server.config.config import Config
from tests.benchmarks.torch_free import LIMIT_BYTES, run_device
from tests.integration.conftest import ONE_BROKER, Run, demo_config
from tests.memory_limit import NoGroup, limited_group
from tests.pictures import write_pictures
from tests.wheel import environment_variables, installed_with_extra, run

ROUNDS = 4
DRAWING_S = 200
"""Seconds for the run: a busy machine draws the step graphs for more than a minute."""
HEAVY = ("torch", "torchvision", "onnx", "onnxscript")
MOST_MEMORY_KB = 115_000
"""Peak of a device that trains the smallest tier of `two-nn` on 28x28 pixels."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of the environment."""
    return installed_with_extra(tmp_path_factory, "onnx-client")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Pictures of ten classes."""
    path = tmp_path / "pictures.npz"
    write_pictures(path)
    return path


def test_the_extra_brings_neither_torch_nor_onnx(programs: Path, tmp_path: Path) -> None:
    code = f"from importlib.util import find_spec; print([name for name in {HEAVY} if find_spec(name)])"
    done = run(programs / "python", "-c", code, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@contextmanager
def torch_free_device(
    config: Config, address: BrokerAddress, state: Path, programs: Path, index: int
) -> Iterator[subprocess.Popen[bytes]]:
    """A device of the environment that stays after the run, so that its peak can be read."""
    folder = state / device_name(index)
    folder.mkdir(parents=True)
    words = {
        "--broker": address,
        "--federation": config.federation.name,
        "--device-id": device_name(index),
        "--data": config.data.source,
        "--share": f"{index + 1}/{config.clients.num_clients}",
        "--tier": index + 1,
        "--threads": 1,
        "--state-dir": folder,
    }
    options = [str(word) for pair in words.items() for word in pair]
    with (folder / "client.log").open("wb") as log:
        process = subprocess.Popen(
            [programs / "edge-client", "run", *options], stdout=log, stderr=log, env=environment_variables()
        )
    try:
        yield process
    finally:
        end_device(process)


def peak_kb(process: subprocess.Popen[bytes]) -> int:
    """The largest resident memory that the process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found
    return int(found[1])


@ONE_BROKER
def test_devices_with_and_without_torch_train_together(
    serve: Callable[[Config], Run], address: BrokerAddress, programs: Path, pictures: Path, tmp_path: Path
) -> None:
    config = demo_config(
        **{
            "data.source": f"npz:{pictures}#test",
            "clients.num-clients": 3,
            "rounds": ROUNDS,
            "training.local-epochs": 5,
        }
    )
    own = config.data.model_copy(update={"source": f"npz:{pictures}#train"})
    of_devices = config.model_copy(update={"data": own})
    state = tmp_path / "devices"
    with (
        torch_free_device(of_devices, address, state, programs, 0) as smallest,
        torch_free_device(of_devices, address, state, programs, 1),
    ):
        with_torch = start_device(of_devices, address, state, 2)
        try:
            federation = serve(config)
            summary = federation.finished(within_s=DRAWING_S)
        finally:
            end_device(with_torch)
        peak = peak_kb(smallest)
    logs = {name: (state / name / "client.log").read_text() for name in map(device_name, range(3))}
    assert summary.outcome == "finished", logs
    lines = [json.loads(line) for line in (federation.folder.path / "history.jsonl").read_text().splitlines()]
    assert [sorted(line["completed"]) for line in lines] == [sorted(logs)] * ROUNDS, logs
    assert lines[-1]["test_accuracy"] > 0.8
    assert lines[-1]["tier_accuracy"]["1"] > 0.8
    for name in logs:
        delivered = load_model(state / name / "models" / "model.onnx")
        assert delivered.provenance["run_id"] == summary.run
    assert peak < MOST_MEMORY_KB, f"{peak} kB"


def test_a_device_without_torch_finishes_its_run_within_160_mib(programs: Path, tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures.npz")
    try:
        with limited_group(f"edge-test-{os.getpid()}", LIMIT_BYTES) as group:
            run_device(programs, tmp_path, group)
            assert group.killed == 0
    except NoGroup as reason:
        pytest.skip(str(reason))
