"""Devices are asked until each has answered, refused or fallen silent; lost parts are asked for again."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_client.agent.remote import machine as device_machine
from edge_client.agent.remote.machine import Collect, Collected, Diagnostics, Requested, Send
from edge_server.fleet.diagnostics import inquiry as inquiries
from edge_server.fleet.diagnostics.inquiry import (
    AT_ONCE,
    FELL_SILENT_S,
    REPEAT_S,
    SILENT_S,
    Connected,
    Gone,
    Heard,
    Inquiry,
    Status,
    Terms,
    Tick,
    step,
)
from schemas.messages import DiagnosticPart, DiagnosticReceipt, DiagnosticRefusal
from schemas.messages.remote import MAX_PART_CHARS, Diagnostic, DiagnosticObstacle

ID = "0123456789abcdef"


def begun(*devices: str, ends_at: float = 100.0) -> Inquiry:
    terms = Terms(Diagnostic.LOGS, since_s=60.0)
    return inquiries.begin("home", ID, terms, devices or ("pi-3",), ends_at=ends_at)


def asked(ends_at: float = 100.0) -> Inquiry:
    return step(begun(ends_at=ends_at), Tick(), 0.0)[0]


def refusal(obstacle: DiagnosticObstacle, again_s: float | None = None) -> Heard:
    return Heard(
        DiagnosticRefusal(
            federation="home", device="pi-3", request=ID, obstacle=obstacle, again_s=again_s, detail="why"
        )
    )


def receipt(request: str = ID, device: str = "pi-3") -> Heard:
    return Heard(DiagnosticReceipt(federation="home", device=device, request=request))


def part(text: str, number: int = 0, count: int = 1, digest: str | None = None) -> Heard:
    from hashlib import sha256

    digest = sha256(text.encode()).hexdigest() if digest is None else digest
    return Heard(
        DiagnosticPart(
            federation="home", device="pi-3", request=ID, part=number, parts=count, digest=digest, text=text
        )
    )


def status(inquiry: Inquiry, device: str = "pi-3") -> Status:
    return inquiry.devices[device].status


def test_a_request_says_what_is_asked_and_is_repeated():
    inquiry, (request,) = step(begun(), Tick(), 0.0)
    assert (request.what, request.since_s, request.request, request.wanted) == (Diagnostic.LOGS, 60.0, ID, ())
    assert step(inquiry, Tick(), REPEAT_S - 0.1)[1] == []
    assert step(inquiry, Tick(), REPEAT_S)[1] == [request]
    assert step(inquiry, Connected(), 0.5)[1] == [request]


def test_an_answer_in_one_part_ends_the_inquiry():
    inquiry, _ = step(asked(), part('{"logs": []}'), 1.0)
    assert inquiry.over
    assert inquiry.devices["pi-3"].document == {"logs": []}


@pytest.mark.parametrize("text", ["[]", "{", "17", "[" * 20_000])
def test_an_answer_that_is_no_object_fails(text):
    inquiry, _ = step(asked(), part(text), 1.0)
    assert status(inquiry) is Status.FAILED


def test_an_answer_that_arrives_damaged_is_asked_for_once_more():
    inquiry, (again,) = step(asked(), part("{}", digest="0" * 64), 1.0)
    assert again.wanted == (0,)
    inquiry, _ = step(inquiry, part("{}", digest="0" * 64), 2.0)
    assert status(inquiry) is Status.FAILED


@pytest.mark.parametrize(
    ("obstacle", "final"),
    [
        (DiagnosticObstacle.DISABLED, Status.DISABLED),
        (DiagnosticObstacle.RATE_LIMITED, Status.RATE_LIMITED),
        (DiagnosticObstacle.FAILED, Status.FAILED),
    ],
)
def test_a_refusal_is_final(obstacle, final):
    inquiry, _ = step(asked(), refusal(obstacle, 60.0), 1.0)
    device = inquiry.devices["pi-3"]
    assert (device.status, device.detail, device.again_s, inquiry.over) == (final, "why", 60.0, True)


def test_a_busy_device_is_asked_again_until_the_end():
    inquiry, requests = step(asked(), refusal(DiagnosticObstacle.BUSY, 5.0), 1.0)
    assert requests == []
    assert step(inquiry, Tick(), 5.9)[1] == []
    inquiry, requests = step(inquiry, Tick(), 6.0)
    assert len(requests) == 1
    assert status(step(inquiry, receipt(), 6.5)[0]) is Status.COLLECTING
    assert status(step(inquiry, Tick(), 100.0)[0]) is Status.BUSY


def test_a_device_that_never_answers_is_silent():
    inquiry, _ = step(asked(), Tick(), SILENT_S - 0.1)
    assert not inquiry.over
    inquiry, _ = step(inquiry, Tick(), SILENT_S)
    assert status(inquiry) is Status.SILENT


def test_a_device_at_a_site_is_said_to_be_reached_there():
    inquiry, _ = step(begun("barn.pi-1"), Tick(), 0.0)
    inquiry, _ = step(inquiry, Tick(), SILENT_S)
    assert "its site" in inquiry.devices["barn.pi-1"].detail


def test_a_device_that_collects_has_until_the_end():
    inquiry = asked()
    for now in range(1, 100, 10):
        inquiry, _ = step(inquiry, receipt(), float(now))
    assert status(inquiry) is Status.COLLECTING
    inquiry, _ = step(inquiry, Tick(), 100.0)
    assert (status(inquiry), inquiry.devices["pi-3"].detail) == (
        Status.FAILED,
        "not done in time: still collecting",
    )


def test_a_device_that_falls_silent_while_it_collects_is_given_up():
    inquiry, _ = step(asked(), receipt(), 1.0)
    assert status(step(inquiry, Tick(), FELL_SILENT_S)[0]) is Status.COLLECTING
    assert status(step(inquiry, Tick(), 1.0 + FELL_SILENT_S)[0]) is Status.SILENT


def test_a_device_that_is_not_connected_is_said_so_unless_it_answers():
    assert status(step(asked(), Gone("pi-3"), 1.0)[0]) is Status.OFFLINE
    inquiry, _ = step(asked(), receipt(), 1.0)
    assert status(step(inquiry, Gone("pi-3"), 2.0)[0]) is Status.COLLECTING
    assert step(asked(), Gone("pi-9"), 1.0)[1] == []


def test_answers_to_others_are_not_taken():
    for message in (receipt(request="f" * 16), receipt(device="pi-4")):
        assert step(asked(), message, 1.0) == (asked(), [])


def test_a_few_devices_are_asked_at_a_time():
    names = [f"pi-{number}" for number in range(AT_ONCE + 3)]
    inquiry, requests = step(begun(*names), Tick(), 0.0)
    assert len(requests) == AT_ONCE
    inquiry, requests = step(inquiry, Gone("pi-0"), 1.0)
    assert [request.device for request in requests] == [names[AT_ONCE]]
    inquiry, _ = step(inquiry, Tick(), 100.0)
    assert inquiry.over
    assert (status(inquiry, names[1]), status(inquiry, names[-1])) == (Status.SILENT, Status.FAILED)


def test_a_restarted_device_sends_another_answer():
    inquiry, _ = step(asked(), part("x" * MAX_PART_CHARS, 0, 2, "0" * 64), 1.0)
    inquiry, _ = step(inquiry, part('{"new": 1}'), 2.0)
    assert inquiry.devices["pi-3"].document == {"new": 1}


def over_a_lossy_connection(document: dict[str, str], seed: int, loss: float) -> inquiries.Inquired:
    """What comes of an inquiry if messages are lost with this chance, and answers come in any order."""
    chance, now = random.Random(seed), 0.0
    inquiry, device = begun(ends_at=1_000.0), Diagnostics("home", "pi-3")
    down: list[Requested] = []
    while not inquiry.over:
        inquiry, requests = step(inquiry, Tick(), now)
        up: list[Heard] = []
        for event in [*down, *map(Requested, requests)]:
            if chance.random() >= loss:
                device, sent = with_collection(device, event, document, now)
                up += sent
        chance.shuffle(up)
        down = []
        for answer in up:
            if chance.random() >= loss:
                inquiry, requests = step(inquiry, answer, now)
                down += map(Requested, requests)
        now += 0.5
    return inquiry.devices["pi-3"]


def with_collection(
    device: Diagnostics, event: Requested, document: dict[str, str], now: float
) -> tuple[Diagnostics, list[Heard]]:
    device, commands = device_machine.step(device, event, now)
    if any(isinstance(command, Collect) for command in commands):
        device, more = device_machine.step(device, Collected(ID, json.dumps(document)), now)
        commands = commands + more
    return device, [Heard(command.message) for command in commands if isinstance(command, Send)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 370_000), st.integers(0, 2**32), st.floats(0, 0.5))
def test_an_answer_that_comes_over_a_lossy_connection_is_right(size, seed, loss):
    document = {"logs": "x" * size}
    device = over_a_lossy_connection(document, seed, loss)
    assert device.document == document or device.status is Status.SILENT


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_survives_the_loss_of_a_fifth_of_all_messages(seed):
    document = {"logs": "x" * 300_000}
    assert over_a_lossy_connection(document, seed, 0.2).document == document
