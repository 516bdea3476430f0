"""Two devices with the same name are distinguished from one device that restarts."""

import pytest

from edge_server.rounds.events import Note, Send
from schemas.errors import Reason
from schemas.messages import Refusal
from tests.edge_server.rounds.by_hand import Run, of, started
from tests.edge_server.rounds.test_fleet import birth, death

A, B = "a" * 16, "b" * 16


def come(run: Run, token: str, session: int) -> list:
    """The process with this token connects under the shared name, from its own machine."""
    message = birth("pi", session).model_copy(update={"instance": token, "origin": f"board-{token[0]}"})
    return run.hear(message)


def reported(commands: list) -> list[tuple[str, str]]:
    """The processes that are refused because of their shared name, with the details."""
    refusals = [command.message for command in of(Send, commands) if isinstance(command.message, Refusal)]
    return [(refusal.instance, refusal.detail) for refusal in refusals if refusal.reason is Reason.SAME_NAME]


def warned(commands: list) -> list[str]:
    return [note.words for note in of(Note, commands) if not note.routine]


def test_the_later_of_two_is_refused_on_each_connection_and_the_warning_appears_once() -> None:
    run = started(start_clients=9)
    turns = [come(run, token, number) for number, token in enumerate([A, B, A, B, A, B, A, B])]
    assert [reported(turn) for turn in turns] == [
        [],
        [],
        *[[], [(B, f"board-a ({A}) came first under this name")]] * 3,
    ]
    assert [words for turn in turns for words in warned(turn)] == [
        f"pi shares its name with another device: board-b ({B}) and board-a ({A})"
    ]


@pytest.mark.parametrize(("first", "later"), [(100, 5), (5, 100)])
def test_their_session_numbers_do_not_matter(first: int, later: int) -> None:
    run = started(start_clients=9)
    sessions = {A: first, B: later}
    turns = [come(run, token, sessions[token]) for token in [A, B, A, B, A, B, A, B]]
    assert [token for turn in turns for token, _ in reported(turn)] == [B] * 3


def test_the_first_of_them_is_alive_once_the_other_has_left() -> None:
    run = started(start_clients=9)
    for token in [A, B, A, B, A, B]:
        run.hear(death("pi", {A: 5, B: 100}[token]))
        come(run, token, {A: 5, B: 100}[token])
    run.hear(death("pi", 100))
    come(run, A, 6)
    assert run.federation.fleet.devices["pi"].alive
    assert run.federation.fleet.devices["pi"].instance == A


def test_repeated_restarts_of_a_device_do_not_count_as_two_devices() -> None:
    run = started(start_clients=9)
    for number in range(50):
        for commands in (
            come(run, f"{number:016x}", 2 * number),
            come(run, f"{number:016x}", 2 * number + 1),
        ):
            assert (reported(commands), warned(commands)) == ([], [])


def test_a_single_late_birth_does_not_count_as_two_devices() -> None:
    run = started(start_clients=9)
    turns = [come(run, token, number) for number, token in enumerate([A, B, A, "c" * 16])]
    assert [reported(turn) for turn in turns] == [[]] * 4


def test_devices_that_do_not_name_their_process_are_not_refused() -> None:
    run = started(start_clients=9)
    for number in range(6):
        assert reported(run.hear(birth("pi", number))) == []
