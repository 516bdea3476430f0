"""The recorded choices of a planning: their order, replaced devices and the number of omitted devices."""

from edge_server.coordinator import planner
from edge_server.coordinator.planner import record_selection
from edge_server.rounds.events import ExcludedDevice, PlanRound
from edge_server.rounds.fleet import Device
from edge_server.strategy.explanations import DeviceChoice, RoundChoices
from edge_server.strategy.selection.interface import Explanation
from schemas.values import CapabilityProfile, DataCard

CARD = DataCard(source="digits", examples=24, input_shape=(1, 8, 8), num_classes=10)


def device(name: str) -> Device:
    return Device(name, 1, CapabilityProfile(), CARD)


def planned(*chosen: str, **more) -> RoundChoices:
    """Record a planning that chose `chosen` among a, b and c; d was offline."""
    values = {
        "devices": tuple(map(device, "abc")),
        "left_out": (ExcludedDevice(device("d"), "offline"),),
        "known": 4,
        **more,
    }
    command = PlanRound(2, 7, **values)
    return record_selection(
        command, dict.fromkeys(chosen, 0.5), lambda name: Explanation(f"so is {name}", 0.1), lambda _: 3
    )


def test_chosen_devices_come_first_then_unchosen_then_unavailable_ones():
    assert planned("b") == RoundChoices(
        attempt=7,
        round=2,
        devices=(
            DeviceChoice(device="b", chosen=True, because="so is b", score=0.1, tier=3, ratio=0.5),
            DeviceChoice(device="a", chosen=False, because="so is a", score=0.1, tier=3),
            DeviceChoice(device="c", chosen=False, because="so is c", score=0.1, tier=3),
            DeviceChoice(device="d", chosen=False, because="offline", tier=3),
        ),
    )


def test_each_replacement_names_the_device_it_replaces():
    choices = planned("a", "c", wanted=2, retry=1, places=("x", "y"), left_out=())
    assert [choice.because for choice in choices.devices] == [
        "takes the place of x, which gave its task back; so is a",
        "takes the place of y, which gave its task back; so is c",
    ]
    # b and d were recorded before and are not recorded again.
    assert choices.left_out == 2


def test_the_first_planning_of_a_buffered_round_records_all_devices():
    assert [choice.device for choice in planned("c", wanted=1, retry=0).devices] == ["c", "a", "b", "d"]


def test_the_recorded_devices_are_limited_and_the_others_are_counted(monkeypatch):
    monkeypatch.setattr(planner, "MAX_DEVICES", 2)
    choices = planned("c")
    assert ([choice.device for choice in choices.devices], choices.left_out) == (["c", "a"], 2)
    choices = planned("a", "b", "c")
    assert ([choice.device for choice in choices.devices], choices.left_out) == (["a", "b"], 2)


def test_a_devices_own_reason_is_cut_to_the_allowed_length():
    choices = planned(
        "a", left_out=(ExcludedDevice(device("d"), "left out: its owner's rules: " + "x" * 500),)
    )
    assert len(choices.devices[-1].because) == 500
