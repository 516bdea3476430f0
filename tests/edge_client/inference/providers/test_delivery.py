"""What runs a delivered or rolled-out model: tried once, carried into the slot, and said in births."""

from pathlib import Path

from edge_client.agent.eligibility.verdict import MAY_TRAIN
from edge_client.agent.rollout.delivery import put_delivered_in_use
from edge_client.agent.rollout.trial import ComparisonRunner, ModelPair
from edge_client.agent.settings import TaskContext
from edge_client.data.local import LocalData
from edge_client.inference import installed_model
from edge_client.inference.model_slots import ServedModel
from edge_client.inference.providers.record import choice_in_use, keep_choice
from edge_client.inference.providers.table import ANY_PROVIDER
from edge_client.inference.providers.trial_process import MIN_EXAMPLES
from edge_client.inference.service.health import HealthWriter
from edge_client.inference.service.metrics import RequestMetrics
from edge_client.inference.service.model_source import MAX_CRASHES, SlotSource
from edge_client.inference.service.predictor import Predictor
from edge_client.storage.blob_store import BlobStore
from tests.edge_client.agent.births import Births
from tests.edge_client.inference.providers.conftest import Offer
from tests.edge_client.inference.providers.test_trial import CRASHES, FAST, LIES, digest_of, examples_of
from tests.slow import mark_slow


def deliver(model: Path, state: Path) -> None:
    """Put the model in use as a delivery does."""
    examples = examples_of(model)
    data = LocalData(examples, examples)
    context = TaskContext("pi-1", BlobStore(state / "blobs"), data, state / "models", providers=ANY_PROVIDER)
    installed_model.begin(context.models).write_bytes(model.read_bytes())
    note = ServedModel(version="home round 3", digest=digest_of(model))
    assert put_delivered_in_use(context, note, None, examples).verdict.served


def test_a_delivery_tries_and_the_service_uses_the_result(model: Path, offer: Offer, tmp_path: Path) -> None:
    offer(FAST, LIES, CRASHES)
    deliver(model, tmp_path / "state")
    slots = installed_model.slots(tmp_path / "state" / "models")
    served = slots.current()
    assert served is not None
    choice = choice_in_use(served.path, served.model.digest)
    assert choice is not None
    assert choice.provider == "cuda"
    assert [trial.examples >= MIN_EXAMPLES for trial in choice.trials] == [True, True, False]
    predictor = Predictor(SlotSource(slots, providers=ANY_PROVIDER), RequestMetrics())
    predictor.refresh()
    assert predictor.provider == "cuda"
    # The same delivery again, and another start, try nothing.
    offer(FAST, LIES, CRASHES)
    deliver(model, tmp_path / "state")
    assert choice_in_use(served.path, served.model.digest) == choice


def test_births_say_what_runs_the_model(model: Path, offer: Offer, tmp_path: Path) -> None:
    births = Births(tmp_path / "state")
    assert "provider" not in births.presence.birth(MAY_TRAIN).model_dump()
    offer(FAST)
    deliver(model, tmp_path / "state")
    assert births.presence.has_new_model()
    birth = births.presence.birth(MAY_TRAIN)
    assert (birth.model, birth.provider) == ("home round 3", "cuda")
    assert birth.page_texts == {"Models run on": "cuda"}
    slot = installed_model.slots(tmp_path / "state" / "models").current()
    assert slot is not None
    choice = choice_in_use(slot.path, slot.model.digest)
    assert choice is not None
    assert not births.presence.has_new_model()
    keep_choice(slot.path, choice.with_failure("the device is gone"))
    assert births.presence.has_new_model()
    assert births.presence.birth(MAY_TRAIN).provider == "cpu"


def test_a_process_that_has_crashed_with_a_provider_takes_the_cpu(
    model: Path, offer: Offer, tmp_path: Path
) -> None:
    offer(FAST)
    deliver(model, tmp_path / "state")
    slots = installed_model.slots(tmp_path / "state" / "models")
    providers = []
    # A start is counted before the model is loaded, and an end never comes.
    for _ in range(MAX_CRASHES + 2):
        predictor = Predictor(
            SlotSource(slots, providers=ANY_PROVIDER), RequestMetrics(), HealthWriter(slots)
        )
        predictor.refresh()
        providers.append(predictor.provider)
    assert providers == ["cuda"] * (MAX_CRASHES + 1) + ["cpu"]


@mark_slow
def test_a_rollouts_comparison_records_what_runs_the_candidate(
    model: Path, offer: Offer, tmp_path: Path
) -> None:
    offer(FAST, LIES)
    examples, beside = examples_of(model), tmp_path / "candidate.onnx"
    data = LocalData(examples, examples)
    runner = ComparisonRunner(lambda: data, tmp_path / "examples.npz", providers=ANY_PROVIDER)
    found = runner.compare(ModelPair(None, model, recorded=beside), 20)
    assert found.objection is None
    choice = choice_in_use(beside, digest_of(model))
    assert choice is not None
    assert choice.provider == "cuda"
    assert choice.trials[0].examples >= MIN_EXAMPLES


def test_a_device_with_the_cpu_alone_records_nothing(model: Path, offer: Offer, tmp_path: Path) -> None:
    offer()
    deliver(model, tmp_path / "state")
    slot = tmp_path / "state" / "serving" / "a"
    assert sorted(path.name for path in slot.iterdir()) == ["model.json", "model.onnx"]
