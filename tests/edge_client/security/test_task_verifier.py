"""Tasks that a device with a trusted key accepts or refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_client.agent.session.events import Declined, Received, SendMessage
from edge_client.agent.session.machine import Session, SessionPhase, step
from edge_client.security.task_verifier import TaskVerifier, check_task
from schemas.errors import PeerError, Reason
from schemas.messages import Task, TaskReply, decode_message, encode_message
from schemas.strategy import TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.tensors.chunks import BlobRef
from schemas.values import ModelSpec
from tests.edge_client.agent.session.by_hand import DEVICE, FEDERATION, STATE, task
from tests.edge_client.signed import SERVER, STRANGER, TRUSTED, signed_task
from tests.schemas.examples import MESSAGES_BY_KIND

EXAMPLE = MESSAGES_BY_KIND["task"]
assert isinstance(EXAMPLE, Task)


def check(offered: Task, *, device: str = DEVICE, federation: str = FEDERATION) -> None:
    check_task(offered, TRUSTED, federation=federation, device=device)


def refusal(offered: Task, **more: str) -> PeerError:
    with pytest.raises(PeerError) as caught:
        check(offered, **more)
    assert caught.value.reason == Reason.UNTRUSTED
    return caught.value


def test_a_signed_task_is_accepted_whatever_its_remaining_time():
    signed = signed_task(task(), DEVICE)
    check(signed)
    check(signed.model_copy(update={"deadline_s": 3.0}))


def test_a_signed_task_is_accepted_after_encoding_and_decoding():
    signed = signed_task(EXAMPLE, "pi-3")
    arrived = decode_message(encode_message(signed))
    assert isinstance(arrived, Task)
    check(arrived, device="pi-3", federation=EXAMPLE.federation)


def test_an_unsigned_task_and_one_signed_with_another_key_are_refused():
    assert "is not signed" in str(refusal(task()))
    assert "signed with key" in str(refusal(signed_task(task(), DEVICE, by=STRANGER)))


def test_tasks_of_another_device_or_federation_are_refused():
    assert "not of this device's task" in str(refusal(signed_task(task(), "other")))
    assert "not of this device's task" in str(refusal(signed_task(task(), DEVICE), federation="work"))
    assert "not of this device's task" in str(refusal(signed_task(task(), DEVICE, what="device-export")))


@pytest.mark.parametrize(
    "altered",
    [
        {"round": 2},
        {"attempt": 2},
        {"run": "run-2"},
        {"action": "deliver"},
        {"tier": 2},
        {"ratio": 0.25},
        {"model": ModelSpec(name="cnn", input_shape=(1, 8, 8), num_classes=10)},
        {"spec": SubModelSpec(kept={"hidden": 3})},
        {"returned": ("hidden",)},
        {"training": TrainingPlan(learning_rate=9.0)},
        {"training": None},
        {"blobs": {"state": STATE, "channel-map": STATE}},
        {"blobs": {"state": BlobRef(digest="0" * 64, size=STATE.size, chunk_bytes=STATE.chunk_bytes)}},
        {"provenance": {"git": "0"}},
    ],
    ids=lambda altered: next(iter(altered)),
)
def test_an_altered_task_is_refused(altered: dict[str, Any]):
    assert "it was altered" in str(refusal(signed_task(task(), DEVICE).model_copy(update=altered)))


def test_a_manifest_that_contradicts_its_task_is_refused():
    assert "another round" in str(refusal(signed_task(task(), DEVICE, attempt=9)))
    assert "another sub-model" in str(refusal(signed_task(task(), DEVICE, spec_sha256="0" * 64)))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_task_with_any_changed_character_is_refused(data: Any):
    """Change any one letter or digit within the signed part of the task's JSON."""
    wire = encode_message(signed_task(EXAMPLE.model_copy(update={"addresses": None}), "pi-3"))
    free = wire.index(b'"deadline_s":')
    signed = [*range(free), *range(free + 20, len(wire))]
    position = data.draw(st.sampled_from([at for at in signed if chr(wire[at]).isalnum()]))
    other = data.draw(st.sampled_from([c for c in b"0123456789abcdefxyz" if c != wire[position]]))
    altered = wire[:position] + bytes([other]) + wire[position + 1 :]
    try:
        received = decode_message(altered)
    except PeerError:
        return
    if isinstance(received, Task) and received != decode_message(wire):
        refusal(received, device="pi-3", federation=EXAMPLE.federation)


