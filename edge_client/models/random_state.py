"""The global random generators that a network may draw from: torch's, numpy's and Python's."""

import contextlib
import random
from collections.abc import Iterator, Sequence

import numpy as np
import torch


@contextlib.contextmanager
def seed_generators(seed: int, devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """Seed all generators inside, with those of CUDA `devices`, and restore them after."""
    numpys, pythons = np.random.get_state(legacy=True), random.getstate()
    with torch.random.fork_rng(devices=list(devices)):
        # torch.manual_seed would store the seed, with the call stack, for each unused kind of device.
        (torch.manual_seed if devices else torch.default_generator.manual_seed)(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpys)
            random.setstate(pythons)
