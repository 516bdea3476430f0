"""What a device imports before its first task: little, for boards are slow to read and to run modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "numpy", "safetensors", "zstandard", "onnx", "onnxruntime", "PIL", "cryptography"}


def imported_by(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    return set(subprocess.check_output([sys.executable, "-c", program], text=True).split())


@pytest.mark.parametrize("module", ["agent", "commands.run", "profile", "session"])
def test_a_device_waits_for_its_first_task_without_what_tensors_need(module: str) -> None:
    assert not HEAVY & imported_by(f"import edge_client.{module}")


def test_messages_and_chunks_are_spoken_without_numpy() -> None:
    loaded = imported_by("import schemas.messages, schemas.chunks")
    assert "schemas.kinds.work" in loaded
    assert not {"numpy", "safetensors"} & loaded


def test_what_a_task_needs_is_imported_with_the_work() -> None:
    assert {"numpy", "torch"} <= imported_by("import edge_client.work")
