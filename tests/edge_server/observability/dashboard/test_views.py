"""The values that the page gets, from folders and snapshots."""

from dataclasses import replace
from pathlib import Path

import pytest

from edge_server.observability.dashboard.device_view import device_value
from edge_server.observability.dashboard.fleet_view import fleet_rows
from edge_server.observability.dashboard.model_view import channel_value, evenly_spread, model_value
from edge_server.observability.dashboard.run_reader import read_facts
from edge_server.observability.dashboard.run_view import round_values, run_value
from edge_server.observability.snapshot import DeviceView, Snapshot
from schemas.errors import ConfigError
from schemas.values import BoardState
from tests.edge_server.observability.dashboard.folders import (
    PROFILE,
    begun,
    chosen,
    ended,
    observed,
    record,
    summary,
)

NOW = 1000.0
NOWHERE = Path("/nowhere/at/all")
VIEW = DeviceView(
    "alpha",
    1,
    0.5,
    "training",
    epoch=2,
    epochs=5,
    loss=0.25,
    seen_at=990.0,
    attention=0.3,
    rounds=2,
    refused={"not-finite": 1},
    profile=PROFILE,
    board=BoardState(celsius=61.5, battery=0.8, memory_bytes=10, memory_free_bytes=20),
    ineligible_because="on battery",
)
MOMENT = Snapshot(
    "home", "run-1", "training", 3, 9, 50.0, deadline_in_s=30.0, devices=(VIEW,), history=(record(1),)
)


def test_a_run_that_is_over_is_told_from_its_folder(tmp_path):
    facts = read_facts(ended(tmp_path / "run").path)
    reported = run_value(facts, None, now=NOW, live=False)
    assert (reported["phase"], reported["outcome"], reported["live"], reported["round"]) == (
        "ended",
        "finished",
        False,
        2,
    )
    assert (reported["federation"], reported["run"], reported["recipe"]) == (
        "federation",
        "run-1",
        "attending",
    )
    assert reported["deadline_at"] is None


def test_a_tier_is_told_by_its_device_or_by_its_shapes(tmp_path):
    facts = read_facts(ended(tmp_path / "run").path)
    first, second = run_value(facts, None, now=NOW, live=False)["tiers"]
    # The device of tier 1 has said 10 parameters and 77 MACs; 12 bytes are in its file.
    assert first == {
        "tier": 1,
        "ratio": 0.5,
        "parameters": 10,
        "macs": 77,
        "onnx_bytes": 12,
        "onnx": "/onnx/tier-1.onnx",
    }
    # Nothing is cut: 4 x 3 + 2 x 4, without the running mean.
    assert (second["parameters"], second["macs"], second["onnx"]) == (20, None, None)


def test_a_round_costs_its_bytes_over_everyones_full_model_both_ways(tmp_path):
    facts = read_facts(ended(tmp_path / "run").path)
    (first, second) = round_values(facts, facts.history)
    # (40 + 120) / (2 ways x 2 clients x 20 numbers x 4 bytes) = 160 / 320
    assert first["cost_relative"] == second["cost_relative"] == 0.5
    assert first["rejected"] == [{"device": "beta", "reason": "not-finite", "detail": ""}]


def test_a_live_run_is_told_from_the_snapshot(tmp_path):
    folder, journal = begun(tmp_path / "run")
    journal.close()
    reported = run_value(read_facts(folder.path, live=True), MOMENT, now=NOW, live=True)
    assert (reported["phase"], reported["live"], reported["outcome"]) == ("training", True, None)
    assert reported["deadline_at"] == 1030.0


def test_a_simulations_deadline_says_nothing_here(tmp_path):
    virtual = replace(MOMENT, virtual_s=77.0)
    reported = run_value(read_facts(tmp_path), virtual, now=NOW, live=True)
    assert (reported["deadline_at"], reported["virtual"]) == (None, True)


def test_a_folder_that_is_not_there_yet_leaves_out_what_is_not_known(tmp_path):
    reported = run_value(read_facts(tmp_path / "later", live=True), None, now=NOW, live=True)
    assert (reported["recipe"], reported["parameters"], reported["tiers"], reported["outcome"]) == (
        None,
        None,
        [],
        None,
    )


def test_a_run_that_nobody_goes_on_with_says_so(tmp_path):
    folder, journal = begun(tmp_path / "run")
    journal.close()
    (folder.path / "lock").touch()  # as a server leaves it that was killed
    facts = read_facts(folder.path)
    reported = run_value(facts, None, now=NOW, live=facts.at_work)
    assert (reported["phase"], reported["live"], reported["outcome"]) == ("suspended", False, None)
    assert {row.state for row in fleet_rows(facts, None)} == {"offline"}


def test_a_row_says_how_a_device_and_its_board_are():
    facts = read_facts(NOWHERE)
    (row,) = fleet_rows(facts, MOMENT)
    assert (row.state, row.epoch, row.epochs, row.refusals, row.attention) == ("training", 2, 5, 1, 0.3)
    assert (row.board, row.processor, row.cores, row.memory_total_bytes) == ("Pi 4", "Cortex-A72", 4, 4096)
    assert (row.celsius, row.battery, row.memory_bytes, row.memory_free_bytes) == (61.5, 0.8, 10, 20)
    assert row.ineligible_because == "on battery"


def test_the_fleet_of_a_run_that_is_over_is_offline(tmp_path):
    alpha, beta = fleet_rows(read_facts(ended(tmp_path / "run").path), None)
    assert (alpha.state, alpha.rounds, alpha.board, alpha.examples) == ("offline", 2, "Pi 4", 60)
    assert (beta.refusals, beta.refused) == (2, {"not-finite": 2})


