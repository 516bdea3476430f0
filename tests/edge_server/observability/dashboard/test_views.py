"""The values sent to the page, read from run folders and snapshots."""

from dataclasses import replace
from pathlib import Path

import pytest

from edge_server.observability.dashboard.fleet_view import device_value, fleet_rows
from edge_server.observability.dashboard.model_view import channel_value, evenly_spread, model_value
from edge_server.observability.dashboard.run_reader import read_facts
from edge_server.observability.dashboard.run_view import round_values, run_value
from edge_server.observability.snapshot import DeviceView, ServerParts, Snapshot, Workload
from edge_server.storage.records import DataStatistics, Distribution, MeasuredDevice, TrainedShare
from schemas.errors import ConfigError
from schemas.values import BoardState, DataCard, DriftFinding, SkippedFiles
from tests.edge_server.observability.dashboard import folders
from tests.edge_server.observability.dashboard.folders import ended, summary

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
    profile=folders.PROFILE,
    board=BoardState(celsius=61.5, battery=0.8, memory_bytes=10, memory_free_bytes=20),
    ineligible_because="on battery",
)
MOMENT = Snapshot(
    "home", "run-1", "training", 3, 9, 50.0, deadline_in_s=30.0, devices=(VIEW,), history=(folders.record(1),)
)


def test_a_finished_run_is_read_from_its_folder(tmp_path):
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


def test_the_servers_bytes_are_those_of_the_summary_and_the_log(tmp_path):
    folder = ended(tmp_path / "run")
    facts, summary = read_facts(folder.path), read_facts(folder.path).summary
    # After the last round the server sent the models, too: more than 2 x 120 bytes.
    facts = replace(facts, summary=summary.model_copy(update={"downlink_bytes": 900, "uplink_bytes": 80}))
    reported = run_value(facts, None, now=NOW, live=False)
    assert (reported["sent_bytes"], reported["received_bytes"]) == (900, 80)
    going = replace(MOMENT, load=Workload(downlink_bytes=700, uplink_bytes=60))
    assert run_value(replace(facts, summary=None), going, now=NOW, live=True)["sent_bytes"] == 700
    elsewhere = replace(facts, summary=None, traffic={"downlink": {"(all)": 600, "a": 1}})
    assert run_value(elsewhere, None, now=NOW, live=True)["sent_bytes"] == 601


def test_the_page_says_on_whose_data_the_figure_is_and_what_naive_forecasts_reach(tmp_path):
    history = (folders.record(1, client_metrics={"mae": 1.2, "no-change": 1.5}, test_accuracy=None),)
    metric = run_value(read_facts(tmp_path), replace(MOMENT, history=history), now=NOW, live=True)["metric"]
    assert (metric["name"], metric["where"], metric["naive"]) == ("mae", "own data", "no change 1.5")


def test_before_anything_is_measured_the_page_names_the_tasks_metric(tmp_path):
    facts = read_facts(ended(tmp_path / "run").path)
    model = facts.config.model.model_copy(update={"task": "detection"})
    facts = replace(facts, config=facts.config.model_copy(update={"model": model}), history=())
    assert run_value(facts, None, now=NOW, live=False)["metric"]["name"] == "map50"


def test_the_size_of_a_tier_comes_from_its_device_or_its_shapes(tmp_path):
    facts = read_facts(ended(tmp_path / "run").path)
    first, second = run_value(facts, None, now=NOW, live=False)["tiers"]
    # The device of tier 1 reported 10 parameters and 77 MACs; its ONNX file has 12 bytes.
    assert first == {
        "tier": 1,
        "ratio": 0.5,
        "parameters": 10,
        "macs": 77,
        "onnx_bytes": 12,
        "onnx": "/onnx/tier-1.onnx",
    }
    # Tier 2 is not pruned: 4 x 3 + 2 x 4, without the running mean.
    assert (second["parameters"], second["macs"], second["onnx"]) == (20, None, None)


def test_the_relative_cost_of_a_round_is_its_bytes_over_full_models_both_ways(tmp_path):
    facts = read_facts(ended(tmp_path / "run").path)
    (first, second) = round_values(facts, facts.history)
    # (40 + 120) / (2 ways x 2 clients x 20 numbers x 4 bytes) = 160 / 320
    assert first["cost_relative"] == second["cost_relative"] == 0.5
    assert first["rejected"] == [{"device": "beta", "reason": "not-finite", "detail": ""}]


