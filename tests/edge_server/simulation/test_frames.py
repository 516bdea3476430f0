"""Models sent as deltas: a simulation has the same result, also when it is resumed."""

from pathlib import Path

from tests.edge_server.simulation.small import StopAfter, history, last_model, run
from tests.slow import mark_slow

DELTA = 'strategy.downlink=["delta", {name="int8", levels=7}, "zstd"]'
TIERS = ("num-clients=4", "tiers.ratios=[0.5, 0.0]", "learning-rate=0.1")


def test_lossless_deltas_do_not_change_a_masked_run(tmp_path: Path) -> None:
    masked = (*TIERS, "rounds=2", "secure-aggregation=true")
    assert run(tmp_path / "plain", "heterofl", *masked, "strategy.downlink=[]").outcome == "finished"
    lossless = 'strategy.downlink=["delta", "zstd"]'
    assert run(tmp_path / "delta", "heterofl", *masked, lossless).outcome == "finished"
    assert last_model(tmp_path / "delta") == last_model(tmp_path / "plain")


@mark_slow
def test_a_run_whose_devices_miss_rounds_resumes_to_the_same_result(tmp_path: Path) -> None:
    words = (*TIERS, "fraction=0.5", "rounds=4")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(whole, "heterofl", *words, DELTA).outcome == "finished"
    assert run(broken, "heterofl", *words, DELTA, watcher=StopAfter(2)).outcome == "interrupted"
    assert run(broken, "heterofl", *words, DELTA, resume=True).outcome == "finished"
    assert (whole / "history.jsonl").read_bytes() == (broken / "history.jsonl").read_bytes()
    assert last_model(whole) == last_model(broken)
    # A device's first task downloads the whole model, later ones the delta.
    down = [line["downlink_bytes"] for line in history(whole)]
    assert down[3] < 0.6 * min(down[0], down[2])


def test_buffered_rounds_support_deltas(tmp_path: Path) -> None:
    words = ("clients.mode=buffered", "buffer-size=2", "num-clients=4", "rounds=4", DELTA)
    assert run(tmp_path / "run", "fedavg", *words).outcome == "finished"
