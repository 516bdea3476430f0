"""Orders of examples without torch are those of torch."""

from itertools import islice

import numpy as np
import pytest
import torch

from edge_client.training.epochs import epoch_orders


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**31, 2**32 - 1, 2**32 + 7, 2**47 + 3])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 150, 5000])
def test_every_epochs_order_is_torchs(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for order in islice(epoch_orders(seed, count), 3):
        assert np.array_equal(order, torch.randperm(count, generator=generator).numpy())


def test_a_large_set_has_torchs_order() -> None:
    generator = torch.Generator().manual_seed(3)
    assert np.array_equal(next(epoch_orders(3, 70_000)), torch.randperm(70_000, generator=generator).numpy())
