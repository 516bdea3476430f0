#!/usr/bin/env bash
# Guess: FedLab's Dirichlet partition with a given number of rows per client (`client_inner_dirichlet_partition`, behind CIFAR10's
# partitioner with `balance` and `partition="dirichlet"`) gives each client the mix of classes that was drawn for it, as
# `hetero_dir_partition` with the same alpha does.
# What happens: the labels are shuffled first, and places in the shuffled list are returned as if they were those of the data set.
# Each client gets the right number of rows of any class: with alpha 0.5 the most frequent of 10 classes has an eighth of a
# client's rows, in place of a third. Experiments on unlike devices are then on like ones. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet pandas==3.1.1 numpy==2.4.6
venv/bin/pip install --quiet --no-deps fedlab==1.3.0
cat > try.py <<'PYTHON'
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

import numpy as np

# The module itself needs numpy and pandas alone; the package imports torch.
FEDLAB = run_path(str(Path(find_spec("fedlab").submodule_search_locations[0]) / "utils/dataset/functional.py"))
CLASSES, CLIENTS, ALPHA = 10, 10, 0.5
np.random.seed(0)
LABELS = np.random.randint(CLASSES, size=5000)


def largest_share(clients: dict[int, np.ndarray]) -> float:
    """The share of the most frequent class, a mean over clients."""
    return float(np.mean([np.bincount(LABELS[rows]).max() / len(rows) for rows in clients.values()]))


def shuffled(labels: np.ndarray, seed: int) -> np.ndarray:
    np.random.seed(seed)
    return labels[np.random.permutation(len(labels))]


print("fedlab", version("fedlab"))
unlike = largest_share(FEDLAB["hetero_dir_partition"](LABELS, CLIENTS, CLASSES, ALPHA, 10))
np.random.seed(1)
given = FEDLAB["client_inner_dirichlet_partition"](LABELS, CLIENTS, CLASSES, ALPHA, np.full(CLIENTS, 300), verbose=False)
meant = {client: np.bincount(shuffled(LABELS, 1)[rows]).max() / len(rows) for client, rows in given.items()}
print(f"largest class of a client: {unlike:.0%} by clients of any size, {largest_share(given):.0%} by clients of 300 rows", end="")
print(f" ({np.mean(list(meant.values())):.0%} in the shuffled labels)")
assert sum(len(set(rows)) for rows in given.values()) == 3000
assert unlike > 0.3 and np.mean(list(meant.values())) > 0.3 and largest_share(given) < 0.2
PYTHON
venv/bin/python try.py
# Seen: largest class of a client: 33% by clients of any size, 13% by clients of 300 rows (33% in the shuffled labels)
