"""The board in messages, its state and its profile, and the output of `edge-client profile`."""

import json
from pathlib import Path

import pytest

from edge_client.agent.announcer import board_state
from edge_client.cli.main import main
from edge_client.system.hardware.processor import processor
from edge_client.system.hardware.profile import keep_speeds, profile, speeds_file
from schemas.messages import Birth, encode_message
from schemas.values import BoardState, DataCard, MeasuredSpeed
from tests.edge_client.system.hardware.trees import PI, tree

CARD = DataCard(source="digits", examples=1, input_shape=(1, 8, 8), num_classes=10)
MEASURED = MeasuredSpeed(training_macs_per_s=1.5e9, memory_bytes_per_s=2e9, resident_bytes=200_000_000)
OTHER = MeasuredSpeed(trainer="onnx", training_macs_per_s=2e9, resident_bytes=85_000_000)


def test_the_birth_message_describes_the_board_and_its_state(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", PI)
    keep_speeds(speeds_file(tmp_path), (MEASURED, OTHER), processor(root))
    reported = profile(tmp_path, tier=2, root=root)
    assert reported.machine == "Raspberry Pi 3 Model B Rev 1.2"
    assert (reported.memory_bytes, reported.memory_free_bytes) == (400_000_000, 300_000_000)
    assert (reported.celsius, reported.power, reported.battery, reported.link) == (
        61.225,
        "battery",
        0.42,
        "wifi",
    )
    assert "under-voltage" in reported.throttling
    assert (reported.speed, reported.further_speeds) == (MEASURED, (OTHER,))
    assert reported.speed_with("onnx") == OTHER
    assert reported.tier == 2
    birth = Birth(federation="home", device="pi", session=1, profile=reported, data=CARD)
    assert len(encode_message(birth)) < Birth.max_bytes / 2


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe\0" * 9, b"9" * 5000])
def test_a_board_with_garbage_files_still_has_a_birth_message(tmp_path: Path, garbage: bytes) -> None:
    reported = profile(tmp_path, root=tree(tmp_path / "root", dict.fromkeys(PI, garbage)))
    assert reported.memory_bytes == 0
    assert encode_message(Birth(federation="home", device="pi", session=1, profile=reported, data=CARD))


def test_the_command_measures_and_stores_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "--state-dir", str(tmp_path), "--seconds", "0.05", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["profile"]["speed"]["memory_bytes_per_s"] > 0
    assert printed["board"]["storage"]["total"] > 0
    stored = profile(tmp_path)
    assert stored.speed == MeasuredSpeed.model_validate(printed["profile"]["speed"])
    assert [speed.trainer for speed in (stored.speed, *stored.further_speeds)] == ["torch", "onnx"]


def test_without_a_benchmark_nothing_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--state-dir", str(tmp_path), "--no-benchmark"]) == 0
    assert "not measured" in capsys.readouterr().out
    assert not speeds_file(tmp_path).exists()


def test_the_command_reads_the_device_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.toml"
    file.write_text('device-id = "pi"\nstate-dir = "here"\ntier = 3\n')
    assert main(["profile", "--config", str(file), "--seconds", "0.02", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["profile"]["tier"] == 3
    assert speeds_file(tmp_path / "here").is_file()


def test_the_state_is_read_from_the_boards_files(tmp_path):
    status = {"proc/self/status": "Name:\tpython\nVmSize:\t  100000 kB\nVmRSS:\t   50000 kB\n"}
    # The service has a limit of 400 MB and uses 150 MB, of which 50 MB are idle file pages; the load is 1.25
    # on four cores.
    assert board_state(cores=4, root=tree(tmp_path, PI, status)) == BoardState(
        celsius=61.225, battery=0.42, memory_bytes=51_200_000, memory_free_bytes=300_000_000, load=0.3125
    )


def test_a_board_without_any_of_these_files_has_an_empty_state(tmp_path):
    assert board_state(cores=0, root=tmp_path) == BoardState()


def test_impossible_values_are_omitted_and_the_rest_is_reported(tmp_path):
    wrong = {"proc/loadavg": "1e300 0 0 1/1 1\n", "proc/self/status": f"VmRSS: {10**15} kB\n"}
    assert board_state(cores=1, root=tree(tmp_path, PI, wrong)) == BoardState(
        celsius=61.225, battery=0.42, memory_free_bytes=300_000_000
    )


def test_the_free_space_is_that_of_the_given_folder(tmp_path):
    free = board_state(cores=1, root=tmp_path, folder=tmp_path).disk_free_bytes
    assert free is not None
    assert free > 0
    assert "disk_free_bytes" not in BoardState().model_dump()
