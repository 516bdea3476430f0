"""Compares parameters that `train_rounds.py` has saved: compare_rounds.py FOLDER NAME OTHER.

Prints the norm of the difference over the norm, for each network; exit code 1 where it exceeds `LIMIT`, or
where training did not change the parameters by more than that.
"""

import sys
from pathlib import Path

import numpy as np

from tests.step_graphs.parity import LIMIT, relative

found = {}
for path in sorted(Path(sys.argv[1]).glob(f"*/{sys.argv[2]}.npz")):
    mine, other, start = (dict(np.load(path.with_name(f"{name}.npz"))) for name in (*sys.argv[2:4], "arrays"))
    found[path.parent.name] = relative(mine, other), relative(mine, start)
texts = [f"{name} {apart:.0e} (changed by {moved:.0e})" for name, (apart, moved) in found.items()]
print(f"parameters after a round, difference from here: {', '.join(texts)}")
sys.exit(not found or not all(apart <= LIMIT < moved for apart, moved in found.values()))
