"""Which classes a federation has, and which devices' data does not fit them."""

from dataclasses import replace

import pytest

from edge_server.rounds import machine
from edge_server.rounds.agreed_lists import ClassList
from edge_server.rounds.events import EndRun, Note, PlanRound, RecordStrike, RoundClosed, Send, Started
from edge_server.rounds.machine import Federation, RoundRules
from edge_server.rounds.state import Phase
from schemas.errors import Reason
from schemas.messages import Birth, Refusal
from schemas.values import DataCard
from tests.edge_server.rounds.by_hand import NAME, RUN, Run, of, reply

TEN = tuple("0123456789")


def born(
    device: str, *names: str, session: int = 1, classes: int | None = None, named: bool | None = None
) -> Birth:
    """The birth of a device whose data has these names, or `classes` numbers."""
    card = DataCard(
        source="folder:photos",
        examples=10,
        input_shape=(1, 8, 8),
        num_classes=classes or max(1, len(names)),
        named=bool(names) if named is None else named,
        class_names=names,
    )
    return Birth(federation=NAME, device=device, session=session, data=card)


def waiting(count: int, *names: str, from_zero: bool = False, **rules) -> Run:
    """A run that waits for three devices by default; its model has `count` outputs."""
    made = RoundRules(**{"rounds": 2, "deadline_s": 100.0, "start_clients": 3, **rules})
    run = Run(Federation(NAME, RUN, made, classes=ClassList(count, names, from_zero)))
    run.tell(Started())
    return run


def chosen_among(commands: list) -> list[str]:
    (plan,) = of(PlanRound, commands)
    return [device.name for device in plan.devices]


def notes(commands: list) -> list[tuple[str, str | None, str]]:
    return [(note.what, note.device, note.detail) for note in of(Note, commands)]


def test_devices_with_different_numbers_agree_on_all_numbers() -> None:
    run = waiting(10)
    run.hear(born("a", "3", "7", "9"))
    run.hear(born("b", "0", "1"))
    (plan,) = of(PlanRound, run.hear(born("c", "9", "3")))
    # '3' is the fourth of ten classes, not the first; a label 3 without a name means the same class.
    assert plan.classes == run.federation.classes.names == TEN


def test_names_are_merged_in_an_order_independent_of_the_devices() -> None:
    for first, second in (("a", "b"), ("b", "a")):
        run, own = waiting(4, start_clients=2), {"a": ("wasp", "ant"), "b": ("bee", "wasp")}
        run.hear(born(first, *own[first]))
        commands = run.hear(born(second, *own[second]))
        assert of(PlanRound, commands)[0].classes == ("ant", "bee", "wasp", "class 3")
        ((what, _, detail),) = notes(commands)
        assert what == "classes:"
        assert detail.startswith("'ant', 'bee', 'wasp', 'class 3', as the available devices name them")
        assert detail.endswith("only 3 of [model] num-classes = 4 have names")


def test_devices_without_names_use_the_numbers() -> None:
    run = waiting(10, start_clients=1)
    commands = run.hear(born("a", classes=10))
    assert of(PlanRound, commands)[0].classes == TEN
    assert notes(commands) == []


def test_a_note_explains_how_labels_without_names_are_mapped() -> None:
    run = waiting(2, start_clients=2)
    run.hear(born("a", classes=2))
    ((_, _, detail),) = notes(run.hear(born("b", "cat", "ant")))
    assert "the labels of the data of a have no names: 0 is taken for 'ant'" in detail


def test_more_names_than_outputs_end_the_run_with_a_list_of_all_names() -> None:
    run = waiting(2, start_clients=2)
    run.hear(born("a", "ant", "bee"))
    (ended,) = of(EndRun, run.hear(born("b", "wasp", "bee")))
    assert ended.outcome == "failed"
    assert ended.detail == (
        "devices have 3 classes ('ant', 'bee', 'wasp'), but [model] num-classes is 2: "
        "set [data] classes to those that count"
    )


def busy_or_free(run: Run, odd: Birth, others: int = 2) -> list:
    """What a run does once the odd device and some with the classes busy and free are there."""
    run.hear(odd)
    for number in range(others):
        commands = run.hear(born(f"b{number}", "busy", "free"))
    return commands


