"""A run is for the devices whose labels match its selector; the operator's labels count first."""

from dataclasses import replace

from edge_server.rounds.events import LabelsChanged, PlanRound, RoundClosed, Started
from edge_server.rounds.fleet import Fleet, Membership
from edge_server.rounds.machine import Federation, Phase
from schemas.selectors import parse_where
from tests.edge_server.rounds.by_hand import Run, of, started
from tests.edge_server.rounds.test_exclusions import reasons
from tests.edge_server.rounds.test_fleet import birth


def labelled(device: str, **labels: str):
    return birth(device).model_copy(update={"labels": labels})


def begun(where: str, *births, sites: tuple[str, ...] = (), **rules) -> Run:
    membership = Membership(parse_where(where), "home", sites)
    waiting: Federation = started(**rules).federation
    run = Run(replace(waiting, fleet=Fleet(membership=membership)))
    run.tell(Started())
    for message in births:
        run.hear(message)
    return run


def planned(commands: list) -> list[str]:
    (plan,) = of(PlanRound, commands)
    return [device.name for device in plan.devices]


def test_only_matching_devices_start_a_run_and_are_planned():
    run = begun("site=barn", labelled("a", site="barn"), labelled("b", site="field"), start_clients=2)
    assert run.phase is Phase.WAITING
    commands = run.hear(labelled("c", site="barn"))
    assert planned(commands) == ["a", "c"]
    assert reasons(commands) == {"b": "left out: its labels do not match where = 'site=barn'"}


def test_the_operators_labels_win_and_count_at_once():
    run = begun(
        "site=barn", labelled("a", site="field"), labelled("b", site="barn"), start_clients=2, rounds=2
    )
    assert run.phase is Phase.WAITING
    assert planned(run.tell(LabelsChanged({"a": {"site": "barn"}}))) == ["a", "b"]
    run.plan("a", "b")
    for device in "ab":
        run.upload(device)
    run.tell(LabelsChanged({"a": {"site": "barn"}, "b": {"site": "attic"}}))
    assert planned(run.tell(RoundClosed(1))) == ["a"]


def test_a_device_at_work_finishes_after_its_label_has_changed():
    run = begun("site=barn", labelled("a", site="barn"))
    run.plan("a")
    run.tell(LabelsChanged({"a": {"site": "field"}}))
    run.upload("a")
    assert run.phase is Phase.CLOSING


def test_names_and_the_sites_of_gateways_are_labels():
    run = begun("site=barn,device!=barn.b", birth("barn.a"), birth("barn.b"), birth("c"), sites=("barn",))
    assert [device.name for device in run.federation.fleet.able()] == ["barn.a"]


def test_without_a_selector_every_device_takes_part():
    run = begun("", labelled("a", site="barn"), birth("b"), start_clients=2)
    run.tell(LabelsChanged({"a": {"site": "attic"}}))
    assert [device.name for device in run.federation.fleet.able()] == ["a", "b"]


def test_models_are_delivered_to_the_devices_of_the_run():
    run = begun("role=camera", labelled("a", role="camera"), labelled("b", role="scale"))
    assert [device.name for device in run.federation.fleet.fitting()] == ["a"]
