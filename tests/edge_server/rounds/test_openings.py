"""When rounds begin: at once, by the clock, by new data, by drift; and runs without end."""

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest

from edge_server.config.run_sections import FederationSettings
from edge_server.rounds.closing import abandon
from edge_server.rounds.fleet import Device, Fleet
from edge_server.rounds.openings import DEMANDS, OpeningRules, When
from edge_server.rounds.planning import is_ready
from edge_server.rounds.state import Federation, Phase, RoundRules
from schemas.values import LAST_ROUND, CapabilityProfile, DataCard, DriftFinding
from tests.edge_server.rounds.by_hand import update

ALARM = DriftFinding(statistic="loss", p_value=0.001, examples=60)


def device(name: str, *, new: int | None = None, drift: DriftFinding | None = None) -> Device:
    card = DataCard(
        source="folder:x", examples=100, input_shape=(1, 8, 8), num_classes=10, new=new, drift=drift
    )
    return Device(name, 1, CapabilityProfile(), card)


def fleet(*devices: Device) -> Fleet:
    return Fleet({one.name: one for one in devices})


def waiting(number: int, opening: OpeningRules, *devices: Device) -> Federation:
    rules = RoundRules(LAST_ROUND, opening=opening)
    return Federation("f", "r", rules, Phase.WAITING, number, fleet=fleet(*devices))


def test_the_file_names_every_way_and_no_other() -> None:
    assert set(get_args(get_type_hints(FederationSettings)["when"])) == set(get_args(When)) == set(DEMANDS)


@pytest.mark.parametrize("when", DEMANDS)
def test_the_first_rounds_begin_at_once(when: When) -> None:
    opening = OpeningRules(when, rounds=3)
    for number in (1, 2, 3):
        assert is_ready(waiting(number, opening, device("a")), 0.0)
        assert opening.not_before(number, 5.0) == 5.0


def test_rounds_of_one_opening_follow_each_other() -> None:
    opening = OpeningRules("drift", rounds=3)
    ready = [is_ready(waiting(number, opening, device("a")), 0.0) for number in range(1, 9)]
    assert ready == [True, True, True, False, True, True, False, True]


def test_a_new_model_may_have_more_rounds_at_the_beginning() -> None:
    opening = OpeningRules("drift", rounds=3, first_rounds=4)
    ready = [is_ready(waiting(number, opening, device("a")), 0.0) for number in range(1, 11)]
    # The first rounds end with the second opening.
    assert ready == [True] * 6 + [False, True, True, False]


def test_by_the_clock_an_opening_begins_so_many_seconds_after_the_last_round() -> None:
    opening = OpeningRules("every-s", rounds=2, every_s=60.0)
    assert [opening.not_before(number, 100.0) for number in (1, 2, 3, 4, 5)] == [100, 100, 160, 100, 160]


def test_new_examples_of_all_devices_add_up_and_those_that_may_not_train_do_not_count() -> None:
    opening = OpeningRules("new-data", new_examples=50)
    few = (device("a", new=20), device("b", new=29), device("c"))
    assert not is_ready(waiting(2, opening, *few), 0.0)
    assert str(opening.demand(2, fleet(*few))) == "49 of 50 new examples"
    assert is_ready(waiting(2, opening, *few, device("d", new=1)), 0.0)
    lost = replace(device("d", new=1), lost_at=3.0)
    assert not is_ready(waiting(2, opening, *few, lost), 0.0)


def test_so_many_devices_must_report_a_drift() -> None:
    opening = OpeningRules("drift", drifting=2)
    alarmed = device("a", new=60, drift=ALARM)
    assert not is_ready(waiting(2, opening, alarmed, device("b", new=60)), 0.0)
    assert is_ready(waiting(2, opening, alarmed, device("b", new=60, drift=ALARM)), 0.0)


def test_devices_that_have_trained_have_nothing_new_and_an_alarm_stands_if_their_update_says_so() -> None:
    before = fleet(
        device("a", new=60, drift=ALARM), device("b", new=5), device("c"), device("d", new=9, drift=ALARM)
    )
    helped = update("d").model_copy(update={"drift": ALARM})
    after = before.with_trained_devices(
        {"a": update("a"), "c": update("c"), "d": helped, "unknown": update("unknown")}
    )
    found = [(one.data.new, one.data.drift) for one in after.able()]
    assert found == [(0, None), (5, None), (None, None), (0, ALARM)]
    assert after.devices["c"] is before.devices["c"]


def test_a_run_without_end_goes_on_after_any_number_of_abandoned_attempts() -> None:
    endless, ending = (
        Federation("f", "r", RoundRules(rounds, attempts=2), abandoned=2) for rounds in (LAST_ROUND, 10)
    )
    waits, _ = abandon(endless, "no updates", 0.0)
    # The pause no longer grows: 2 s, doubled twice.
    assert (waits.phase, waits.abandoned, waits.not_before) == (Phase.WAITING, 2, 8.0)
    assert abandon(ending, "no updates", 0.0)[0].phase is Phase.ENDED
