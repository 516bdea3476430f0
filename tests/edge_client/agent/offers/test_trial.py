"""What is saved of a trial: the same for models and for releases of the client."""

import pytest

from edge_client.agent.client_update.installation import ReleaseTrial
from edge_client.agent.offers.trial import Trial
from edge_client.agent.rollout.trial import ModelTrial
from schemas.messages import ClientOffer, ModelOffer
from schemas.messages.client_update import UpdateCause, UpdateStage
from schemas.messages.rollout import Cause, Stage
from schemas.tensors.chunks import BlobRef, digest_of

REF = BlobRef(digest=digest_of(b"file"), size=4)
WHERE = {"federation": "home", "device": "pi", "rollout": "r-1", "version": "v2", "blob": REF}
MODEL = ModelTrial(offer=ModelOffer(**WHERE, tier=1))
RELEASE = ReleaseTrial(offer=ClientOffer(**WHERE))


@pytest.mark.parametrize(
    ("begun", "kept", "cause"),
    [(MODEL, Stage.KEPT, Cause.WITHDRAWN), (RELEASE, UpdateStage.KEPT, UpdateCause.WITHDRAWN)],
    ids=["model", "client"],
)
def test_a_kept_version_is_final_until_it_is_withdrawn(begun: Trial, kept: Stage, cause: Cause) -> None:
    assert not begun.is_final
    assert begun.at(kept).is_final
    going_back = begun.with_end(kept, (cause, "by hand"), going_back=True)
    assert (going_back.is_final, going_back.stage, going_back.cause) == (False, kept, cause)
    assert going_back.stage_text() == "kept (withdrawn) by hand"
    assert begun.at("fetched").with_restart().restarts == 1


@pytest.mark.parametrize("begun", [MODEL, RELEASE], ids=["model", "client"])
def test_a_trial_is_read_as_it_was_written(begun: Trial) -> None:
    assert type(begun).parse(begun.model_dump_json().encode()) == begun


def test_only_a_client_ignores_fields_of_a_newer_version() -> None:
    assert ReleaseTrial.model_validate({**RELEASE.model_dump(), "newer": 1}) == RELEASE
    with pytest.raises(ValueError, match="newer"):
        ModelTrial.model_validate({**MODEL.model_dump(), "newer": 1})
