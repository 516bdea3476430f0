"""How far an offer has come: the same for models and for releases of the client."""

import pytest

from edge_client.agent.client_update.state import Update
from edge_client.agent.offers.progress import Progress
from edge_client.agent.rollout.state import Trial
from schemas.messages import ClientOffer, ModelOffer
from schemas.messages.client_update import UpdateCause, UpdateStage
from schemas.messages.rollout_terms import Cause, Stage
from schemas.tensors.chunks import BlobRef, digest_of

REF = BlobRef(digest=digest_of(b"file"), size=4)
WHERE = {"federation": "home", "device": "pi", "rollout": "r-1", "version": "v2", "blob": REF}
TRIAL = Trial(offer=ModelOffer(**WHERE, tier=1))
UPDATE = Update(offer=ClientOffer(**WHERE))


@pytest.mark.parametrize(
    ("begun", "kept", "cause"),
    [(TRIAL, Stage.KEPT, Cause.WITHDRAWN), (UPDATE, UpdateStage.KEPT, UpdateCause.WITHDRAWN)],
    ids=["model", "client"],
)
def test_a_kept_version_is_final_until_it_is_withdrawn(begun: Progress, kept: Stage, cause: Cause) -> None:
    assert not begun.final
    assert begun.at(kept).final
    going_back = begun.at(kept).returning(cause, "by hand")
    assert (going_back.final, going_back.stage, going_back.cause) == (False, kept, cause)
    assert going_back.stage_text() == "kept (withdrawn) by hand"
    assert begun.restarted().restarts == 1


@pytest.mark.parametrize("begun", [TRIAL, UPDATE], ids=["model", "client"])
def test_progress_is_read_as_it_was_written(begun: Progress) -> None:
    assert type(begun).model_validate_json(begun.model_dump_json()) == begun


def test_only_a_client_ignores_fields_of_a_newer_version() -> None:
    assert Update.model_validate({**UPDATE.model_dump(), "newer": 1}) == UPDATE
    with pytest.raises(ValueError, match="newer"):
        Trial.model_validate({**TRIAL.model_dump(), "newer": 1})
