"""What doctor and profile say of onnxruntime's providers."""

import sys
from pathlib import Path

import pytest

from edge_client.cli.doctor.machine import providers
from edge_client.cli.main import main
from edge_client.inference.model_slots import ServedModel, Slots
from edge_client.inference.providers.record import keep_choice
from edge_client.inference.providers.table import ProviderSettings
from edge_client.system import libraries
from schemas.tensors.chunks import digest_of
from tests.edge_client.cli.doctor.test_libraries import interpreter
from tests.edge_client.inference.providers.test_choice import CHOICE

AVAILABLE = "echo AzureExecutionProvider,OpenVINOExecutionProvider,CPUExecutionProvider"


def test_what_is_there_is_named_and_what_runs_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python, state = interpreter(tmp_path, AVAILABLE), tmp_path / "state"
    (found,) = providers(state, python, tmp_path)
    assert (found.check, found.level, found.detail) == ("providers", "ok", "openvino, cpu")
    slots, digest = Slots(state / "serving"), digest_of(b"model")
    slots.fill(b"model", ServedModel(version="1", digest=digest))
    served = slots.switch(digest)
    keep_choice(served.path, CHOICE.model_copy(update={"digest": digest}))
    _, model = providers(state, python, tmp_path)
    assert (model.level, model.detail) == ("ok", "runs on cuda: cuda 3.00 x as fast as the CPU")
    assert main(["profile", "--state-dir", str(state), "--no-benchmark"]) == 0
    assert "cuda: cuda 3.00 x as fast as the CPU" in capsys.readouterr().out


def test_an_nvidia_device_without_its_onnxruntime_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    (found,) = providers(tmp_path, interpreter(tmp_path, AVAILABLE), tmp_path)
    assert found.level == "warning"
    assert "onnxruntime-gpu" in found.remedy


def test_a_stated_provider_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    stated = ProviderSettings(("cuda",))
    (found,) = providers(tmp_path, interpreter(tmp_path, AVAILABLE), tmp_path, stated)
    assert (found.level, found.detail) == ("failure", "this onnxruntime has no cuda, it has openvino, cpu")
    assert "onnxruntime-gpu" in found.remedy


def test_an_empty_list_of_providers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "client.toml").write_text("providers = []\n")
    assert main(["doctor", "--offline", "--config", str(tmp_path / "client.toml")]) == 2
    assert 'providers: the list is empty: state "auto"' in capsys.readouterr().err


def test_an_onnxruntime_that_crashes_is_left_to_the_check_of_libraries(tmp_path: Path) -> None:
    assert list(providers(tmp_path, interpreter(tmp_path, "kill -SEGV $$"), tmp_path)) == []
    (found,) = providers(tmp_path, sys.executable, tmp_path)
    assert found.detail.endswith("cpu")


def test_an_onnxruntime_by_another_name_has_its_release(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def version(name: str) -> str:
        if name != "onnxruntime-openvino":
            raise metadata.PackageNotFoundError(name)
        return "1.24.1"

    monkeypatch.setattr(metadata, "version", version)
    assert libraries.release("onnxruntime") == "1.24.1"
    assert libraries.release("torch") is None
