"""The view of each device in a snapshot of a run."""

import pytest

from edge_server.observability.counters import RunCounters
from edge_server.observability.snapshot import DeviceView
from edge_server.observability.views import make_snapshot
from edge_server.rounds.participant import Status
from edge_server.rounds.reputation import ReputationRules
from schemas.errors import Reason
from schemas.messages import Telemetry
from schemas.values import BoardState, CapabilityProfile, Eligibility
from tests.edge_server.observability.terminal.shown import record
from tests.edge_server.rounds.by_hand import NAME, Run, reply, started, update
from tests.edge_server.rounds.test_fleet import birth, death


def report(tally: RunCounters, phase: str, number: int | None, **more) -> None:
    tally.keep_telemetry(Telemetry(federation=NAME, device="a", session=1, phase=phase, round=number, **more))


def seen(run: Run, tally: RunCounters) -> dict[str, DeviceView]:
    shown = make_snapshot(
        run.federation, tally, tier=lambda _: 1, ratios=[0.5], now=run.now, began=0.0, no_link=""
    )
    return {device.device: device for device in shown.devices}


def test_counts_scores_and_refusals_are_kept_per_device():
    run, tally = started("a", "b", start_clients=9), RunCounters()
    tally.add_round(record(1, completed=("a",), attention={"a": 0.75, "b": 0.25}))
    tally.add_round(record(2, attention={"a": 0.5, "b": 0.5}, completed=("a", "b")))
    for device, reason in (("a", Reason.NOT_FINITE), ("a", Reason.MALFORMED), ("a", Reason.NOT_FINITE)):
        tally.count_refusal(device, reason)
    shown = seen(run, tally)
    assert [(device.rounds, device.attention) for device in shown.values()] == [(2, 0.5), (1, 0.5)]
    assert shown["a"].refused == {"malformed": 1, "not-finite": 2}
    assert shown["b"].refused == {}


def test_a_restarted_server_restores_the_refusals():
    before, after = RunCounters(), RunCounters()
    before.count_refusal("a", Reason.NOT_FINITE)
    after.restore(before.traffic(), [])
    after.count_refusal("a", Reason.NOT_FINITE)
    assert after.refused_of("a") == {"not-finite": 2}


def test_the_time_of_the_last_message_is_stored_up_to_the_limit_of_devices():
    run, tally = started("a", "b", start_clients=9), RunCounters(most=1)
    tally.note_contact("a")
    tally.note_contact("b")
    shown = seen(run, tally)
    assert shown["a"].seen_at is not None
    assert shown["b"].seen_at is None
    assert tally.seen.keys() == {"a"}


def test_the_board_state_is_the_last_reported_or_that_of_the_birth_message():
    run, tally = started(start_clients=9), RunCounters()
    profile = CapabilityProfile(machine="board", celsius=40.0, battery=0.5, memory_free_bytes=1000)
    run.hear(birth("a").model_copy(update={"profile": profile}))
    assert seen(run, tally)["a"].board == BoardState(celsius=40.0, battery=0.5, memory_free_bytes=1000)
    assert seen(run, tally)["a"].profile == profile
    report(tally, "idle", None, board=BoardState(celsius=50.0))
    assert seen(run, tally)["a"].board == BoardState(celsius=50.0)
    run.hear(birth("b"))
    assert seen(run, tally)["b"].board is None


def test_a_device_that_may_not_train_shows_the_reason():
    run = started(start_clients=9)
    held = {"eligibility": Eligibility.PAUSE, "ineligible_because": "battery 12 %, at least 30 %"}
    run.hear(birth("a").model_copy(update=held))
    assert seen(run, RunCounters())["a"].ineligible_because == "battery 12 %, at least 30 %"


@pytest.mark.parametrize("phase", ["fetching", "training", "uploading", "exporting"])
def test_the_phase_reported_by_a_device_is_shown_until_the_server_knows_more(phase):
    run, tally = started("a", "b"), RunCounters()
    run.plan("a", "b")
    assert seen(run, tally)["a"].state == "offered"
    report(tally, phase, 1, epoch=1, epochs=2)
    assert (seen(run, tally)["a"].state, seen(run, tally)["a"].epoch) == (phase, 1)
    run.hear(reply("a"))
    assert run.status("a") is Status.ACCEPTED
    assert seen(run, tally)["a"].state == phase
    run.hear(update("a"))
    assert (seen(run, tally)["a"].state, seen(run, tally)["a"].epoch) == ("uploading", None)


def test_telemetry_of_another_round_or_of_none_is_ignored():
    run, tally = started("a"), RunCounters()
    run.plan("a")
    run.hear(reply("a"))
    report(tally, "fetching", 7)
    assert seen(run, tally)["a"].state == "training"
    report(tally, "idle", None)
    assert seen(run, tally)["a"].state == "training"


def test_offline_and_quarantine_override_the_reported_phase():
    run, tally = started("a", "b", rounds=9, reputation=ReputationRules(after=1), quorum=0.1), RunCounters()
    run.plan("b")
    run.upload("b", reason=Reason.NOT_FINITE)
    report(tally, "idle", None)
    run.hear(death("a"))
    # The round is over: it had no other device.
    assert [device.state for device in seen(run, tally).values()] == ["offline", "quarantined"]
