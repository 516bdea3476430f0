#!/usr/bin/env bash
# Guess: OpenFL's Dirichlet partition deals out all rows whose labels it is given, or refuses labels that it does not take.
# What happens: it counts the different labels and looks for 0, 1, 2 and so on up to that number. Of labels from 1 to 10, as of
# months, gestures or COCO's categories, no collaborator gets a row of class 10, and the model never sees one. Nothing is said. Labels
# from 0 on are dealt out whole, as are those from 1 on by the other partitions of the same module.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet dynaconf==3.3.5 tqdm==4.70.1 numpy==2.4.6
venv/bin/pip install --quiet --no-deps openfl==1.9
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
from openfl.utilities.data_splitters.numpy import DirichletNumPyDataSplitter, EqualNumPyDataSplitter, RandomNumPyDataSplitter

print("openfl", version("openfl"))
for first in (0, 1):
    labels = np.repeat(np.arange(first, first + 10), 100)
    for splitter in (DirichletNumPyDataSplitter(), EqualNumPyDataSplitter(), RandomNumPyDataSplitter()):
        rows = np.concatenate(splitter.split(labels, 5)).astype(int)
        absent = sorted(set(labels.tolist()) - set(labels[rows].tolist()))
        print(f"labels from {first}: {type(splitter).__name__} deals out {len(set(rows))} of 1000 rows, none of class {absent}")
        loses = first == 1 and isinstance(splitter, DirichletNumPyDataSplitter)
        assert absent == ([10] if loses else []) and len(rows) == len(set(rows)) == (900 if loses else 1000)
PYTHON
venv/bin/python try.py
# Seen: labels from 1: DirichletNumPyDataSplitter deals out 900 of 1000 rows, none of class [10]
