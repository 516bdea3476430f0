"""The rollout as a state machine, transition by transition."""

from dataclasses import replace

from edge_server.releases.rollout.state import Connected, MessageReceived, RolloutPhase, Withdrawn
from edge_server.releases.rollout.target import CHECK_UP_S, TargetStatus
from schemas.messages import BlobRequest
from schemas.messages.rollout import Cause, Stage
from schemas.tensors.chunks import CHUNK_BYTES, SMALL_CHUNK_BYTES
from tests.edge_server.releases.rollout.fleet import FEDERATION, FILES, RULES, World, birth

FIVE = ("a", "b", "c", "d", "e")


def test_the_rollout_waits_for_the_expected_number_of_devices() -> None:
    world = World(RULES.model_copy(update={"expect": 2}))
    world.begin("a")
    assert world.wait(1000) == []
    assert world.rollout.phase is RolloutPhase.GATHERING
    world.do(MessageReceived(birth("b")))
    assert world.rollout.phase is RolloutPhase.RUNNING


def test_at_first_only_the_canary_is_offered_the_model() -> None:
    world = World().begin(*FIVE)
    assert [len(world.group(number)) for number in range(3)] == [1, 2, 2]
    assert world.offered() == set(world.group(0))
    world.wait(60)
    assert world.offered() == set(world.group(0))


def test_groups_open_in_order_and_the_last_one_finishes_the_rollout() -> None:
    world = World().begin(*FIVE)
    for number in range(3):
        assert world.offered() == {device for n in range(number + 1) for device in world.group(n)}
        for device in world.group(number):
            world.say(device, Stage.SWITCHED)
            world.say(device, Stage.KEPT)
    assert world.rollout.phase is RolloutPhase.FINISHED


def test_a_device_receives_only_the_file_of_its_own_tier() -> None:
    world = World().begin("a", "b", tiers={"a": 1, "b": 2})
    (device,) = world.group(0)
    tier = {"a": 1, "b": 2}[device]
    assert world.sent[0][1].blob == FILES[tier].ref
    for number, file in FILES.items():
        request = BlobRequest(federation=FEDERATION, device=device, digest=file.ref.digest, first=0, count=2)
        world.do(MessageReceived(request))
        assert bool(world.chunks) is (number == tier)
        world.chunks.clear()


def test_a_device_that_reports_no_tier_receives_the_file_of_the_tier_it_trained() -> None:
    world = World(RULES.model_copy(update={"canary": "100%"}))
    # Without known memory each device would have tier 1; a tier that the device reports has priority.
    world.rollout = replace(world.rollout, device_tiers={"a": 2, "late": 2, "stated": 2})
    world.do(Connected(CHUNK_BYTES))
    for device, tier in {"a": None, "b": None, "stated": 1}.items():
        world.do(MessageReceived(birth(device, tier=tier)))
    world.wait(RULES.gather_s)
    world.do(MessageReceived(birth("late", tier=None)))
    assert {device: message.tier for device, message in world.sent} == {
        "a": 2,
        "b": 1,
        "stated": 1,
        "late": 2,
    }
    assert {message.blob for device, message in world.sent if message.tier == 2} == {FILES[2].ref}


def test_a_device_in_a_closed_group_receives_no_chunks() -> None:
    world = World().begin(*FIVE)
    later = world.group(1)[0]
    digest = FILES[1].ref.digest
    world.do(
        MessageReceived(BlobRequest(federation=FEDERATION, device=later, digest=digest, first=0, count=2))
    )
    assert world.chunks == []


def test_chunks_are_small_if_the_broker_accepts_only_small_packets() -> None:
    world = World()
    world.do(Connected(SMALL_CHUNK_BYTES))
    world.do(MessageReceived(birth("a")))
    world.wait(5)
    assert world.sent[0][1].blob.chunk_bytes == SMALL_CHUNK_BYTES


def test_a_bad_model_stops_at_the_canary_and_nothing_is_withdrawn() -> None:
    world = World().begin(*FIVE)
    (canary,) = world.group(0)
    world.say(canary, Stage.SWITCHED)
    world.say(canary, Stage.ROLLED_BACK, Cause.ERRORS)
    assert world.rollout.phase is RolloutPhase.STOPPED
    assert world.rollout.why == "canary: 1 of 1 failed, more than 0.05 of the group"
    assert world.offered() == {canary}
    assert world.withdrawn() == set()


def test_a_failure_in_a_later_group_withdraws_the_model_from_all_who_kept_it() -> None:
    world = World().begin(*FIVE)
    (canary,) = world.group(0)
    world.say(canary, Stage.KEPT)
    switched, refused = world.group(1)
    world.say(switched, Stage.SWITCHED)
    world.say(refused, Stage.REFUSED, Cause.ACCURACY)
    assert world.rollout.phase is RolloutPhase.STOPPING
    assert world.withdrawn() == {canary, switched}
    world.say(switched, Stage.ROLLED_BACK, Cause.WITHDRAWN)
    assert world.rollout.phase is RolloutPhase.STOPPING
    world.say(canary, Stage.ROLLED_BACK, Cause.WITHDRAWN)
    assert world.rollout.phase is RolloutPhase.STOPPED
    assert world.rollout.left_with_it == ()
    assert world.offered() == {canary, switched, refused}


