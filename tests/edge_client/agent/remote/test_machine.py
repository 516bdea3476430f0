"""Diagnostics are answered in parts, one at a time, within limits, and only by the owner's leave."""

import json
from dataclasses import replace

import pytest

from edge_client.agent.remote import machine
from schemas import messages
from schemas.messages.remote import MAX_ANSWER_CHARS, MAX_PARTS, PARTS_AT_ONCE, Diagnostic, DiagnosticObstacle

IDLE = machine.Diagnostics("home", "pi-3")


def request(
    number: int = 1, what: Diagnostic = Diagnostic.LOGS, wanted: tuple[int, ...] = ()
) -> messages.DiagnosticRequest:
    return messages.DiagnosticRequest(
        federation="home", device="pi-3", request=f"{number:016x}", what=what, wanted=wanted
    )


def asked(state: machine.Diagnostics, asking: messages.DiagnosticRequest, now: float = 0.0):
    """The next state, and what the device does."""
    state, commands = machine.step(state, machine.Requested(asking), now)
    return state, commands


def answered(
    text: str, *, now: float = 0.0, number: int = 1
) -> tuple[machine.Diagnostics, list[messages.DiagnosticPart]]:
    state, _ = asked(IDLE, request(number), now)
    state, commands = machine.step(state, machine.Collected(f"{number:016x}", text), now)
    return state, [command.message for command in commands]


def obstacle(commands) -> DiagnosticObstacle:
    (send,) = commands
    assert isinstance(send.message, messages.DiagnosticRefusal)
    return send.message.obstacle


def test_a_request_begins_a_collection_and_is_acknowledged():
    state, commands = asked(IDLE, request())
    assert [type(command) for command in commands] == [machine.Send, machine.Collect]
    assert isinstance(commands[0].message, messages.DiagnosticReceipt)
    assert asked(state, request())[1] == [commands[0]]


def test_an_answer_is_sent_in_parts_that_the_requester_puts_together():
    text = json.dumps({"lines": ["x" * 100] * 2_000})
    state, parts = answered(text)
    assert [part.part for part in parts] == list(range(PARTS_AT_ONCE))
    missing = tuple(range(PARTS_AT_ONCE, parts[0].parts))
    state, commands = asked(state, request(wanted=missing))
    parts += [command.message for command in commands]
    state, commands = asked(state, request(wanted=(2,)))
    assert commands[0].message == parts[2]
    found = {part.part: part.text for part in parts}
    while len(found) < parts[0].parts:
        state, commands = asked(state, request(wanted=tuple(set(range(parts[0].parts)) - found.keys())))
        found |= {command.message.part: command.message.text for command in commands}
    assert "".join(found[number] for number in sorted(found)) == text


def test_the_largest_answer_fits_into_messages_below_64_kb():
    _, parts = answered('"' * MAX_ANSWER_CHARS)
    assert parts[0].parts == MAX_PARTS
    assert all(len(messages.encode_message(part)) < 64 * 1024 for part in parts)


@pytest.mark.parametrize("text", ["", "x" * (MAX_ANSWER_CHARS + 1), "ä"])
def test_what_cannot_be_sent_is_refused(text):
    _, (refusal,) = answered(text)
    assert refusal.obstacle is DiagnosticObstacle.FAILED


def test_one_request_is_worked_on_at_a_time():
    state, _ = asked(IDLE, request(1))
    after, commands = asked(state, request(2))
    assert obstacle(commands) is DiagnosticObstacle.BUSY
    assert after.open == request(1)


def test_without_the_owners_leave_every_request_is_refused():
    state, commands = asked(replace(IDLE, enabled=False), request())
    assert obstacle(commands) is DiagnosticObstacle.DISABLED
    assert state.open is None


def test_too_many_requests_are_refused_with_the_time_to_wait():
    state, number, now = IDLE, 1, 0.0
    while True:
        state, commands = asked(state, request(number, Diagnostic.DOCTOR), now)
        if not any(isinstance(command, machine.Collect) for command in commands):
            break
        state, _ = machine.step(state, machine.Collected(f"{number:016x}", "{}"), now)
        number += 1
    assert number == 3
    refusal = commands[0].message
    assert refusal.obstacle is DiagnosticObstacle.RATE_LIMITED
    _, commands = asked(state, request(9, Diagnostic.LOGS), now)
    assert isinstance(commands[1], machine.Collect)
    _, commands = asked(state, request(9, Diagnostic.DOCTOR), now + refusal.again_s)
    assert isinstance(commands[1], machine.Collect)


def test_requests_of_all_kinds_have_a_limit_in_total():
    state = replace(IDLE, limits=replace(IDLE.limits, total=machine.Bucket.full(1, 20.0)))
    state, _ = asked(state, request(1, Diagnostic.LOGS))
    state, _ = machine.step(state, machine.Collected(f"{1:016x}", "{}"), 0.0)
    _, commands = asked(state, request(2, Diagnostic.PROFILE))
    assert commands[0].message.again_s == 20.0


def test_a_flood_of_requests_is_not_answered_any_more():
    state, sent = replace(IDLE, enabled=False), 0
    for number in range(1_000):
        state, commands = asked(state, request(number))
        sent += len(commands)
    assert sent == IDLE.limits.refusals.burst


def test_parts_that_are_requested_again_and_again_are_limited():
    state, sent = answered("x" * 100_000)[0], 0
    for _ in range(1_000):
        state, commands = asked(state, request(wanted=(0, 1, 2, 3)))
        sent += len(commands)
    assert sent <= IDLE.limits.parts.burst
    assert len(asked(state, request(wanted=(0, 1)), 10.0)[1]) == 2


def test_parts_that_do_not_exist_are_not_sent():
    state, _ = answered("{}")
    assert asked(state, request(wanted=(5,)))[1] == []


def test_an_answer_is_forgotten_after_a_while():
    state, _ = answered("{}")
    assert machine.step(state, machine.Tick(), machine.KEPT_S - 1)[0].answer is not None
    state, _ = machine.step(state, machine.Tick(), machine.KEPT_S)
    assert state.answer is None
    assert isinstance(asked(state, request(), machine.KEPT_S)[1][1], machine.Collect)


def test_a_collection_that_takes_too_long_is_abandoned():
    state, _ = asked(IDLE, request())
    assert machine.step(state, machine.Tick(), machine.LONGEST_COLLECTION_S - 1)[1] == []
    state, commands = machine.step(state, machine.Tick(), machine.LONGEST_COLLECTION_S)
    assert isinstance(commands[0], machine.Abandon)
    assert obstacle(commands[1:]) is DiagnosticObstacle.FAILED
    assert machine.step(state, machine.Collected(f"{1:016x}", "{}"), machine.LONGEST_COLLECTION_S) == (
        state,
        [],
    )


def test_a_failed_collection_is_refused_with_its_reason():
    state, _ = asked(IDLE, request())
    _, commands = machine.step(state, machine.Collected(f"{1:016x}", failure="no doctor here"), 0.0)
    assert commands[0].message.detail == "no doctor here"