@pytest.mark.parametrize(
    "odd",
    [
        # The last line of its file ends in half a name; so does its only example of this class.
        born("a", "bus", "busy", "free"),
        born("a", "bus", "free"),
        born("a", "Busy", "free"),
        born("a", "busy", "free", "unknown"),
    ],
)
@pytest.mark.parametrize("others", [2, 5])
def test_only_the_device_that_alone_has_one_class_too_many_is_left_out(odd: Birth, others: int) -> None:
    commands = busy_or_free(waiting(2, start_clients=others + 1), odd, others)
    assert chosen_among(commands) == [f"b{number}" for number in range(others)]
    assert of(PlanRound, commands)[0].classes == ("busy", "free")
    ((_, device, why),) = [note for note in notes(commands) if note[0] == "is not chosen"]
    (refused,) = [sent.message for sent in of(Send, commands) if isinstance(sent.message, Refusal)]
    (out,) = of(PlanRound, commands)[0].left_out
    assert device == refused.device == out.device.name == "a"
    assert why == refused.detail
    assert "the federation knows 'busy', 'free' (2), this data has" in why
    assert of(RecordStrike, commands) == [RecordStrike("a", 1, Reason.INCOMPATIBLE)]


def test_half_a_name_is_found_beside_classes_that_only_one_device_has() -> None:
    run = waiting(3, start_clients=3)
    run.hear(born("a", "ant", "bee", "wasp"))
    run.hear(born("b", "ant", "bee"))
    commands = run.hear(born("c", "ant", "be"))
    assert of(PlanRound, commands)[0].classes == ("ant", "bee", "wasp")
    assert chosen_among(commands) == ["a", "b"]


@pytest.mark.parametrize("names", [("ant", "bee", "wasp"), ("ant", "be", "bee")])
def test_devices_that_each_have_a_class_of_their_own_are_not_left_out_by_chance(names) -> None:
    run = waiting(1, start_clients=3)
    for device, name in zip("abc", names, strict=True):
        commands = run.hear(born(device, name))
    assert "devices have 3 classes" in of(EndRun, commands)[0].detail


@pytest.mark.parametrize(
    ("reach", "names"),
    [
        # Twenty-seven labels for 26 classes, on half of the devices at least: they run from 1.
        ((27, 27, 27), [*range(1, 27)]),
        ((27, 27, 10, 12), [*range(1, 27)]),
        ((27, 10, 12), [*range(26)]),
        ((26, 26, 26), [*range(26)]),
    ],
)
def test_labels_from_1_are_numbered_so_where_most_devices_have_the_last(reach, names) -> None:
    run = waiting(26, start_clients=len(reach))
    for number, count in enumerate(reach):
        commands = run.hear(born(f"d{number}", classes=count))
    assert of(PlanRound, commands)[0].classes == tuple(map(str, names))
    assert any("labels are 1 to 26" in note[2] for note in notes(commands)) == (names[0] == 1)


def test_a_name_with_two_spellings_ends_the_run() -> None:
    run = waiting(4, start_clients=2)
    run.hear(born("a", "Ant", "bee"))
    (ended,) = of(EndRun, run.hear(born("b", "ant", "bee")))
    assert "one class is spelled differently: 'Ant' (a) and 'ant' (b)" in ended.detail
    numbers = waiting(4, start_clients=2)
    numbers.hear(born("a", "03"))
    assert "'03' (a) and '3' (b)" in of(EndRun, numbers.hear(born("b", "3")))[0].detail


def test_names_that_one_device_distinguishes_by_case_are_two_classes() -> None:
    run = waiting(3, start_clients=2)
    run.hear(born("a", "A", "a", "b"))
    assert of(PlanRound, run.hear(born("b", "a")))[0].classes == ("A", "a", "b")


def test_class_names_that_no_device_can_state_end_the_run() -> None:
    run = waiting(300, start_clients=1)
    (ended,) = of(EndRun, run.hear(born("a", classes=300, named=True)))
    assert (
        ended.detail == "the data of a could not state the names of all classes: set [data] classes to them"
    )


def test_a_device_with_an_unknown_class_is_excluded_from_its_birth_on_and_the_others_continue() -> None:
    run = waiting(2, "ant", "bee")
    run.hear(born("a", "ant"))
    commands = run.hear(born("b", "ant", "wasp"))
    why = (
        "unknown class 'wasp': the federation knows 'ant', 'bee' (2), this data has 'ant', 'wasp' (2); "
        "rename it, or add it to [data] classes"
    )
    assert notes(commands) == [("is not chosen", "b", why)]
    (sent,) = [command.message for command in of(Send, commands) if isinstance(command.message, Refusal)]
    assert (sent.device, sent.reason, sent.detail) == ("b", Reason.INCOMPATIBLE, why)
    assert of(RecordStrike, commands) == [RecordStrike("b", 1, Reason.INCOMPATIBLE)]
    planned = run.hear(born("c", "bee"))
    assert chosen_among(planned) == ["a", "c"]
    (out,) = of(PlanRound, planned)[0].left_out
    assert (out.device.name, out.because) == ("b", f"left out: {why}")


