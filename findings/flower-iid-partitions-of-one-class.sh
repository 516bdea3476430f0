#!/usr/bin/env bash
# Guess: the IidPartitioner of Flower Datasets gives each client a random share of the rows, as its documentation says: of a
# table that is sorted by class, as a folder of one sub-folder per class is read, each share has about all classes.
# What happens: it cuts the rows in their order, so that each client has one class: the worst of all partitions that are not
# IID. Only FederatedDataset, which loads from a hub, shuffles before. A DirichletPartitioner of the same table with a large
# alpha, which is meant for partitions that are not IID, does give each client all classes.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet flwr-datasets==0.6.1 datasets==4.8.5 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

from datasets import Dataset
from flwr_datasets.partitioner import DirichletPartitioner, IidPartitioner, Partitioner

CLIENTS = 4


def classes(partitioner: Partitioner) -> list[list[int]]:
    """The classes that each client has of 50 rows of each of 4 classes, sorted by class."""
    partitioner.dataset = Dataset.from_dict({"label": [row // 50 for row in range(200)]})
    return [sorted(set(partitioner.load_partition(client)["label"])) for client in range(CLIENTS)]


iid = classes(IidPartitioner(CLIENTS))
dirichlet = classes(DirichletPartitioner(CLIENTS, partition_by="label", alpha=1000, seed=1))
print("flwr-datasets", version("flwr-datasets"))
print("IidPartitioner      ", iid)
print("DirichletPartitioner", dirichlet)
assert "random" in IidPartitioner.__doc__
assert iid == [[0], [1], [2], [3]] and dirichlet == [[0, 1, 2, 3]] * CLIENTS
PYTHON
venv/bin/python try.py
# Seen: IidPartitioner [[0], [1], [2], [3]]; DirichletPartitioner [[0, 1, 2, 3]] four times
