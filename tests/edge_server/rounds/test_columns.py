"""Which columns a federation has, and which devices' data does not fit them."""

from dataclasses import replace

import pytest

from edge_client.data.columns import features_of
from edge_server.rounds.agreed_lists import ClassList, ColumnList
from edge_server.rounds.events import Note, PlanRound, Send, Started
from edge_server.rounds.machine import Federation, RoundRules
from schemas.errors import Reason
from schemas.messages import Birth
from schemas.values import DataCard, Feature
from tests.edge_server.rounds.by_hand import NAME, RUN, Run, of, reply


def born(
    device: str, *headers: str, session: int = 1, shape: tuple[int, ...] = (), cut: bool = False
) -> Birth:
    """The birth of a device with these columns, of which it states only the first if they are `cut`."""
    columns = features_of(headers)
    card = DataCard(
        source="csv:a.csv",
        examples=10,
        input_shape=shape or (len(headers),),
        num_classes=2,
        columns=columns[:1] if cut else columns,
    )
    return Birth(federation=NAME, device=device, session=session, data=card)


def waiting(count: int, *headers: str, shape: tuple[int, ...] = (2,), **rules) -> Run:
    """A run that waits for `count` devices; its model has these columns."""
    made = RoundRules(**{"rounds": 3, "deadline_s": 100.0, "start_clients": count, "quorum": 0.1, **rules})
    run = Run(Federation(NAME, RUN, made, columns=ColumnList(shape, features_of(headers))))
    run.tell(Started())
    return run


def hear(run: Run, *births: Birth) -> list:
    return [command for birth in births for command in run.hear(birth)]


def planned(commands: list) -> tuple[list[str], list[str]]:
    (plan,) = of(PlanRound, commands)
    return [device.name for device in plan.devices], [column.in_words() for column in plan.columns]


def notes(commands: list) -> list[tuple[str, str | None, str]]:
    return [(note.what, note.device, note.detail) for note in of(Note, commands)]


def test_two_devices_with_other_orders_take_one_of_them() -> None:
    run = waiting(2)
    commands = hear(run, born("a", "t", "co2"), born("b", "co2", "t"))
    assert planned(commands) == (["a", "b"], ["t", "co2"])
    assert run.federation.columns.columns == features_of(["t", "co2"])
    ((what, _, words),) = [note for note in notes(commands) if note[0] == "columns:"]
    assert (what, words) == (
        "columns:",
        "'t', 'co2' (2), as most of the available devices name them; [data] columns would fix them",
    )


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_order_is_that_of_most_devices_whoever_comes_first(first: int) -> None:
    births = [born("a", "co2", "t"), born("b", "t", "co2"), born("c", "t", "co2")]
    _, columns = planned(hear(waiting(3), *births[first:], *births[:first]))
    assert columns == ["t", "co2"]


def test_a_device_with_other_columns_than_most_is_refused_with_both_lists_and_the_run_goes_on() -> None:
    run = waiting(3)
    commands = hear(run, born("a", "x", "co2"), born("b", "t", "co2"), born("c", "co2", "t"))
    assert planned(commands) == (["b", "c"], ["t", "co2"])
    (refused,) = [note for note in notes(commands) if note[1] == "a"]
    assert refused[0] == "is not chosen"
    assert "the model takes 't', 'co2' (2), this data has 'x', 'co2' (2)" in refused[2]
    (sent,) = of(Send, commands)
    assert (sent.device, sent.message.reason, sent.message.detail) == ("a", Reason.INCOMPATIBLE, refused[2])


def test_a_device_with_other_columns_has_no_say_in_the_classes() -> None:
    run = waiting(3)
    run.federation = replace(run.federation, classes=ClassList(2))
    births = (born("a", "t", "co2"), born("b", "t", "co2"), born("c", "x", "co2"))
    for birth, name in zip(births, ("free", "busy", "elsewhere"), strict=True):
        card = birth.data.model_copy(update={"named": True, "class_names": (name,)})
        commands = run.hear(birth.model_copy(update={"data": card}))
    assert planned(commands)[0] == ["a", "b"]
    assert run.federation.classes.names == ("busy", "free")


