"""For all tests, and for the processes that they start."""

from __future__ import annotations

import os

# Before torch is imported. The networks here are so small that a second thread costs more than it brings,
# and on a busy machine ten times as much.
os.environ.setdefault("OMP_NUM_THREADS", "1")