def test_a_misfit_is_noted_once_but_the_device_is_refused_in_every_session() -> None:
    run = waiting(2, "ant", "bee")
    run.hear(born("b", "wasp"))
    assert run.hear(born("b", "wasp")) == []
    again = run.hear(born("b", "wasp", session=2))
    assert notes(again) == []
    assert [sent.device for sent in of(Send, again)] == ["b"]
    run.hear(born("b", "ant", session=3))
    assert run.federation.fleet.devices["b"].misfit == ""


def test_labels_beyond_the_list_exclude_a_device() -> None:
    run = waiting(2, "ant", "bee")
    (note,) = notes(run.hear(born("b", classes=3)))
    assert "labels up to 2, but the federation knows 'ant', 'bee' (2)" in note[2]


def test_labels_beyond_a_list_of_numbers_name_the_remedy() -> None:
    """As where the server's test part lacks the last class."""
    run = waiting(9, start_clients=1, from_zero=True)
    commands = run.hear(born("a", classes=10))
    ((_, _, why),) = [note for note in notes(commands) if note[0] == "is not chosen"]
    assert why.startswith("labels up to 9, but the federation knows '0', '1',")
    assert why.endswith("add it to [data] classes, or state in [model] num-classes how many there are")
    assert [why in note[2] for note in notes(commands) if note[0] == "round abandoned"] == [True]


def test_a_device_that_joins_with_a_new_class_after_the_agreement_is_excluded() -> None:
    run = waiting(3, start_clients=1)
    run.hear(born("a", "ant", "bee"))
    commands = run.hear(born("b", "wasp"))
    assert notes(commands)[0][:2] == ("is not chosen", "b")


def test_a_device_outside_the_agreement_is_checked_against_it() -> None:
    run = waiting(3, start_clients=1)
    paused = born("b", "wasp").model_copy(update={"eligibility": "pause"})
    run.hear(paused)
    commands = run.hear(born("a", "ant", "bee"))
    assert chosen_among(commands) == ["a"]
    assert ("is not chosen", "b") in [note[:2] for note in notes(commands)]


def test_without_a_fitting_device_the_round_is_abandoned_with_the_reason() -> None:
    run = waiting(2, "ant", "bee", start_clients=1)
    commands = run.hear(born("a", "wasp"))
    ((_, _, detail),) = [note for note in notes(commands) if note[0] == "round abandoned"]
    assert "the data of 1 of 1 devices does not fit" in detail
    assert "unknown class 'wasp'" in detail


def test_a_device_that_declines_as_incompatible_is_a_misfit_for_that_session() -> None:
    run = waiting(300, *(f"species {number}" for number in range(300)), start_clients=2, quorum=0.1)
    run.hear(born("a", classes=300, named=True))
    run.hear(born("b", "species 7"))
    run.plan("a", "b")
    run.hear(reply("a", accepted=False, reason=Reason.INCOMPATIBLE, detail="unknown class 'x'"))
    assert run.federation.fleet.devices["a"].misfit == "unknown class 'x'"
    run.hear(born("a", classes=300, named=True, session=2))
    assert run.federation.fleet.devices["a"].misfit == ""


def test_models_are_not_delivered_to_devices_that_do_not_fit() -> None:
    run = waiting(2, "ant", "bee", start_clients=1, rounds=1)
    run.hear(born("a", "ant"))
    run.hear(born("b", "wasp"))
    delivering = replace(run.federation, phase=Phase.CLOSING)
    _, commands = machine.step(delivering, RoundClosed(1), 1.0)
    assert chosen_among(commands) == ["a"]


def test_buffered_rounds_agree_on_classes_before_the_first_task() -> None:
    buffering = machine.Buffering(1, concurrency=2)
    run = waiting(10, start_clients=2, buffering=buffering)
    run.hear(born("a", "3"))
    (plan,) = of(PlanRound, run.hear(born("b", "7")))
    assert plan.classes == TEN


def test_a_hostile_birth_does_not_crash_the_server() -> None:
    run = waiting(2, "ant", "bee")
    run.hear(born("a", classes=10**6))
    run.hear(born("b", *(f"name {number}" for number in range(200)), named=False))
    assert all(device.misfit for device in run.federation.fleet.devices.values())
