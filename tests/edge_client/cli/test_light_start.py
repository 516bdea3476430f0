"""A device imports few modules before its first task, because boards are slow to load them."""

import subprocess
import sys

import pytest

from tests.benchmarks.client_import import CLIENT

TENSOR_LIBRARIES = {"torch", "numpy", "safetensors", "zstandard"}
OPTIONAL_LIBRARIES = {"onnx", "onnxruntime", "PIL", "cryptography"}


@pytest.mark.parametrize("statement", [CLIENT, "import schemas.messages, schemas.tensors.chunks"])
def test_tensor_libraries_are_not_imported_before_the_first_task(statement: str) -> None:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", program], text=True).split())
    assert "schemas.messages.tasks" in loaded
    assert not (TENSOR_LIBRARIES | OPTIONAL_LIBRARIES) & loaded