def test_the_fleet_of_a_run_in_another_process_is_what_its_journal_says(tmp_path):
    folder, journal = begun(tmp_path / "run")
    alpha, beta = fleet_rows(read_facts(folder.path), None)
    journal.close()
    assert (alpha.state, alpha.rounds) == ("training", 2)
    assert (beta.state, beta.refused) == ("idle", {"not-finite": 2})


def test_a_device_is_told_why_it_was_chosen_and_what_became_of_it(tmp_path):
    folder, journal = begun(tmp_path / "run")
    facts = read_facts(folder.path)
    journal.close()
    choices = [
        (number, device)
        for number in (1, 2, 3)
        for device in chosen(number).devices
        if device.device == "alpha"
    ]
    reported = device_value("alpha", facts, None, choices, [(1, None), (2, None)])
    assert [one["outcome"] for one in reported["rounds"]] == ["counted", "counted", "under way"]
    assert reported["rounds"][0]["because"].startswith("drawn with chance 0.6")
    assert (reported["rounds"][0]["score"], reported["rounds"][0]["weight"]) == (0.6, 1.0)
    assert reported["profile"]["machine"] == "Pi 4"


def test_a_refused_device_is_told_the_reason(tmp_path):
    reported = device_value("beta", read_facts(ended(tmp_path / "run").path), None, [], [(1, "not-finite")])
    assert [(one["outcome"], one["reason"]) for one in reported["rounds"]] == [("refused", "not-finite")] * 2
    assert reported["delivery"]["refusals"] == 2


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"completed": (), "rejected": (), "dropped": ("alpha",)}, "dropped"),
        ({"selected": (), "completed": (), "rejected": ()}, "not chosen"),
    ],
    ids=["dropped", "not chosen"],
)
def test_who_did_not_count_is_told_apart(fields, outcome):
    moment = replace(MOMENT, history=(record(1, **fields),))
    reported = device_value("alpha", read_facts(NOWHERE), moment, [], [])
    assert [one["outcome"] for one in reported["rounds"]] == [outcome]


def test_a_device_that_nobody_knows_is_none():
    assert device_value("gamma", read_facts(NOWHERE), MOMENT, [], []) is None


def test_the_channels_of_a_model_are_told_with_their_scores_over_the_rounds():
    reported = model_value([observed(1), observed(2)], summary().devices, gradcam_why_not="no torch")
    (group,) = reported["groups"]
    assert (group["group"], group["channels"], group["rounds"]) == ("hidden", 4, [1, 2])
    assert group["scores"] == [[0.9, 0.1, 0.5, 0.1]] * 2
    assert group["measures"] == ["attention"] * 2
    assert group["kept"] == {"1": [0, 2], "2": 4}
    assert reported["similarity"] == {
        "round": 2,
        "clients": ["alpha", "beta"],
        "values": [[1.0, 0.5], [0.5, 1.0]],
    }
    assert (reported["gradcam"], reported["gradcam_why_not"]) == (False, "no torch")
    (variant,) = reported["variants"]
    # The variant's own accuracy, where it has one.
    assert (variant["device"], variant["variant"], variant["accuracy"]) == ("alpha", "int8", 0.5)
    # It is not served: the one before is the better one.
    assert (variant["verdict"]["served"], variant["verdict"]["earlier_accuracy"]) == (False, 0.75)


def test_a_model_without_observations_is_told_empty():
    reported = model_value([], (), gradcam_why_not="")
    assert (reported["groups"], reported["similarity"], reported["variants"], reported["gradcam"]) == (
        [],
        None,
        [],
        True,
    )


def test_many_rounds_are_thinned_evenly_and_keep_the_first_and_the_last():
    assert evenly_spread([3, 5]) == [3, 5]
    # Steps of 99 / 3 = 33 between four of a hundred.
    assert evenly_spread(list(range(1, 101)), 4) == [1, 34, 67, 100]


def test_a_channel_is_told_who_cuts_it_and_why():
    reported = channel_value([observed(1)], "hidden", 1)
    # 0.9 and 0.5 are higher, and of two equal ones the first is better.
    assert (reported["score"], reported["rank"], reported["of"]) == (0.1, 3, 4)
    assert reported["tiers"] == [
        {"tier": 1, "keeps": False, "kept": 2, "lowest_kept_score": 0.5},
        {"tier": 2, "keeps": True, "kept": 4, "lowest_kept_score": 0.1},
    ]
    assert reported["because"] == [
        "tier 1 keeps 2 of 4 channels; this one ranks 3 by attention (0.1; the lowest kept has 0.5)"
    ]


def test_a_channel_behind_a_prefix_is_told_its_place():
    scores = observed(1).groups["hidden"].model_copy(update={"kept": {1: 3}})
    reported = channel_value([observed(1).model_copy(update={"groups": {"hidden": scores}})], "hidden", 3)
    # It has 0.1 as the second one has, and comes behind it.
    assert reported["because"] == [
        "tier 1 keeps 3 of 4 channels, the first 3; this is number 4, with rank 4 by attention"
    ]


def test_a_channel_that_is_not_there_is_none():
    assert channel_value([observed(1)], "hidden", 4) is None
    assert channel_value([observed(1)], "other", 0) is None


def test_a_broken_file_is_named(tmp_path):
    folder = ended(tmp_path / "run")
    (folder.path / "summary.json").write_text("{")
    with pytest.raises(ConfigError, match=r"summary\.json"):
        read_facts(folder.path)


def test_a_line_of_history_that_is_on_its_way_is_left_for_later(tmp_path):
    folder = ended(tmp_path / "run")
    with (folder.path / "history.jsonl").open("a") as file:
        file.write('{"round": 3, "fra')
    assert len(read_facts(folder.path).history) == 2
