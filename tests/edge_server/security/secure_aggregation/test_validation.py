"""Checks of masked updates, whose values cannot be read."""

import numpy as np
import pytest

from edge_server.coordinator.validation.update import examine_masked
from schemas.errors import PeerError, Reason
from schemas.messages import Update
from tests.edge_server.security.secure_aggregation.cohorts import FULL, MIDDLE, TIERS, task_of, terms_of
from tests.schemas.examples import plain_update

TERMS = terms_of(TIERS)
TASK = task_of(TERMS, MIDDLE)
HELD = TERMS.segments_of(TERMS.specs.index(MIDDLE))
EVERY = tuple(range(len(TERMS.segments)))


def update(**changes) -> Update:
    return plain_update("d0", **({"spec": MIDDLE} | changes))


def groups(segments=HELD, dtype=np.uint32):
    return {
        "masked": {str(segment): np.zeros(TERMS.segments[segment].size + 1, dtype) for segment in segments}
    }


def test_integers_for_the_segments_of_the_sub_model_are_accepted():
    examine_masked(update(), groups(), TASK, EVERY)


BAD = {
    "another sub-model": (update(spec=FULL), groups(), EVERY, Reason.WRONG_SHAPE),
    "a missing segment": (update(), groups(HELD[:1]), EVERY, Reason.WRONG_SHAPE),
    "a segment that stays hidden": (update(), groups(), HELD[:1], Reason.WRONG_SHAPE),
    "an unmasked update": (update(), {"model": groups()["masked"]}, EVERY, Reason.WRONG_SHAPE),
    "an additional unmasked update": (update(), {**groups(), "model": {}}, EVERY, Reason.WRONG_SHAPE),
    "another number type": (update(), groups(dtype=np.float32), EVERY, Reason.WRONG_SHAPE),
    "before masks are agreed": (update(), groups(), (), Reason.STALE_ROUND),
}


@pytest.mark.parametrize("case", BAD)
def test_any_other_update_is_refused_with_its_reason(case):
    sent, held, segments, reason = BAD[case]
    with pytest.raises(PeerError) as refused:
        examine_masked(sent, held, TASK, segments)
    assert refused.value.reason == reason
