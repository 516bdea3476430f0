"""Combinations of openings and runs without end that cannot work are refused with the remedy."""

import pytest

from edge_server.cli.main import main
from tests.edge_server.config.checks.test_combinations import found


@pytest.mark.parametrize("when", ["every-s", "new-data", "drift"])
def test_occasions_are_for_rounds(when: str) -> None:
    sections = {"federation": {"when": when}, "clients": {"mode": "buffered", "buffer-size": 2}}
    assert any("set mode" in line for line in found("fedavg", **sections))
    assert found("fedavg", federation={"when": when, "rounds": 0}) == []
    assert found("attending", federation={"when": when, "rounds": 0}) == []


def test_a_schedule_over_all_rounds_needs_a_last_one() -> None:
    (line,) = found("adafl", federation={"rounds": 0})
    assert line.startswith("[strategy] fraction: 'step-up' spreads over all rounds")
    assert found("adafl", federation={"rounds": 7}) == []


def test_a_measurement_in_the_last_round_needs_one() -> None:
    (line,) = found("heterofl", federation={"rounds": 0})
    assert "measures the model in the last round" in line
    assert found("heterofl", federation={"rounds": 0, "when": "drift"}) == []
    (line,) = found("heterofl", federation={"when": "drift", "rounds-per-opening": 1})
    assert "none is left to train" in line


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["rounds=0"], "nobody stops a simulation"),
        (["when=drift"], "needs data that grows"),
        (["min-clients=6"], "[clients] min-clients: rounds wait for 6 devices, and 5 are simulated"),
        (["start-clients=6"], "[clients] start-clients: rounds wait for 6"),
    ],
)
def test_what_only_real_devices_can_do_is_not_simulated(
    words: list[str], why: str, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["simulate", "fedavg", "source=digits", *words, "--out", str(out)]) == 2
    assert why in capsys.readouterr().err
    assert not out.exists()
