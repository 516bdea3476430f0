"""The choice among trials, by hand."""

import pytest

from edge_client.inference.providers.choice import (
    MARGIN,
    MAX_DIFFERENCE,
    MAX_POINTS,
    ProviderChoice,
    ProviderTrial,
    choose_provider,
)

FASTER = ProviderTrial(provider="cuda", ms=2, cpu_ms=6, memory_bytes=100)
CHOICE = ProviderChoice(
    digest="a" * 64,
    threads=1,
    batch=1,
    asked=("auto",),
    circumstances={"onnxruntime": "1.24.1"},
    provider="cuda",
    why="cuda 3.00 x as fast as the CPU",
    trials=(FASTER,),
)


def trial(name: str, **more: object) -> ProviderTrial:
    return FASTER.model_copy(update={"provider": name, **more})


def test_the_fastest_is_relative_to_the_cpu_in_its_own_trial() -> None:
    # 6 ms over 2 ms is 3 x; 20 ms over 5 ms is 4 x, though 5 ms are more than 2.
    name, why, _ = choose_provider([FASTER, trial("openvino", ms=5, cpu_ms=20)])
    assert name == "openvino"
    assert why == "openvino 4.00 x as fast as the CPU (5.000 ms, 20.000 ms); cuda 3.00 x"


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"failure": "cannot run it"}, "cannot run it"),
        ({"difference": 1.1 * MAX_DIFFERENCE}, "gives other answers: 0.0011 of the largest"),
        ({"points": MAX_POINTS, "examples": 50}, "loses 0.10 points on 50 examples"),
        ({"memory_bytes": 51_000_000}, "takes 51 MB of 100 MB free"),
        ({"ms": 1.01 * 6 / MARGIN}, "is 1.19 x as fast as the CPU"),
        ({"ms": 0.01, "cpu_ms": 0.09}, "is 9.00 x as fast as the CPU (0.010 ms, 0.090 ms)"),
    ],
)
def test_each_refusal_has_its_reason(figures: dict[str, object], reason: str) -> None:
    name, why, judged = choose_provider([trial("cuda", **figures)], free_bytes=100_000_000)
    assert name == "cpu"
    assert judged[0].refusal.startswith(reason)
    assert why.startswith(f"cuda {reason}")


def test_what_the_user_states_need_not_be_faster_but_right() -> None:
    slower, wrong = trial("openvino", ms=9), trial("acl", difference=1.0)
    assert choose_provider([wrong, slower, FASTER], is_stated=True)[0] == "openvino"
    assert choose_provider([wrong], is_stated=True)[0] == "cpu"


def test_better_answers_are_no_loss() -> None:
    assert choose_provider([trial("cuda", points=-5.0)])[0] == "cuda"


def test_without_trials_the_cpu_runs_the_model() -> None:
    assert choose_provider([])[:2] == ("cpu", "no other provider is there")


@pytest.mark.parametrize(
    "changed",
    [
        {"digest": "b" * 64},
        {"threads": 2},
        {"batch": 32},
        {"asked": ("cuda",)},
        {"circumstances": {"onnxruntime": "1.25.0"}},
        {"circumstances": {"onnxruntime": "1.24.1", "power": "pmode:0001"}},
        {"circumstances": {"onnxruntime": "1.24.1", "driver of cuda": "570.1"}},
    ],
)
def test_another_file_use_or_circumstance_needs_another_trial(changed: dict[str, object]) -> None:
    assert CHOICE.is_for(CHOICE.model_copy(update={"provider": "cpu", "trials": ()}))
    assert not CHOICE.is_for(CHOICE.model_copy(update=changed))


def test_after_a_failure_in_use_the_cpu_is_the_choice() -> None:
    failed = CHOICE.with_failure("the device is gone")
    assert failed.is_for(CHOICE)
    assert (failed.provider, failed.why) == ("cpu", "cuda failed in use: the device is gone")
    assert failed.trials[0].refusal == failed.why


def test_the_deadline_of_a_run_is_what_its_trial_took_and_then_some() -> None:
    # 10 s, and three times 2 s to load, 1 s for the first run and 4 of the CPU's 6 ms.
    built = trial("cuda", load_s=2.0, warm_up_ms=1000)
    choice = CHOICE.model_copy(update={"trials": (trial("acl", load_s=9.0), built)})
    assert choice.deadline_s(4) == pytest.approx(10 + 3 * (2 + 1 + 0.024))
