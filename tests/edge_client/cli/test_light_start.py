"""What a device imports before its first task: little, for boards are slow to read and to run modules."""

import subprocess
import sys

import pytest

from tests.benchmarks.client_import import CLIENT

OF_TENSORS = {"torch", "numpy", "safetensors", "zstandard"}
OF_FEW = {"onnx", "onnxruntime", "PIL", "cryptography"}


@pytest.mark.parametrize("statement", [CLIENT, "import schemas.messages, schemas.tensors.chunks"])
def test_what_tensors_need_is_not_imported_before_the_first_task(statement: str) -> None:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", program], text=True).split())
    assert "schemas.messages.tasks" in loaded
    assert not (OF_TENSORS | OF_FEW) & loaded