def test_units_of_most_devices_count_and_unknown_ones_fit() -> None:
    run = waiting(4)
    commands = hear(
        run,
        born("a", "t [°F]", "co2"),
        born("b", "t [°C]", "co2"),
        born("c", "t (°C)", "co2 [ppm]"),
        born("d", "t", "co2"),
    )
    assert planned(commands) == (["b", "c", "d"], ["t [°C]", "co2 [ppm]"])
    assert "is in °F here, and the model takes °C" in run.federation.fleet.devices["a"].misfit


def test_the_servers_columns_stay_and_get_the_units_of_devices() -> None:
    run = waiting(2, "co2", "t")
    commands = hear(run, born("a", "t [°C]", "co2"), born("b", "t [°C]", "co2"))
    assert planned(commands)[1] == ["co2", "t [°C]"]
    assert not [note for note in notes(commands) if note[0] == "columns:"]


def test_a_device_that_does_not_fit_the_servers_columns_is_refused_at_its_birth() -> None:
    commands = hear(waiting(2, "co2", "t"), born("a", "co2", "x"))
    assert [sent.device for sent in of(Send, commands)] == ["a"]
    assert "unknown column 'x' and no column 't'" in notes(commands)[0][2]


def test_only_columns_of_the_models_shape_are_taken() -> None:
    run = waiting(3)
    births = (born("a", "t", "co2", "x"), born("b", "t", "co2", "x"), born("c", "t", "co2"))
    assert planned(hear(run, *births)) == (["c"], ["t", "co2"])


@pytest.mark.parametrize("shape", [(2, 10), (1, 2, 10)])
def test_windows_have_columns_too(shape: tuple[int, ...]) -> None:
    run = waiting(1, shape=shape)
    assert planned(hear(run, born("a", "t", "co2", shape=(2, 10))))[1] == ["t", "co2"]


def test_what_was_agreed_stays_when_other_devices_come() -> None:
    run = waiting(1)
    hear(run, born("a", "t", "co2"))
    hear(run, born("b", "co2", "t"), born("c", "co2", "t"))
    assert [column.name for column in run.federation.columns.columns] == ["t", "co2"]


def test_a_run_that_began_without_columns_goes_on_without() -> None:
    run = waiting(1)
    assert planned(hear(run, born("a", "t", "co2", cut=True)))[1] == []
    hear(run, born("b", "co2", "t"))
    assert run.federation.columns.columns == ()


def test_pictures_have_no_columns_and_nothing_is_said() -> None:
    run = waiting(1, shape=(1, 8, 8))
    picture = DataCard(source="digits", examples=9, input_shape=(1, 8, 8), num_classes=10, columns=())
    commands = hear(run, Birth(federation=NAME, device="a", session=1, data=picture))
    assert planned(commands) == (["a"], [])
    assert not [note for note in notes(commands) if note[0] == "columns:"]


def test_columns_that_no_birth_can_state_are_said_to_be_taken_in_their_order() -> None:
    commands = hear(waiting(1), born("a", "t", "co2", cut=True))
    assert planned(commands)[1] == []
    assert "each takes those of its file in their order" in notes(commands)[0][2]


def test_a_device_that_could_not_state_its_columns_and_declines_its_task_does_not_fit() -> None:
    run = waiting(2, "co2", "t")
    hear(run, born("a", "x", "y", cut=True), born("b", "t", "co2"))
    run.plan("a", "b")
    run.hear(reply("a", accepted=False, reason=Reason.INCOMPATIBLE, detail="unknown column 'x'"))
    assert run.federation.fleet.devices["a"].misfit == "unknown column 'x'"


def test_a_hostile_birth_does_not_crash_the_server() -> None:
    run = waiting(1)
    same = (Feature(name="t"), Feature(name="t"))
    for name, shape, columns in (("a", (), same), ("b", (2,), same), ("c", (9,), same)):
        card = DataCard(source="x", examples=1, input_shape=shape, num_classes=1, columns=columns)
        run.hear(Birth(federation=NAME, device=name, session=1, data=card))
    assert run.federation.columns.columns == ()
