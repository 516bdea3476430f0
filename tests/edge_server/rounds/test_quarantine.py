"""Quarantine: a device refused too often is notified, recorded and excluded from planning."""

from edge_server.rounds.events import EndRun, Misbehaved, Note, PlanRound, RecordStrike, RoundClosed
from edge_server.rounds.machine import Buffering, Phase
from edge_server.rounds.participant import MAX_CLAIMS, Status
from edge_server.rounds.reputation import ReputationRules
from schemas.errors import Reason
from tests.edge_server.rounds.by_hand import Run, of, refusals, started, update

ONCE = ReputationRules(after=1, window=10, rounds=2)
NAN = Reason.NOT_FINITE


def training(**rules) -> Run:
    """A run in round one with devices a, b and c; one refusal leads to two rounds of quarantine."""
    run = started("a", "b", "c", **{"rounds": 9, "reputation": ONCE, "quorum": 0.1, **rules})
    run.plan("a", "b", "c")
    return run


def asked(commands: list) -> list[str]:
    return [device.name for plan in of(PlanRound, commands) for device in plan.devices]


def test_a_device_refused_too_often_is_notified_and_excluded_for_the_configured_rounds():
    run = training()
    commands = run.upload("a", reason=NAN)
    assert refusals(commands) == [("a", NAN), ("a", Reason.QUARANTINED)]
    assert of(RecordStrike, commands) == [RecordStrike("a", 1, NAN)]
    assert [note.reason for note in of(Note, commands)] == [NAN, Reason.QUARANTINED]
    for number in (1, 2, 3):
        for device in ("b", "c"):
            run.upload(device)
        planned = asked(run.tell(RoundClosed(number)))
        # Device a is excluded from rounds 2 and 3, and asked again in round 4.
        assert planned == (["a", "b", "c"] if number == 3 else ["b", "c"])
        run.plan("b", "c")


def test_a_device_in_quarantine_that_sends_an_update_learns_why_it_is_not_selected():
    run = training()
    for device, reason in (("a", NAN), ("b", None), ("c", None)):
        run.upload(device, reason=reason)
    run.tell(RoundClosed(1))
    run.plan("b", "c")
    assert refusals(run.hear(update("a", number=2, attempt=2))) == [
        ("a", Reason.NOT_SELECTED),
        ("a", Reason.QUARANTINED),
    ]


def test_invalid_messages_count_too_but_only_once_per_round():
    run = training(reputation=ReputationRules(after=2, window=10, rounds=2))
    assert of(RecordStrike, run.tell(Misbehaved("a", Reason.WRONG_SENDER)))
    assert run.tell(Misbehaved("a", Reason.WRONG_SENDER)) == []
    assert run.tell(Misbehaved("a", Reason.MALFORMED)) == []


def test_a_name_without_a_birth_is_not_stored():
    run = training()
    for number in range(100):
        assert run.tell(Misbehaved(f"made-up-{number}", Reason.WRONG_SENDER)) == []
    assert run.federation.reputations == {}


def test_too_many_quarantined_devices_abandon_the_round_and_finally_end_the_run_with_the_reason():
    run = training(min_clients=2, attempts=1)
    for device, reason in (("a", NAN), ("b", NAN), ("c", None)):
        run.upload(device, reason=reason)
    commands = run.tell(RoundClosed(1))
    why = "round 2: 2 of 3 devices are in quarantine and min-clients is 2"
    assert [note.detail for note in of(Note, commands)] == [why]
    assert of(EndRun, run.wait(60)) == [EndRun("failed", f"{why}; given up after 2 attempts")]


def test_rounds_continue_while_enough_devices_remain():
    run = training(min_clients=1)
    for device, reason in (("a", NAN), ("b", NAN), ("c", None)):
        run.upload(device, reason=reason)
    assert asked(run.tell(RoundClosed(1))) == ["c"]


def test_buffered_rounds_exclude_quarantined_devices_too():
    run = started("a", "b", "c", reputation=ONCE, buffering=Buffering(2, concurrency=3), rounds=9)
    run.plan("a", "b", "c")
    run.upload("a", reason=NAN)
    for device in ("b", "c"):
        run.upload(device)
    assert asked(run.tell(RoundClosed(1))) == ["b", "c"]


def test_a_buffer_that_no_device_may_fill_ends_the_run():
    run = started("a", "b", reputation=ONCE, buffering=Buffering(2, concurrency=2), rounds=9, attempts=1)
    run.plan("a", "b")
    for device in ("a", "b"):
        run.upload(device, reason=NAN)
    for _ in range(10):
        if run.phase is Phase.ENDED:
            break
        commands = run.wait(60)
    assert [end.outcome for end in of(EndRun, commands)] == ["failed"]
    assert "2 of 2 devices are in quarantine" in of(EndRun, commands)[0].detail


def test_a_device_may_change_its_update_a_limited_number_of_times():
    run = training()
    for version in range(MAX_CLAIMS):
        assert refusals(run.hear(update("a", version))) == []
    assert refusals(run.hear(update("a", MAX_CLAIMS)))[0] == ("a", Reason.OVERSIZED)
    assert run.status("a") is Status.REFUSED
