"""OpenVINO for real: `make test-providers` runs this in an environment with onnxruntime-openvino."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from edge_client.inference.onnx_model import load_model
from edge_client.inference.providers.choice import MAX_DIFFERENCE, object_to
from edge_client.inference.providers.loading import load_on_provider
from edge_client.inference.providers.record import choice_in_use
from edge_client.inference.providers.table import ANY_PROVIDER, PROVIDERS, ProviderSettings
from edge_client.inference.providers.trial import Use
from edge_client.inference.providers.trial_process import try_provider
from tests.edge_client.inference import test_box_outputs as boxes
from tests.edge_client.inference.providers.test_trial import digest_of, examples_of, job_of, settle

ROW = PROVIDERS["openvino"]
OPENVINO = ProviderSettings((ROW.name,))
pytestmark = pytest.mark.skipif(
    ROW.runtime_name not in onnxruntime.get_available_providers(),
    reason="this onnxruntime has no OpenVINO: make test-providers",
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_it_gives_the_cpus_answers_on_held_out_examples(model: Path) -> None:
    choice = settle(model, OPENVINO, Use(examples=examples_of(model)))
    (trial,) = choice.trials
    assert (choice.provider, trial.refusal, trial.examples, trial.points) == ("openvino", "", 20, 0)
    assert trial.difference < 1e-5
    assert min(trial.ms, trial.cpu_ms, trial.load_s, trial.warm_up_ms, trial.memory_bytes) > 0


def test_the_choice_is_explained_and_recorded_whatever_it_is(model: Path) -> None:
    choice = settle(model)
    assert f"{choice.trials[0].speed_up:.2f} x as fast as the CPU" in choice.why
    assert choice.circumstances["providers"] == "openvino"
    assert choice_in_use(model, digest_of(model)) == choice
    assert load_on_provider(model, ANY_PROVIDER, threads=1).provider == choice.provider


def test_a_model_on_it_answers_batches_of_any_size(model: Path) -> None:
    loaded, cpu = load_on_provider(model, OPENVINO, threads=1), load_model(model, threads=1)
    assert loaded.provider == "openvino"
    images = np.random.default_rng(3).integers(0, 256, (40, 3, 32, 32)).astype(np.uint8)
    for count in (1, 3, 40):
        answers = loaded.predict(images[:count], batch_size=16)
        np.testing.assert_allclose(answers, cpu.predict(images[:count]), atol=1e-5)


def test_a_detectors_file_gives_the_boxes_of_the_cpu(tmp_path: Path) -> None:
    path = boxes.write_detector(boxes.make_detector(), tmp_path)
    every = {"max_boxes": np.array([1000])}
    for found, wanted in zip(boxes.said(path, row=ROW, **every), boxes.said(path, **every), strict=True):
        assert len(wanted) > 20
        boxes.assert_same_boxes(found, wanted)


@pytest.mark.skipif(
    "avx512_bf16" not in Path("/proc/cpuinfo").read_text(), reason="this processor has no bfloat16"
)
def test_an_openvino_that_computes_in_bfloat16_is_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}})
    monkeypatch.setitem(PROVIDERS, ROW.name, replace(ROW, stated={**ROW.stated, "load_config": hint}))
    trial = try_provider(job_of(model, ROW.name))
    assert trial.difference > MAX_DIFFERENCE
    assert "gives other answers" in object_to(trial, True, None)
