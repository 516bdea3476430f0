"""Which trainers a device has, which one it takes, and why."""

import pytest

from edge_client.cli.doctor.finding import Finding
from edge_client.cli.doctor.libraries import first_trainer, trainers
from tests.edge_client.training.test_choice import installed

ROOMY, TIGHT = 4 * 10**9, 239 * 10**6


def findings(wanted: str, free: int | None) -> dict[str, Finding]:
    return {finding.check: finding for finding in trainers(wanted, free)}


def test_the_choice_is_reported_with_the_memory_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "torch", "onnxruntime")
    roomy, tight = findings("auto", ROOMY), findings("auto", TIGHT)
    assert "330 MB" in roomy["trainer torch"].detail
    assert roomy["--trainer auto"].detail == (
        "takes torch: torch should find 495 MB, and 4000 MB are free; "
        "onnx where the server finds that torch does not fit"
    )
    assert tight["--trainer auto"].detail == (
        "takes onnx: torch should find 495 MB, but only 239 MB are free"
    )
    assert {finding.level for finding in (*roomy.values(), *tight.values())} == {"ok"}
    assert [first_trainer("auto", free) for free in (ROOMY, TIGHT)] == ["torch", "onnx"]


def test_a_missing_trainer_is_no_problem_beside_another(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "onnxruntime")
    found = findings("auto", ROOMY)
    assert (found["trainer torch"].level, found["trainer onnx"].level) == ("ok", "ok")
    assert found["--trainer auto"].detail == "takes onnx: no other is usable"


@pytest.mark.parametrize("others", [(), ("torch",)])
def test_an_outdated_onnxruntime_is_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    installed(monkeypatch, "onnxruntime", *others, runtime="1.13.1")
    found = findings("auto", ROOMY)
    assert found["trainer onnx"].level == "warning"
    assert found["trainer onnx"].detail == "onnxruntime 1.13.1 is too old for step graphs"
    assert found["trainer onnx"].remedy == "pip install 'onnxruntime>=1.17'"
    assert found["--trainer auto"].level == ("ok" if others else "warning")


def test_without_a_trainer_the_remedies_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    found = findings("auto", ROOMY)
    assert {finding.level for finding in found.values()} == {"warning"}
    assert "pip install 'edge-federation[onnx-client]'" in found["trainer onnx"].remedy
    assert first_trainer("auto", ROOMY) == "onnx"


def test_a_trainer_that_was_asked_for_and_is_missing_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "onnxruntime")
    found = findings("torch", ROOMY)["--trainer torch"]
    assert (found.level, found.detail) == ("failure", "torch is not installed")
    assert found.remedy == "pip install 'edge-federation[client]'"
    assert findings("onnx", ROOMY)["--trainer onnx"].detail == "takes onnx, as asked"
