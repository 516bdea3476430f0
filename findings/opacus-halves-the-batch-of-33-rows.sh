#!/usr/bin/env bash
# Guess: Opacus keeps the batch size of the loader that it makes private, on average: 32 of 33 rows as of 320.
# What happens: it draws each row with a probability of one by the number of batches, which is rounded up. Of 32 rows all are
# in the one batch; with one row more the batch is 16 on average, half as many, under the same noise, and of 100 rows it is
# 25. On small devices the noise on the gradient doubles with a row, and nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet torch==2.13.0 opacus==1.6.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import warnings

import opacus
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")


def batches(rows: int) -> tuple[int, int]:
    """The batch that Opacus expects of a loader of 32, and the mean of those that it draws."""
    torch.manual_seed(0)
    network = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    loader = DataLoader(TensorDataset(torch.zeros(rows, 2), torch.zeros(rows, dtype=torch.long)), batch_size=32)
    _, optimizer, private = opacus.PrivacyEngine().make_private(
        module=network, optimizer=optimizer, data_loader=loader, noise_multiplier=1, max_grad_norm=1
    )
    drawn = [len(batch) for _ in range(200) for batch, _ in private]
    return optimizer.expected_batch_size, round(sum(drawn) / len(drawn))


print("opacus", opacus.__version__, "torch", torch.__version__)
seen = {rows: batches(rows) for rows in (32, 33, 100, 320)}
for rows, (expected, drawn) in seen.items():
    print(f"{rows} rows in batches of 32: Opacus expects {expected}, and draws {drawn}")
assert {rows: expected for rows, (expected, _) in seen.items()} == {32: 32, 33: 16, 100: 25, 320: 32}
assert all(abs(drawn - expected) <= 1 for expected, drawn in seen.values())
PYTHON
venv/bin/python try.py
# Seen: 32 rows: 32; 33 rows: 16; 100 rows: 25; 320 rows: 32
