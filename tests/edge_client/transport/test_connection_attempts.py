"""Warnings without a broker or a server, and errors that end the device immediately."""

import ssl
from pathlib import Path

import pytest

from edge_client.agent import server_contact
from edge_client.cli.main import main
from edge_client.transport.broker_link import BrokerAddress, LinkDown, TlsFiles, parse_address
from edge_client.transport.paho_client import ADVISE_AT, ConnectionAttempts
from edge_client.transport.tls import is_lasting
from schemas.errors import ConfigError
from tests.edge_client.cli.doctor.test_broker import mosquitto
from tests.edge_server.security.identity.conftest import (
    address_of,
    identity,
    new_authority,
    running_mosquitto,
)

ADDRESS = BrokerAddress("server", 1883)


def verification(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("no")
    error.verify_code, error.verify_message = code, "no"
    return error


def test_the_doctor_is_suggested_on_the_third_failure_and_then_rarely() -> None:
    reaching, advised = ConnectionAttempts(ADDRESS), []
    for _ in range(100):
        reaching, words = reaching.on_failure(LinkDown("nobody there"))
        advised.append("edge-client doctor --broker mqtt://server:1883" in words)
        assert "nobody there" in words
    assert [number for number, advice in enumerate(advised, start=1) if advice] == [3, 10, 30, 100]
    _, words = reaching.on_success().on_failure(LinkDown("nobody there"))
    assert "doctor" not in words


def test_a_lasting_failure_ends_the_device_unless_it_keeps_trying() -> None:
    down = LinkDown("the broker refused: Not authorized", lasting=True)
    with pytest.raises(ConfigError, match=r"(?s)Not authorized.*edge-client doctor.*--keep-trying"):
        ConnectionAttempts(ADDRESS).on_failure(down)
    patient, words = ConnectionAttempts(ADDRESS, keep_trying=True).on_failure(down)
    assert (patient.failures, words.endswith("trying again")) == (1, True)
    with pytest.raises(ConfigError):
        ConnectionAttempts(ADDRESS).chunk_bytes(16_000)
    assert patient.chunk_bytes(16_000) == 15 * 1024


@pytest.mark.parametrize(
    ("trouble", "lasting"),
    [
        (verification(20), True),
        (verification(62), True),
        # Causes that may pass: a clock that is not set yet, and a certificate that is renewed on the server.
        (verification(9), False),
        (verification(10), False),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", True),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_REVOKED] sslv3 alert", True),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", True),
        ("[Errno 111] Connection refused", False),
        ("[Errno -3] Temporary failure in name resolution", False),
        ("EOF occurred in violation of protocol", False),
        (None, False),
    ],
)
def test_lasting_failures_are_distinguished_from_passing_ones(trouble: object, lasting: bool) -> None:
    assert is_lasting(trouble) is lasting  # type: ignore[arg-type]


def commands_by_second(
    until: int, state: server_contact.ServerContact, *, answered_at: int | None = None
) -> list[tuple[int, object]]:
    """The commands and the second of each."""
    done: list[tuple[int, object]] = []
    for now in range(until):
        if now == answered_at:
            state = server_contact.on_answer(state)
        state, commands = server_contact.tick(state, float(now))
        done += [(now, command) for command in commands]
    return done


def test_a_missing_server_is_warned_of_early_and_then_rarely() -> None:
    done = commands_by_second(3000, server_contact.on_connected(0.0))
    assert [
        (at, command.seconds) for at, command in done if isinstance(command, server_contact.WarnNoAnswer)
    ] == [(10, 10.0), (60, 60.0), (360, 360.0), (2160, 2160.0)]
    assert [at for at, command in done if isinstance(command, server_contact.Ask)] == list(range(3, 3000, 10))


def test_no_questions_are_sent_after_an_answer() -> None:
    assert commands_by_second(1000, server_contact.on_connected(0.0), answered_at=4) == [
        (int(server_contact.ASK_AFTER_S), server_contact.Ask())
    ]
    assert commands_by_second(1000, server_contact.on_connected(0.0), answered_at=0) == []


@pytest.mark.parametrize(
    ("chance", "at"), [(0.0, server_contact.AGAIN_AFTER_S[0]), (1.0, server_contact.AGAIN_AFTER_S[1])]
)
def test_a_rejected_birth_is_repeated_once(chance: float, at: float) -> None:
    state = server_contact.on_rejection(
        server_contact.on_answer(server_contact.on_connected(0.0)), 0.0, chance
    )
    assert commands_by_second(60, state) == [(int(at), server_contact.RepeatBirth())]


def run_words(address: BrokerAddress, folder: Path, files: TlsFiles | None = None) -> list[str]:
    words = ["run", "--broker", str(address), "--device-id", "pi", "--data", "digits", "--quiet"]
    words += ["--state-dir", str(folder / "state")]
    for option, path in (("ca", files.ca), ("cert", files.certificate), ("key", files.key)) if files else ():
        words += [f"--{option}", str(path)]
    return words


def test_a_broker_that_requires_a_login_ends_the_device_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mosquitto(tmp_path, "allow_anonymous false") as address:
        assert main(run_words(address, tmp_path)) == 2
    error = capsys.readouterr().err
    assert "Not authorized" in error
    assert "edge-client doctor" in error


def test_a_wrong_authority_ends_the_device_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority, other = new_authority(tmp_path / "authority"), new_authority(tmp_path / "other")
    files = identity(authority, "pi", tmp_path / "pi")
    wrong = TlsFiles(*identity(other, "pi", tmp_path / "wrong").__dict__.values())
    with running_mosquitto(authority):
        address = address_of(authority, files)
        assert main(run_words(address, tmp_path, wrong)) == 2
        assert "not signed by the authority" in capsys.readouterr().err
        stranger = TlsFiles(files.ca, wrong.certificate, wrong.key)
        assert main(run_words(address, tmp_path, stranger)) == 2
    assert "does not know the authority" in capsys.readouterr().err


def test_advice_starts_with_the_third_attempt() -> None:
    assert ADVISE_AT[0] == 3
    assert server_contact.SAY_AFTER_S == 10.0
    assert str(parse_address("mqtt://server")) == str(ADDRESS)
