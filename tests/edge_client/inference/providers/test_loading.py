"""Models on the chosen provider, and the CPU when that fails later."""

import json
import logging
import os
from pathlib import Path

import numpy as np
import pytest

from edge_client.inference.onnx_model import load_model
from edge_client.inference.providers.loading import load_on_provider
from edge_client.inference.providers.record import choice_in_use
from edge_client.inference.providers.table import ANY_PROVIDER
from edge_client.inference.service.metrics import RequestMetrics
from edge_client.inference.service.model_source import FileSource
from edge_client.inference.service.predictor import Predictor
from tests.edge_client.inference.providers import stand_in
from tests.edge_client.inference.providers.conftest import Offer
from tests.edge_client.inference.providers.test_trial import FAST, digest_of

IMAGES = np.random.default_rng(2).integers(0, 256, (2, 3, 32, 32)).astype(np.uint8)


def let_the_device_go(how: str) -> None:
    Path(os.environ[stand_in.FLAG]).write_text(how)


@pytest.mark.parametrize(
    ("how", "reason"),
    [("fails", "RuntimeError: the device is gone"), (stand_in.HANGS, "TimeoutError: no answer within 0.2 s")],
)
def test_a_provider_that_fails_later_loses_no_request(
    model: Path,
    offer: Offer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    reason: str,
) -> None:
    offer(FAST)
    expected = load_model(model, threads=1).predict(IMAGES)
    predictor = Predictor(FileSource(model, providers=ANY_PROVIDER), RequestMetrics())
    predictor.refresh()
    assert predictor.provider == "cuda"
    assert 'provider_info{provider="cuda"} 1' in predictor.metrics.text(predictor.model, predictor.provider)
    let_the_device_go(how)
    for name, value in (("SPARE_S", 0.2), ("SLACK", 0.0)):
        monkeypatch.setattr(f"edge_client.inference.providers.choice.{name}", value)
    body = json.dumps({"pixels": IMAGES.tolist()}).encode()
    answers = [predictor.answer(body, top=3)["results"] for _ in range(2)]
    assert answers[0] == answers[1]
    ranked = [entry["probability"] for entry in answers[0][0]["top"]]
    np.testing.assert_allclose(ranked, np.sort(expected[0])[::-1], rtol=1e-5)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [f"cuda failed, the CPU answers from now on: {reason}"]
    assert 'provider_info{provider="cpu"} 1' in predictor.metrics.text(predictor.model, predictor.provider)
    # The next start takes the CPU at once.
    choice = choice_in_use(model, digest_of(model))
    assert choice is not None
    assert (choice.provider, choice.why) == ("cpu", f"cuda failed in use: {reason}")
    assert load_on_provider(model, ANY_PROVIDER, threads=1).provider == "cpu"


def test_a_request_that_the_cpu_cannot_answer_either_is_not_the_providers_fault(
    model: Path, offer: Offer
) -> None:
    offer(FAST)
    loaded = load_on_provider(model, ANY_PROVIDER, threads=1)
    with pytest.raises(Exception, match=r"rank|dimension|Got"):
        loaded.run(np.zeros((1, 3, 32), np.float32))
    assert loaded.provider == "cuda"
    np.testing.assert_allclose(loaded.predict(IMAGES).sum(axis=1), 1, rtol=1e-5)


def test_a_provider_that_opens_no_more_leaves_the_model_to_the_cpu(
    model: Path, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(FAST)
    assert load_on_provider(model, ANY_PROVIDER, threads=1).provider == "cuda"
    monkeypatch.delitem(stand_in.STAND_INS, FAST)
    loaded = load_on_provider(model, ANY_PROVIDER, threads=1)
    assert loaded.provider == "cpu"
    np.testing.assert_allclose(loaded.predict(IMAGES).sum(axis=1), 1, rtol=1e-5)
    choice = choice_in_use(model, digest_of(model))
    assert choice is not None
    assert "took CPUExecutionProvider in its place" in choice.why
