"""Trials in processes of their own: providers that lie, crash, hang or cannot start are refused."""

import hashlib
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.inference.onnx_model import load_model
from edge_client.inference.providers.choice import MARGIN, ProviderChoice
from edge_client.inference.providers.record import read_choices
from edge_client.inference.providers.table import ANY_PROVIDER, CPU_ALONE, ProviderSettings
from edge_client.inference.providers.trial import TrialJob, Use, run_trial, settle_provider
from edge_client.inference.providers.trial_process import MIN_EXAMPLES
from tests.edge_client.inference.providers.conftest import Offer
from tests.slow import mark_slow

LIES, CRASHES, HANGS = "XnnpackExecutionProvider", "ACLExecutionProvider", "QNNExecutionProvider"
FAST, RESHAPES, SLOW = "CUDAExecutionProvider", "CoreMLExecutionProvider", "OpenVINOExecutionProvider"
ABSENT = "TensorrtExecutionProvider"


def settle(model: Path, settings: ProviderSettings = ANY_PROVIDER, use: Use | None = None) -> ProviderChoice:
    choice = settle_provider(model, digest_of(model), settings, use or Use())
    assert choice is not None
    return choice


def digest_of(model: Path) -> str:
    return hashlib.sha256(model.read_bytes()).hexdigest()


def job_of(model: Path, provider: str, limit_s: float = 100) -> TrialJob:
    return TrialJob(
        provider=provider, model=str(model), digest=digest_of(model), threads=1, batch=1, limit_s=limit_s
    )


def refusal(choice: ProviderChoice, provider: str) -> str:
    return next(trial.refusal for trial in choice.trials if trial.provider == provider)


def test_the_fastest_that_is_right_is_chosen_and_each_other_has_its_reason(model: Path, offer: Offer) -> None:
    offer(ABSENT, FAST, RESHAPES, LIES, CRASHES)
    choice = settle(model)
    assert choice.provider == "cuda"
    chosen = next(trial for trial in choice.trials if trial.provider == "cuda")
    assert chosen.speed_up > MARGIN
    assert chosen.probes == 11  # 1, 2 and 7 random inputs, and one of the batch
    assert chosen.load_s > 0 < chosen.warm_up_ms
    assert "took CPUExecutionProvider in its place" in refusal(choice, "tensorrt")
    assert "gives outputs [1, 2], the CPU [1, 3]" in refusal(choice, "coreml")
    assert "gives other answers" in refusal(choice, "xnnpack")
    assert "signal 11" in refusal(choice, "acl")
    # The record lies beside the model, and nothing is tried a second time.
    assert read_choices(model, choice.digest) == (choice,)
    offer(ABSENT, FAST, RESHAPES, LIES, CRASHES)
    assert settle(model) == choice


def test_a_provider_that_hangs_takes_its_own_time_alone(model: Path, offer: Offer) -> None:
    offer(HANGS)
    start = time.monotonic()
    found = run_trial(job_of(model, "qnn", limit_s=4.0))
    assert found.failure == "was not done within 4.0 s"
    assert time.monotonic() - start < 60


def test_wrong_answers_on_held_out_examples_are_refused_and_right_ones_counted(
    model: Path, offer: Offer
) -> None:
    offer(FAST, LIES)
    choice = settle(model, use=Use(examples=examples_of(model)))
    assert choice.provider == "cuda"
    by_name = {trial.provider: trial for trial in choice.trials}
    assert MIN_EXAMPLES <= by_name["cuda"].examples <= 20  # as many as the CPU answers in a second
    assert by_name["cuda"].difference == by_name["cuda"].points == by_name["cuda"].probes == 0
    assert "gives other answers" in by_name["xnnpack"].refusal


def examples_of(model: Path) -> LabelledData:
    """Twenty examples with the labels that the model gives them."""
    images = np.random.default_rng(1).integers(0, 256, (20, 3, 32, 32)).astype(np.uint8)
    labels = load_model(model, threads=1).predict(images).argmax(axis=1)
    return make_labelled_data(images, labels.astype(np.int64), class_names=["ant", "bee", "cat"])


def test_a_slower_one_is_refused_unless_the_user_names_it(model: Path, offer: Offer) -> None:
    offer(SLOW)
    choice = settle(model)
    assert choice.provider == "cpu"
    assert "x as fast as the CPU" in choice.why
    assert settle(model, ProviderSettings(("openvino",))).provider == "openvino"


@mark_slow
def test_of_a_list_the_first_that_is_right_runs_the_model(model: Path, offer: Offer) -> None:
    offer(FAST, LIES, SLOW)
    choice = settle(model, ProviderSettings(("xnnpack", "openvino", "cuda")))
    assert choice.provider == "openvino"
    assert [trial.provider for trial in choice.trials] == ["xnnpack", "openvino"]


def test_without_time_left_nothing_is_tried(model: Path, offer: Offer) -> None:
    offer(FAST)
    assert run_trial(job_of(model, "cuda", limit_s=0.5)).failure.startswith("was not tried")


def test_a_file_that_has_changed_is_not_tried(model: Path, offer: Offer) -> None:
    offer(FAST)
    job = job_of(model, "cuda").model_copy(update={"digest": "0" * 64})
    assert run_trial(job).failure == "was not tried: the file has changed since"


@pytest.mark.parametrize("settings", [ANY_PROVIDER, CPU_ALONE, ProviderSettings(("cpu",))])
def test_with_the_cpu_alone_nothing_is_tried_and_nothing_written(
    model: Path, offer: Offer, settings: ProviderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer()
    monkeypatch.setattr(subprocess, "Popen", None)
    assert settle_provider(model, digest_of(model), settings, Use()) is None
    assert {path.name for path in model.parent.iterdir()} == {"model.onnx", "shadow"}