# --- order ---
def verifier_in(folder: Path) -> TaskVerifier:
    return TaskVerifier(TRUSTED, FEDERATION, DEVICE, folder / "newest-task.json")


def stale(verifier: TaskVerifier, old: Task) -> str:
    with pytest.raises(PeerError) as caught:
        verifier.admit(old)
    assert caught.value.reason == Reason.STALE_ROUND
    return str(caught.value)


def test_an_older_task_is_refused_even_after_a_restart(tmp_path: Path):
    first, second = (signed_task(task(number), DEVICE) for number in (1, 2))
    verifier_in(tmp_path).admit(first)
    verifier_in(tmp_path).admit(second)
    verifier_in(tmp_path).admit(second)
    assert "attempt 1 of run run-1, this device has done 2" in stale(verifier_in(tmp_path), first)


def test_within_a_run_the_servers_clock_may_be_set_back(tmp_path: Path):
    verifier_in(tmp_path).admit(signed_task(task(1), DEVICE, issued_at=1000))
    verifier_in(tmp_path).admit(signed_task(task(2), DEVICE, issued_at=10))


def test_a_task_of_an_older_run_is_refused(tmp_path: Path):
    verifier_in(tmp_path).admit(signed_task(task(9, run="run-1"), DEVICE, issued_at=1000))
    verifier_in(tmp_path).admit(signed_task(task(1, run="run-2"), DEVICE, issued_at=1000))
    verifier_in(tmp_path).admit(signed_task(task(2, run="run-2"), DEVICE, issued_at=1005))
    old = signed_task(task(10, run="run-1"), DEVICE, issued_at=1004)
    assert "an old task sent again" in stale(verifier_in(tmp_path), old)


def test_a_task_that_was_refused_is_not_remembered(tmp_path: Path):
    with pytest.raises(PeerError):
        verifier_in(tmp_path).admit(signed_task(task(5), DEVICE, by=STRANGER))
    verifier_in(tmp_path).admit(signed_task(task(1), DEVICE))
    assert json.loads((tmp_path / "newest-task.json").read_text())["attempt"] == 1


@pytest.mark.parametrize("content", [b"", b"[", b"{}", b"\xff"])
def test_an_unreadable_record_of_the_newest_task_is_ignored(tmp_path: Path, content: bytes):
    (tmp_path / "newest-task.json").write_bytes(content)
    verifier_in(tmp_path).admit(signed_task(task(1), DEVICE))
    assert json.loads((tmp_path / "newest-task.json").read_text())["attempt"] == 1


# --- replies ---
def test_an_untrusted_task_is_declined_without_other_effects():
    session = Session(FEDERATION, DEVICE, connected=True)
    after, (command,) = step(session, Declined(task(), Reason.UNTRUSTED, "it was altered"), 0.0)
    assert after == session
    assert isinstance(command, SendMessage)
    assert isinstance(command.message, TaskReply)
    reply = command.message
    assert (reply.accepted, reply.attempt, reply.reason) == (False, 1, Reason.UNTRUSTED)
    assert reply.detail == "it was altered"


def test_a_forgery_of_the_current_task_does_not_make_the_device_decline_it():
    """Otherwise anyone who can send messages to the device could exclude it from every round."""
    session, _ = step(Session(FEDERATION, DEVICE, connected=True), Received(signed_task(task(), DEVICE)), 0.0)
    assert session.phase is SessionPhase.FETCHING
    after, commands = step(session, Declined(task(tier=2), Reason.UNTRUSTED, "it was altered"), 1.0)
    assert (after, commands) == (session, [])
    _, (declined,) = step(session, Declined(task(attempt=2), Reason.UNTRUSTED, "it was altered"), 1.0)
    assert isinstance(declined, SendMessage)


def test_the_same_key_signs_the_same_bytes():
    assert signed_task(task(), DEVICE, by=SERVER) == signed_task(task(), DEVICE, by=SERVER)
