"""Writes a round of training of each network with its step graph: write_rounds.py FOLDER NETWORK/TIER...

The data, batches and settings are those with which step graphs are compared with torch (`tests/step_graphs`).
"""

import sys
from pathlib import Path

import numpy as np

from tests.step_graphs.cases import Case, examples, network, plan
from tests.step_graphs.following import task_of
from tests.step_graphs.graphs import write_graphs

for word in sys.argv[2:]:
    name, _, tier = word.partition("/")
    case, folder = Case(name, int(tier)), Path(sys.argv[1]) / f"{name}-{tier}"
    folder.mkdir(parents=True, exist_ok=True)
    found = network(case.model, case.tier)
    write_graphs(case, folder)
    data = examples(found.model.input_shape)
    np.savez(folder / "arrays.npz", **found.arrays)
    np.savez(folder / "examples.npz", images=data.images, labels=data.labels)
    (folder / "task.json").write_text(task_of(found, plan(case), tier=case.tier).model_dump_json())