def test_a_live_run_is_read_from_the_snapshot(tmp_path):
    folder, journal = folders.begun(tmp_path / "run")
    journal.close()
    reported = run_value(read_facts(folder.path, live=True), MOMENT, now=NOW, live=True)
    assert (reported["phase"], reported["live"], reported["outcome"]) == ("training", True, None)
    assert reported["deadline_at"] == 1030.0
    assert reported["parts"] is None


def test_the_page_says_what_is_trained_and_what_is_frozen(tmp_path):
    folder, journal = folders.begun(tmp_path / "run")
    journal.close()
    facts = read_facts(folder.path, live=True)
    assert run_value(facts, MOMENT, now=NOW, live=True)["trained"] == []
    share = TrainedShare(numbers=(1000,), of=10_000, frozen=9000)
    assert run_value(facts, replace(MOMENT, trained=share), now=NOW, live=True)["trained"] == [
        "devices train 1,000 of 10,000 numbers of the network",
        "frozen: 90.0% of the network, 36 kB, which a device receives once",
    ]


def test_what_serves_a_run_is_shown(tmp_path):
    parts = ServerParts(epoch=2, standby="farm-2, process 7", aggregators=1, gateways={"barn": True})
    served = replace(MOMENT, load=Workload(parts=parts))
    reported = run_value(read_facts(tmp_path), served, now=NOW, live=True)["parts"]
    assert reported == {
        "epoch": 2,
        "standby": "farm-2, process 7",
        "receivers": 0,
        "aggregators": 1,
        "gateways": {"barn": True},
    }


def test_the_deadline_of_a_simulation_is_left_out(tmp_path):
    virtual = replace(MOMENT, virtual_s=77.0)
    reported = run_value(read_facts(tmp_path), virtual, now=NOW, live=True)
    assert (reported["deadline_at"], reported["virtual"]) == (None, True)


def test_statistics_of_the_devices_data_are_texts_and_their_histograms_stay_in_the_folder(tmp_path):
    figures = {"count": (4.0,), "mean": (2.0,), "variance": (4.0,), "least": (0.0,), "most": (4.0,)}
    bins = {"low": (0.0,), "high": (4.0,), "histogram": ((0.0, 2.0, 2.0, 0.0),)}
    found = DataStatistics(devices=1, examples=4, features=Distribution(**figures, **bins), labels={"a": 4})
    asked = replace(MOMENT, history=(folders.record(1, statistics=found), folders.record(2)))
    facts = read_facts(ended(tmp_path / "run").path)
    shown = run_value(facts, asked, now=NOW, live=True)["statistics"]
    assert shown["features"] == [["1", "2", "2", "0", "1", "1", "3", "4"]]
    assert shown["labels"] == [["a", "4", "100.00%"]]
    assert all("statistics" not in line for line in round_values(facts, asked.history))
    assert run_value(facts, MOMENT, now=NOW, live=True)["statistics"] is None


def test_unknown_values_are_null_before_the_folder_exists(tmp_path):
    reported = run_value(read_facts(tmp_path / "later", live=True), None, now=NOW, live=True)
    assert (reported["recipe"], reported["parameters"], reported["tiers"], reported["outcome"]) == (
        None,
        None,
        [],
        None,
    )


def test_a_run_without_a_server_is_suspended(tmp_path):
    folder, journal = folders.begun(tmp_path / "run")
    journal.close()
    (folder.path / "lock").touch()  # as a killed server leaves it
    facts = read_facts(folder.path)
    reported = run_value(facts, None, now=NOW, live=facts.at_work)
    assert (reported["phase"], reported["live"], reported["outcome"]) == ("suspended", False, None)
    assert {row.state for row in fleet_rows(facts, None)} == {"offline"}


def test_a_row_shows_the_state_of_a_device_and_its_board():
    facts = read_facts(NOWHERE)
    (row,) = fleet_rows(facts, MOMENT)
    assert (row.state, row.epoch, row.epochs, row.refusals, row.attention) == ("training", 2, 5, 1, 0.3)
    assert (row.board, row.processor, row.cores, row.memory_total_bytes) == ("Pi 4", "Cortex-A72", 4, 4096)
    assert (row.celsius, row.battery, row.memory_bytes, row.memory_free_bytes) == (61.5, 0.8, 10, 20)
    assert row.ineligible_because == "on battery"


