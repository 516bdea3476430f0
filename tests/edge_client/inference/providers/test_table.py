"""The table of providers, what a user asks for, and what a choice holds for."""

import hashlib
import mmap
import os
import time
from pathlib import Path
from typing import get_args

import pytest

from edge_client.cli.device_options import ProviderName
from edge_client.cli.main import main
from edge_client.inference.providers import table, trial
from edge_client.inference.providers.table import CPU
from schemas.errors import ConfigError
from tests.edge_client.inference.test_onnx_model import write_model

EVERY = [row.runtime_name for row in table.PROVIDERS.values()]
OLD = "AzureExecutionProvider"  # of a plain onnxruntime: none of ours


def test_every_row_is_complete_and_a_name_on_the_command_line() -> None:
    assert [*table.PROVIDERS][-1] == CPU.name
    assert set(get_args(ProviderName)) == {table.AUTO, *table.PROVIDERS}
    for name, row in table.PROVIDERS.items():
        assert (row.name, row.runtime_name[-17:]) == (name, "ExecutionProvider")
        assert row.package
        assert all(before in table.PROVIDERS for before in row.before)
        for threads in (None, 2):
            options = row.options(threads, "/engines")
            assert all(isinstance(value, str) for value in options.values())
            assert ("/engines" in options.values()) == row.builds_engines


def test_openvino_computes_in_32_bits_with_the_devices_threads() -> None:
    options = table.PROVIDERS["openvino"].options
    assert options(3, "") == {"device_type": "CPU", "precision": "FP32", "num_of_threads": "3"}
    assert "num_of_threads" not in options(None, "")


def test_what_is_there_is_tried_in_the_order_of_the_table() -> None:
    assert table.ANY_PROVIDER.accelerators([OLD, CPU.runtime_name]) == ()
    found = table.ANY_PROVIDER.accelerators(EVERY[::-1])
    assert [row.name for row in found] == [*table.PROVIDERS][:-1]


@pytest.mark.parametrize(
    ("names", "tried"),
    [
        (("openvino", "cuda"), ["openvino", "cuda"]),
        (("cuda", "cpu", "openvino"), ["cuda"]),
        (("cpu",), []),
        (("cuda", "auto"), [*table.PROVIDERS][:-1]),
    ],
)
def test_a_list_is_tried_in_its_order_up_to_the_cpu(names: tuple[str, ...], tried: list[str]) -> None:
    assert [row.name for row in table.ProviderSettings(names).accelerators(EVERY)] == tried


def test_one_that_is_not_there_is_refused_with_what_is_there_and_the_remedy() -> None:
    with pytest.raises(ConfigError) as caught:
        table.ProviderSettings(("openvino", "cuda")).accelerators([EVERY[2], CPU.runtime_name])
    assert str(caught.value) == (
        "--providers cuda: this onnxruntime has no cuda, it has openvino, cpu: install onnxruntime-gpu "
        "(on a Jetson NVIDIA's wheel for its JetPack) in place of onnxruntime"
    )


@pytest.mark.parametrize("verb", ["infer", "serve", "bench", "run"])
def test_the_verbs_end_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    path = str(write_model(tmp_path / "model.onnx"))
    inputs = {"infer": [path, "digits"], "run": ["--data", "digits", "--state-dir", str(tmp_path / "state")]}
    assert main([verb, *inputs.get(verb, [path]), "--providers", "acl"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--providers acl: this onnxruntime has no acl, it has" in line


def put(root: Path, place: str, text: str) -> None:
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).write_text(text)


def test_a_choice_holds_for_a_driver_and_a_power_mode(tmp_path: Path) -> None:
    rows = [table.PROVIDERS["cuda"], table.PROVIDERS["openvino"]]
    assert table.circumstances(rows, "1.24.1", tmp_path) == {
        "onnxruntime": "1.24.1",
        "providers": "cuda,openvino",
    }
    put(tmp_path, "etc/nv_tegra_release", "# R36 (release), REVISION: 4.3\nanything\n")
    put(tmp_path, "var/lib/nvpmodel/status", "pmode:0002\n")
    put(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil\n")
    assert table.power_mode(tmp_path) == "pmode:0002 schedutil"
    assert table.circumstances(rows, "1.24.1", tmp_path) == {
        "onnxruntime": "1.24.1",
        "providers": "cuda,openvino",
        "power": "pmode:0002 schedutil",
        "driver of cuda": "# R36 (release), REVISION: 4.3",
    }


def test_a_process_that_may_not_make_code_needs_a_choice_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    usual = table.circumstances([table.PROVIDERS["openvino"]], "1", tmp_path)
    monkeypatch.setattr(mmap, "mmap", forbid)
    assert table.circumstances([table.PROVIDERS["openvino"]], "1", tmp_path) == {
        **usual,
        "code at run time": "forbidden",
    }


def test_engines_are_kept_by_model_provider_options_driver_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    row, root = table.PROVIDERS["tensorrt"], tmp_path / "board"

    def folder(digest: str = "a", runtime: str = "1.24.1") -> str:
        return trial.engines_folder(row, digest, threads=1, runtime=runtime, root=root)

    first = folder()
    assert Path(first).is_dir()
    assert folder() == first
    others = {folder("b"), folder(runtime="1.25.0")}
    put(root, "proc/driver/nvidia/version", "NVRM version: 570.86\n")
    others.add(folder())
    assert len({first, *others}) == 4
    assert trial.engines_folder(table.PROVIDERS["openvino"], "a", threads=1, runtime="1") == ""


def test_engines_that_were_not_used_for_longest_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folders = []
    for number in range(trial.MAX_FOLDERS + 2):
        digest = hashlib.sha256(bytes([number])).hexdigest()
        folders.append(trial.engines_folder(table.PROVIDERS["tensorrt"], digest, threads=1, runtime="1"))
        os.utime(folders[-1], (time.time() - 1000 + number,) * 2)
    there = [Path(folder).exists() for folder in folders]
    assert there == [False, False, *[True] * trial.MAX_FOLDERS]
