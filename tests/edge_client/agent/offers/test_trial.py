"""What holds for every trial: of a model, and of a release of the client."""

from dataclasses import replace

import pytest

from edge_client.agent.client_update.installation import ReleaseTrial
from edge_client.agent.offers import trial as offers
from edge_client.agent.rollout.trial import ModelTrial
from schemas.messages import BlobRequest
from schemas.messages.client_update import UpdateCause, UpdateStage
from schemas.messages.rollout import Cause, Stage
from tests.chunk_bits import chunks_of
from tests.edge_client.agent.offers.by_hand import REF, Device, ModelDevice, ReleaseDevice

MODEL, RELEASE = ModelTrial(offer=ModelDevice.offer), ReleaseTrial(offer=ReleaseDevice.offer)


@pytest.fixture(params=[ModelDevice, ReleaseDevice], ids=["model", "client"])
def device(request: pytest.FixtureRequest) -> Device:
    made: Device = request.param()
    return made


@pytest.mark.parametrize(
    ("begun", "kept", "cause"),
    [(MODEL, Stage.KEPT, Cause.WITHDRAWN), (RELEASE, UpdateStage.KEPT, UpdateCause.WITHDRAWN)],
    ids=["model", "client"],
)
def test_a_kept_version_is_final_until_it_is_withdrawn(
    begun: offers.Trial, kept: Stage, cause: Cause
) -> None:
    assert not begun.is_final
    assert begun.at(kept).is_final
    going_back = begun.with_end(kept, (cause, "by hand"), going_back=True)
    assert (going_back.is_final, going_back.stage, going_back.cause) == (False, kept, cause)
    assert going_back.stage_text() == "kept (withdrawn) by hand"
    assert begun.at("fetched").with_restart().restarts == 1


@pytest.mark.parametrize("begun", [MODEL, RELEASE], ids=["model", "client"])
def test_a_trial_is_read_as_it_was_written(begun: offers.Trial) -> None:
    assert type(begun).parse(begun.model_dump_json().encode()) == begun


def test_only_a_client_ignores_fields_of_a_newer_version() -> None:
    assert ReleaseTrial.model_validate({**RELEASE.model_dump(), "newer": 1}) == RELEASE
    with pytest.raises(ValueError, match="newer"):
        ModelTrial.model_validate({**MODEL.model_dump(), "newer": 1})


@pytest.mark.parametrize("cause", ["untrusted", "incompatible", "no-space"])
def test_an_offer_with_an_objection_is_refused_without_a_download(device: Device, cause: str) -> None:
    objection = device.causes(cause), "why"
    assert device.do(offers.Offered(device.offer, objection=objection)) == [offers.CleanUp()]
    assert (device.trial.stage, device.reports[-1].cause) == (device.stages.REFUSED, cause)
    assert device.state.receiving is None


def test_what_is_in_use_is_kept_despite_a_withdrawal(device: Device) -> None:
    device.do(offers.Offered(device.offer, in_use=REF.digest))
    assert device.reports[-1].stage == "kept"
    assert device.do(offers.Withdrawn(device.withdrawal)) == []
    assert device.trial.stage is device.stages.KEPT


def test_a_repeated_offer_is_answered_with_the_current_stage(device: Device) -> None:
    device.work()
    device.do(device.switched)
    assert device.do(offers.Offered(device.offer)) == []
    assert device.reports[-1].stage is device.stages.SWITCHED


def test_a_withdrawal_while_fetching_is_a_refusal(device: Device) -> None:
    device.do(offers.Offered(device.offer))
    assert device.do(offers.Withdrawn(device.withdrawal)) == [offers.CleanUp()]
    assert (device.trial.stage, device.reports[-1].cause) == (device.stages.REFUSED, "withdrawn")


def test_results_of_another_rollout_are_ignored(device: Device) -> None:
    device.fetch()
    worked = device.works[0]
    other = replace(worked.work, offer=device.offer.model_copy(update={"rollout": "r-0"}))
    assert device.do(replace(worked, work=other)) == []
    assert device.do(offers.Worked(other, objection=(device.causes.DAMAGED, ""))) == []
    assert device.trial.stage is device.stages.FETCHED


def test_a_switch_that_fails_is_a_refusal(device: Device) -> None:
    device.work()
    assert device.do(offers.SwitchFailed((device.causes.NO_SPACE, "disk full"))) == [offers.CleanUp()]
    assert (device.trial.stage, device.reports[-1].cause) == (device.stages.REFUSED, "no-space")


def test_only_missing_chunks_are_requested_after_a_restart(device: Device) -> None:
    device.do(offers.Offered(device.offer))
    trial = device.trial
    device.state, device.done = device.fresh(), []
    device.do(offers.Restored(trial, present=chunks_of(0b01)))
    (request,) = device.messages
    assert isinstance(request, BlobRequest)
    assert (request.first, request.count) == (1, REF.chunks - 1)