def test_an_unanswered_withdrawal_is_repeated_and_finally_abandoned() -> None:
    world = World().begin("a")
    world.say("a", Stage.SWITCHED)
    world.do(Withdrawn("by hand"))
    assert world.wait(1) == []
    assert [message.kind for _, message in world.wait(5)] == ["model-withdrawal"]
    world.wait(RULES.silent_s)
    assert world.rollout.phase is RolloutPhase.STOPPED
    assert world.rollout.left_with_it == ("a",)


def test_a_device_that_already_had_the_version_receives_no_withdrawal() -> None:
    world = World(RULES.model_copy(update={"canary": "2"})).begin("a", "b")
    world.say("a", Stage.KEPT, candidate=None, running=None)
    world.say("b", Stage.REFUSED, Cause.LATENCY)
    assert world.rollout.phase is RolloutPhase.STOPPED
    assert world.withdrawn() == set()
    assert world.status("a") is TargetStatus.KEPT


def test_an_unanswered_offer_is_repeated_soon_and_an_answered_one_rarely() -> None:
    world = World().begin("a")
    assert world.wait(4.9) == []
    assert [message.kind for _, message in world.wait(0.2)] == ["model-offer"]
    world.say("a", Stage.FETCHED)
    assert world.wait(CHECK_UP_S - 0.1) == []
    assert [message.kind for _, message in world.wait(0.2)] == ["model-offer"]


def test_a_device_that_reconnects_is_offered_the_model_at_once() -> None:
    world = World().begin("a")
    world.say("a", Stage.FETCHED)
    world.lost("a")
    assert world.wait(50) == []
    assert [message.kind for _, message in world.do(MessageReceived(birth("a", session=2)))] == [
        "model-offer"
    ]


def test_a_device_that_stays_away_is_not_counted() -> None:
    world = World(RULES.model_copy(update={"canary": "2", "groups": 1})).begin("a", "b")
    world.lost("a")
    world.say("b", Stage.KEPT)
    assert world.rollout.phase is RolloutPhase.RUNNING
    world.wait(RULES.away_s)
    assert world.status("a") is TargetStatus.AWAY
    assert world.rollout.phase is RolloutPhase.FINISHED


def test_the_rollout_waits_for_a_group_that_is_entirely_away() -> None:
    world = World().begin("a", "b", "c")
    (canary,) = world.group(0)
    world.lost(canary)
    world.wait(10 * RULES.away_s)
    assert world.status(canary) is TargetStatus.AWAY
    assert world.rollout.phase is RolloutPhase.RUNNING
    assert world.offered() == {canary}
    world.do(MessageReceived(birth(canary, session=2)))
    world.say(canary, Stage.KEPT)
    assert world.rollout.opened == 1


def test_a_device_that_goes_silent_after_the_switch_counts_as_failed() -> None:
    world = World().begin(*FIVE)
    (canary,) = world.group(0)
    world.say(canary, Stage.SWITCHED)
    world.lost(canary)
    world.wait(RULES.terms.watch_s + RULES.silent_s)
    assert world.status(canary) is TargetStatus.SILENT
    assert world.rollout.phase is RolloutPhase.STOPPING


def test_only_the_allowed_number_of_devices_download_at_a_time() -> None:
    world = World(RULES.model_copy(update={"canary": "5", "at_once": 2})).begin(*FIVE)
    first = world.offered()
    assert len(first) == 2
    for device in first:
        world.say(device, Stage.OFFERED)
    assert world.offered() == first
    world.say(min(first), Stage.FETCHED)
    assert len(world.offered()) == 3


def test_a_device_waiting_for_its_turn_is_not_counted_as_away() -> None:
    world = World(RULES.model_copy(update={"canary": "5", "at_once": 2})).begin(*FIVE)
    world.wait(RULES.away_s)
    # The two devices that have not answered are away, two others have been asked, and the last one waits.
    statuses = sorted(world.status(device) for device in FIVE)
    assert statuses == ["asked", "asked", "away", "away", "waiting"]


def test_a_device_that_joins_late_is_in_the_last_group() -> None:
    world = World().begin("a", "b", "c")
    world.do(MessageReceived(birth("late")))
    assert world.rollout.targets["late"].group == 2
    assert "late" not in world.offered()


def test_a_final_status_does_not_change() -> None:
    world = World(RULES.model_copy(update={"canary": "2", "success": 0.5})).begin("a", "b")
    world.say("a", Stage.REFUSED, Cause.ACCURACY)
    world.say("a", Stage.SWITCHED)
    assert world.status("a") is TargetStatus.REFUSED


def test_a_report_of_another_rollout_is_ignored() -> None:
    world = World().begin("a")
    sent = world.say("a", Stage.FETCHED)
    assert sent == []
    report = world.rollout.targets["a"].report.model_copy(update={"rollout": "r-0", "stage": Stage.KEPT})
    world.do(MessageReceived(report))
    assert world.status("a") is TargetStatus.COMPARING


def test_a_finished_rollout_does_not_change() -> None:
    world = World().begin("a")
    world.say("a", Stage.REFUSED, Cause.ACCURACY)
    over = world.rollout
    world.say("a", Stage.KEPT)
    assert (over.phase, world.rollout) == (RolloutPhase.STOPPED, over)
