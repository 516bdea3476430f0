"""What the update firewall can check of a masked update: its form, but nothing of its content.

Any masked number looks valid. Whether it is finite and within `value-range` once unmasked is up to the
device: a hostile one may send anything (deploy/docs/explanation/secure-aggregation.md).
"""

from collections.abc import Sequence

import numpy as np

from edge_client.security.secure_aggregation.mask_update import GROUP
from schemas.errors import PeerError, Reason
from schemas.messages import TrainTask, Update
from schemas.tensors.arrays import Groups, kind_of


def examine_masked(update: Update, groups: Groups, task: TrainTask, segments: Sequence[int]) -> None:
    """Raise `PeerError` unless `groups` are uint32 vectors for exactly the `segments` that it holds."""
    assert task.masking is not None
    if update.spec != task.spec:
        raise PeerError("the update is of another sub-model than the task's", reason=Reason.WRONG_SHAPE)
    held = task.masking.segments_of(task.masking.specs.index(task.spec))
    wanted = {str(index): (task.masking.segments[index].size + 1,) for index in segments if index in held}
    if not wanted:
        raise PeerError("an update before the masks are agreed", reason=Reason.STALE_ROUND)
    vectors = groups.get(GROUP, {})
    sent = {name: kind_of(vectors, name) for name in vectors}
    if groups.keys() != {GROUP} or {name: shape for name, (_, shape) in sent.items()} != wanted:
        raise PeerError(f"expected the segments {sorted(wanted)}, masked", reason=Reason.WRONG_SHAPE)
    for name, (dtype, _) in sent.items():
        if dtype != np.uint32:
            raise PeerError(f"segment {name}: expected uint32, got {dtype}", reason=Reason.WRONG_SHAPE)