def test_a_row_shows_what_is_new_and_drifts():
    (device,) = MOMENT.devices
    drift = DriftFinding(statistic="loss", p_value=0.00014, examples=57)
    card = DataCard(source="npz", examples=460, input_shape=(1,), num_classes=2, new=57, drift=drift)
    (row,) = fleet_rows(read_facts(NOWHERE), replace(MOMENT, devices=(replace(device, data=card),)))
    assert (row.examples, row.new_examples) == (460, 57)
    assert row.drift == "loss of 57 examples, p = 0.00014"
    assert row.broken_files == ""


def test_a_row_names_the_first_broken_file():
    (device,) = MOMENT.devices
    skipped = SkippedFiles(files=2, of=500, first="cannot read image a.jpg: it is not an image")
    card = DataCard(source="folder", examples=498, input_shape=(1,), num_classes=2, skipped=skipped)
    (row,) = fleet_rows(read_facts(NOWHERE), replace(MOMENT, devices=(replace(device, data=card),)))
    assert row.broken_files == (
        "2 of 500 files are broken and left out; the first: cannot read image a.jpg: it is not an image"
    )


def test_the_fleet_of_a_finished_run_is_offline(tmp_path):
    alpha, beta = fleet_rows(read_facts(ended(tmp_path / "run").path), None)
    assert (alpha.state, alpha.rounds, alpha.board, alpha.examples) == ("offline", 2, "Pi 4", 60)
    assert (beta.refusals, beta.refused) == (2, {"not-finite": 2})


def test_the_fleet_of_a_run_in_another_process_is_read_from_its_journal(tmp_path):
    folder, journal = folders.begun(tmp_path / "run")
    alpha, beta = fleet_rows(read_facts(folder.path), None)
    journal.close()
    assert (alpha.state, alpha.rounds) == ("training", 2)
    assert (beta.state, beta.refused) == ("idle", {"not-finite": 2})


def test_a_device_view_shows_why_the_device_was_chosen_and_the_outcome(tmp_path):
    folder, journal = folders.begun(tmp_path / "run")
    facts = read_facts(folder.path)
    journal.close()
    choices = [
        (number, device)
        for number in (1, 2, 3)
        for device in folders.chosen(number).devices
        if device.device == "alpha"
    ]
    reported = device_value("alpha", facts, None, choices, [(1, None), (2, None)])
    assert [row["outcome"] for row in reported["rounds"]] == ["counted", "counted", "under way"]
    assert reported["rounds"][0]["because"].startswith("drawn with chance 0.6")
    assert (reported["rounds"][0]["score"], reported["rounds"][0]["weight"]) == (0.6, 1.0)
    assert reported["profile"]["machine"] == "Pi 4"


def test_the_view_of_a_refused_device_shows_the_reason(tmp_path):
    reported = device_value("beta", read_facts(ended(tmp_path / "run").path), None, [], [(1, "not-finite")])
    assert [(row["outcome"], row["reason"]) for row in reported["rounds"]] == [("refused", "not-finite")] * 2
    assert reported["delivery"]["refusals"] == 2


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"completed": (), "rejected": (), "dropped": ("alpha",)}, "dropped"),
        ({"selected": (), "completed": (), "rejected": ()}, "not chosen"),
    ],
    ids=["dropped", "not chosen"],
)
def test_dropped_devices_differ_from_devices_not_chosen(fields, outcome):
    moment = replace(MOMENT, history=(folders.record(1, **fields),))
    reported = device_value("alpha", read_facts(NOWHERE), moment, [], [])
    assert [row["outcome"] for row in reported["rounds"]] == [outcome]


def test_an_unknown_device_is_none():
    assert device_value("gamma", read_facts(NOWHERE), MOMENT, [], []) is None


