"""A worker's own settings."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from edge_client.data.dataset import LabelledData
from edge_server.simulation.client_work import ClientWork, WorkSetup
from edge_server.simulation.population import DataShares
from schemas.values import Preprocessing


@pytest.fixture(autouse=True)
def settings_are_restored() -> Iterator[None]:
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.allow_tf32
    yield
    cudnn.deterministic, cudnn.allow_tf32 = before
    torch._C._set_deterministic_algorithms(False)


@pytest.mark.parametrize(("accelerator", "repeats"), [("cuda", True), ("cpu", False)])
def test_a_worker_on_a_gpu_takes_kernels_that_repeat_their_bits(
    accelerator: str, repeats: bool, tmp_path: Path
) -> None:
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = False, True
    few = LabelledData(np.zeros((1, 1, 2, 2)), np.array([0]), ("a", "b"), Preprocessing())
    ClientWork(WorkSetup(DataShares({}, few, np.arange(0)), tmp_path, tmp_path, "mlp", accelerator))

    assert torch.are_deterministic_algorithms_enabled() is repeats
    assert torch.backends.cudnn.deterministic is repeats
    assert torch.backends.cudnn.allow_tf32 is not repeats
