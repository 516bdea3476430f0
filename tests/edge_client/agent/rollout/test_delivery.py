"""A delivered model is compared with the one in use, and served only if it is not worse."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.agent.rollout import delivery
from edge_client.agent.rollout.comparison_process import local_examples
from edge_client.agent.rollout.delivery import put_delivered_in_use
from edge_client.agent.rollout.trial import Comparison, ComparisonRunner, ModelPair
from edge_client.agent.settings import TaskContext
from edge_client.data.dataset import make_labelled_data
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.inference import installed_model
from edge_client.inference.model_slots import ServedModel
from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.tasks.task import DELIVERY_TERMS
from schemas.messages.rollout import Cause, TrialTerms
from schemas.tensors.chunks import digest_of
from schemas.values import DeliveryVerdict
from tests.edge_client.inference.test_model_slots import PowerCut, failing_power
from tests.edge_client.signed import SERVER, manifest_of
from tests.edge_server.releases.rollout.measured import measured
from tests.edge_server.releases.rollout.sample_versions import classifier, fitted

OLD, NEW, ROLLED_OUT = b"the model in use" * 9, b"the delivered model" * 9, b"the model of a rollout" * 9
EARLIER = measured(0.75, examples=4)
WORSE = Comparison(EARLIER, measured(0.1), lost=60, won=0)
AS_GOOD = Comparison(EARLIER, measured(0.5, examples=4), lost=1, won=0)
SOME = make_labelled_data(np.zeros((4, 1, 8, 8), np.uint8), np.arange(4))
TERMS = TrialTerms()

SLOWER = Comparison(EARLIER, measured(0.9, examples=4, latency_ms=40.0), lost=0, won=1)


@pytest.fixture
def place(tmp_path: Path) -> TaskContext:
    """A device with four training examples and four held-out examples, and no model."""
    return TaskContext("pi", BlobStore(tmp_path / "blobs"), LocalData(SOME, SOME), tmp_path / "models")


def note(data: bytes, **more: Any) -> ServedModel:
    return ServedModel(version=f"run of {data[:20].decode()}", digest=digest_of(data), **more)


def deliver(
    place: TaskContext, data: bytes, terms: TrialTerms | None = TERMS, **more: Any
) -> DeliveryVerdict:
    installed_model.begin(place.models).write_bytes(data)
    return put_delivered_in_use(place, note(data, **more), terms).verdict


def serves(place: TaskContext) -> bytes | None:
    """The model in use, which is the file in `models/`."""
    current = installed_model.slots(place.models).current()
    if current is not None:
        assert installed_model.served_model_path(place.models).read_bytes() == current.read()
    return None if current is None else current.read()


Found = Callable[[ModelPair], Comparison]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Callable[[Found | Comparison], list[ModelPair]]:
    """Replace comparisons by a given result; the returned function returns the compared pairs."""

    def use_result(found: Found | Comparison) -> list[ModelPair]:
        pairs: list[ModelPair] = []

        def compare(_: ComparisonRunner, pair: ModelPair, most: int) -> Comparison:
            pairs.append(pair)
            return found if isinstance(found, Comparison) else found(pair)

        monkeypatch.setattr(ComparisonRunner, "compare", compare)
        return pairs

    return use_result


def test_a_device_without_a_model_serves_the_first_one(place, compared):
    pairs = compared(WORSE)
    assert deliver(place, NEW) == DeliveryVerdict(served=True, why="no model was in use before")
    assert (serves(place), pairs) == (NEW, [])


def test_a_worse_model_is_not_served_and_its_files_are_removed(place, compared, caplog):
    compared(WORSE)
    deliver(place, OLD)
    verdict = deliver(place, NEW)
    assert serves(place) == OLD
    assert verdict == DeliveryVerdict(
        served=False,
        why="accuracy: 10.00% of 100 examples, 75.00% before",
        earlier=note(OLD).version,
        accuracy=0.1,
        earlier_accuracy=0.75,
        examples=100,
    )
    assert list(installed_model.waiting(place.models).parent.iterdir()) == []
    assert f"{note(NEW).version} is not served, {note(OLD).version} is kept: accuracy" in caplog.text


def test_a_model_within_the_margin_is_served_and_can_be_rolled_back(place, compared):
    compared(AS_GOOD)
    deliver(place, OLD)
    verdict = deliver(place, NEW)
    assert (verdict.served, verdict.accuracy, verdict.earlier_accuracy) == (True, 0.5, 0.75)
    assert verdict.why == "50.00% of 4 examples, 75.00% before"
    assert serves(place) == NEW
    assert installed_model.slots(place.models).current().model.verdict == verdict
    assert installed_model.slots(place.models).back().read() == OLD


def test_the_file_in_use_is_compared_with_the_file_that_would_be_served(place, compared):
    seen = []
    compared(lambda pair: seen.append((pair.running.read_bytes(), pair.candidate.read_bytes())) or AS_GOOD)
    deliver(place, OLD)
    deliver(place, NEW, variant="int8", parent=digest_of(b"the export"))
    assert seen == [(OLD, NEW)]


def test_a_forced_delivery_is_not_compared(place, compared):
    pairs = compared(WORSE)
    deliver(place, OLD)
    verdict = deliver(place, NEW, terms=None)
    assert (verdict.served, verdict.earlier, serves(place), pairs) == (True, note(OLD).version, NEW, [])
    assert "by force" in verdict.why


@pytest.mark.parametrize("again", [NEW, b"the same network in another form"])
def test_a_repeated_delivery_is_not_compared_with_itself(place, compared, again):
    export = digest_of(b"the export")
    pairs = compared(AS_GOOD)
    deliver(place, OLD)
    first = deliver(place, NEW, parent=export)
    installed_model.begin(place.models).write_bytes(again)
    sent = put_delivered_in_use(place, note(again, parent=export, variant="fp16"), TERMS)
    assert (len(pairs), serves(place)) == (1, NEW)
    # The report for the file in use is sent again.
    assert (sent.verdict, sent.model.digest, sent.bytes) == (first, digest_of(NEW), len(NEW))
    assert installed_model.slots(place.models).back().read() == OLD


@pytest.mark.parametrize("found", [WORSE, AS_GOOD])
def test_a_delivery_repeated_after_a_power_cut_has_the_same_result(
    tmp_path: Path, place: TaskContext, monkeypatch: pytest.MonkeyPatch, compared: Any, found: Comparison
):
    compared(found)
    cut_at = 0
    while True:
        state = tmp_path / f"cut-{cut_at}"
        here = replace(place, models=state / "models")
        deliver(here, OLD)
        installed_model.begin(here.models).write_bytes(NEW)
        with failing_power(state, monkeypatch, cut_at) as steps, suppress(PowerCut):
            put_delivered_in_use(here, note(NEW), TERMS)
        if len(steps) <= cut_at:
            break
        installed_model.repair(here.models)
        assert serves(here) in (OLD, NEW), steps
        verdict = deliver(here, NEW)
        assert verdict.served == (found is AS_GOOD), steps
        assert (verdict.earlier, serves(here)) == (note(OLD).version, NEW if verdict.served else OLD), steps
        cut_at += 3
    assert cut_at > 0


@pytest.mark.parametrize("found", [WORSE, AS_GOOD])
def test_if_models_must_be_signed_only_a_good_one_waits_for_its_signature(place, compared, found):
    compared(found)
    signed_only = replace(place, signed_only=True)
    deliver(place, OLD)
    verdict = deliver(signed_only, NEW)
    assert serves(place) == OLD
    signature = SERVER.sign(manifest_of(NEW, what="device-export", device="pi"))
    assert installed_model.take_signature(place.models, signature) == verdict.served == (found is AS_GOOD)
    assert serves(place) == (NEW if verdict.served else OLD)


def test_a_model_rolled_out_during_the_comparison_is_not_replaced(place, compared):
    def meanwhile(_: ModelPair) -> Comparison:
        slots = installed_model.slots(place.models)
        slots.fill(ROLLED_OUT, note(ROLLED_OUT))
        slots.switch(digest_of(ROLLED_OUT))
        return AS_GOOD

    compared(meanwhile)
    deliver(place, OLD)
    verdict = deliver(place, NEW)
    assert (verdict.served, verdict.why, serves(place)) == (False, delivery.SUPERSEDED, ROLLED_OUT)


def test_a_model_rolled_out_before_the_signature_arrives_is_not_replaced(place, compared, caplog):
    compared(AS_GOOD)
    deliver(place, OLD)
    deliver(replace(place, signed_only=True), NEW)
    slots = installed_model.slots(place.models)
    slots.fill(ROLLED_OUT, note(ROLLED_OUT))
    slots.switch(digest_of(ROLLED_OUT))
    installed_model.take_signature(
        place.models, SERVER.sign(manifest_of(NEW, what="device-export", device="pi"))
    )
    assert serves(place) == ROLLED_OUT
    assert "the new model is not served" in caplog.text
    assert list(installed_model.waiting(place.models).parent.iterdir()) == []


# --- real models, compared in a separate process ---
@pytest.fixture(scope="module")
def digits() -> LocalData:
    data = load_source("digits")
    return LocalData(data.subset(range(600)), data.subset(range(600, 700)))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("models")
    spoiled = np.roll(fitted(), 1, axis=1)
    made = {
        "good": classifier(folder / "good.onnx", fitted()),
        "bad": classifier(folder / "bad.onnx", spoiled),
    }
    return {name: path.read_bytes() for name, path in made.items()}


def test_a_bad_model_does_not_replace_a_good_one_but_a_good_one_replaces_a_bad_one(place, digits, models):
    here = replace(place, data=digits)
    for name, serving in (("good", "good"), ("bad", "good")):
        installed_model.begin(here.models).write_bytes(models[name])
        sent = put_delivered_in_use(here, ServedModel(version=name, digest=digest_of(models[name])), TERMS)
        assert serves(here) == models[serving]
    # Both models are compared on all hundred held-out examples of this device.
    assert (sent.verdict.served, sent.verdict.earlier, sent.verdict.examples) == (False, "good", 100)
    assert sent.verdict.earlier_accuracy > 0.7 > sent.verdict.accuracy
    back = replace(here, models=here.models.parent / "other" / "models")
    for name in ("bad", "good"):
        installed_model.begin(back.models).write_bytes(models[name])
        put_delivered_in_use(back, ServedModel(version=name, digest=digest_of(models[name])), TERMS)
        assert serves(back) == models[name]


def without(held_out: bool, train: bool, digits: LocalData) -> LocalData:
    empty = digits.train.subset([])
    return LocalData(digits.train if train else empty, digits.held_out if held_out else empty)


def test_without_held_out_data_models_are_compared_on_the_training_data(place, digits, models):
    here = replace(place, data=without(held_out=False, train=True, digits=digits))
    for name in ("good", "bad"):
        installed_model.begin(here.models).write_bytes(models[name])
        sent = put_delivered_in_use(here, ServedModel(version=name, digest=digest_of(models[name])), TERMS)
    assert serves(here) == models["good"]
    assert sent.verdict.why.endswith("of its training data: none is held out")


def test_without_any_data_the_model_in_use_is_kept(place, digits):
    here = replace(place, data=without(held_out=False, train=False, digits=digits))
    deliver(here, OLD)
    verdict = deliver(here, NEW)
    assert (verdict.served, serves(here)) == (False, OLD)
    assert verdict.why == f"{Cause.INCOMPATIBLE}: there are no examples to compare on"


def test_a_model_in_use_that_cannot_run_on_the_data_is_replaced(place, digits, models):
    """A model with another input shape or an invalid file is replaced, as in a rollout."""
    here = replace(place, data=digits)
    deliver(here, OLD)
    installed_model.begin(here.models).write_bytes(models["bad"])
    sent = put_delivered_in_use(here, ServedModel(version="bad", digest=digest_of(models["bad"])), TERMS)
    assert (sent.verdict.served, sent.verdict.why) == (True, delivery.UNUSABLE)
    assert serves(here) == models["bad"]


def test_fewer_large_images_are_copied_for_the_comparison():
    side = 2000
    large = make_labelled_data(np.zeros((12, 1, side, side), np.uint8), np.zeros(12, np.int64))
    # The limit of 32 MB holds eight images of 4 MB.
    assert len(local_examples(LocalData(large, large), 200)) == 8
    assert len(local_examples(LocalData(SOME, SOME), 200)) == 4


def test_a_network_of_a_higher_tier_is_delivered_even_if_too_slow_for_a_rollout(
    place: TaskContext, compared: Callable[[Found | Comparison], list[ModelPair]]
) -> None:
    deliver(place, OLD)
    compared(SLOWER)
    assert not deliver(place, NEW, TrialTerms()).served
    assert deliver(place, NEW, DELIVERY_TERMS).served
    assert serves(place) == NEW