def test_the_channels_of_a_model_have_scores_for_every_round():
    reported = model_value(
        [folders.observed(1), folders.observed(2)], summary().devices, gradcam_why_not="no torch"
    )
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
    # The accuracy of the variant itself, when measured.
    assert (variant["device"], variant["variant"], variant["accuracy"]) == ("alpha", "int8", 0.5)
    # The variant is not served: the earlier model is more accurate.
    assert (variant["verdict"]["served"], variant["verdict"]["earlier_accuracy"]) == (False, 0.75)


def test_a_model_without_observations_is_empty():
    reported = model_value([], (), gradcam_why_not="")
    assert (reported["groups"], reported["similarity"], reported["variants"], reported["gradcam"]) == (
        [],
        None,
        [],
        True,
    )


def test_many_rounds_are_thinned_evenly_and_keep_the_first_and_the_last():
    assert evenly_spread([3, 5]) == [3, 5]
    # Four of a hundred rounds are 99 / 3 = 33 apart.
    assert evenly_spread(list(range(1, 101)), 4) == [1, 34, 67, 100]


def test_a_channel_lists_the_tiers_that_cut_it_and_why():
    reported = channel_value([folders.observed(1)], "hidden", 1)
    # 0.9 and 0.5 are higher; the first of two equal scores ranks higher.
    assert (reported["score"], reported["rank"], reported["of"]) == (0.1, 3, 4)
    assert reported["tiers"] == [
        {"tier": 1, "keeps": False, "kept": 2, "lowest_kept_score": 0.5},
        {"tier": 2, "keeps": True, "kept": 4, "lowest_kept_score": 0.1},
    ]
    assert reported["because"] == [
        "tier 1 keeps 2 of 4 channels; this one ranks 3 by attention (0.1; the lowest kept has 0.5)"
    ]


def test_a_channel_outside_a_kept_prefix_shows_its_position():
    scores = folders.observed(1).groups["hidden"].model_copy(update={"kept": {1: 3}})
    reported = channel_value(
        [folders.observed(1).model_copy(update={"groups": {"hidden": scores}})], "hidden", 3
    )
    # Its score 0.1 equals that of the second channel, so it ranks after it.
    assert reported["because"] == [
        "tier 1 keeps 3 of 4 channels, the first 3; this is number 4, with rank 4 by attention"
    ]


def test_an_unknown_channel_is_none():
    assert channel_value([folders.observed(1)], "hidden", 4) is None
    assert channel_value([folders.observed(1)], "other", 0) is None


def test_a_broken_file_is_named(tmp_path):
    folder = ended(tmp_path / "run")
    (folder.path / "summary.json").write_text("{")
    with pytest.raises(ConfigError, match=r"summary\.json"):
        read_facts(folder.path)


def test_an_incomplete_line_of_history_is_ignored(tmp_path):
    folder = ended(tmp_path / "run")
    with (folder.path / "history.jsonl").open("a") as file:
        file.write('{"round": 3, "fra')
    assert len(read_facts(folder.path).history) == 2


def test_the_newest_counts_by_class_are_sent_with_their_intervals(tmp_path):
    facts = read_facts(ended(tmp_path / "run").path)
    devices = {
        "a": MeasuredDevice(tier=1, examples=4, by_class={"cat": (3, 2), "dog": (1, 0)}),
        "b": MeasuredDevice(tier=2, examples=1, by_class={"cat": (1, 1)}),
        "c": MeasuredDevice(tier=2, examples=1),
    }
    counted = folders.record(1).model_copy(update={"measured": devices, "test_by_class": {"cat": (0, 0)}})
    moment = replace(MOMENT, history=(counted, folders.record(2)))
    found = run_value(facts, moment, now=NOW, live=True)["by_class"]
    assert (found["round"], found["columns"]) == (1, ["test data", "all devices", "a", "b"])
    assert found["things"] == "examples"
    assert [row["name"] for row in found["rows"]] == ["cat", "dog"]
    cat, dog = (row["cells"] for row in found["rows"])
    assert cat[0] == {"examples": 0, "right": 0, "recall": None, "interval": None}
    assert (cat[1]["examples"], cat[1]["right"], cat[1]["recall"]) == (4, 3, 0.75)
    assert cat[1]["interval"] == pytest.approx((0.3006, 0.9544), abs=1e-4)
    assert [cell and cell["examples"] for cell in dog] == [None, 1, 1, None]
    assert run_value(facts, MOMENT, now=NOW, live=True)["by_class"] is None
