"""Enrolment codes redeemed over a real Mosquitto's enrolment port, and codes that are refused."""

import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from edge_client.cli.config_file import read_client_file
from edge_client.cli.main import main
from edge_client.security.identity.certificates import common_name
from edge_client.security.identity.enrolment import redeem
from edge_client.security.identity.private_files import write_private
from edge_client.transport.broker_link import TlsFiles, parse_address
from edge_server.security.identity.enrolment_codes import find_code, issue_code
from schemas.errors import EdgeError
from schemas.security.enrolment import EnrolmentCode, encode_code
from schemas.topics import EnrolTopic
from tests.edge_server.security.identity.clients import Client, refusal
from tests.edge_server.security.identity.conftest import FEDERATION, address_of, serving

HOUR_S = 3600.0
pytestmark = pytest.mark.usefixtures("mosquitto")


def code_files(code: EnrolmentCode, folder: Path) -> TlsFiles:
    """Write the code's own certificate, key and authority to files."""
    folder.mkdir(parents=True)
    files = TlsFiles(folder / "ca", folder / "certificate", folder / "key")
    for path, text in zip(
        (files.ca, files.certificate, files.key), (code.authority, code.certificate, code.key), strict=True
    ):
        write_private(path, text.encode())
    return files


def test_a_device_redeems_its_code_and_can_connect(authority, tmp_path):
    code = issue_code(authority, "pi", lifetime_s=HOUR_S, trust="a public key\n")
    with serving(authority):
        validity = redeem(code, tmp_path / "pi")
    assert 364 < validity.seconds_left(time.time()) / 86_400 <= 365
    made = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "pi").iterdir()}
    assert made.pop("install.sh") == 0o700
    assert made == dict.fromkeys(
        ("ca.pem", "client.toml", "device.key", "device.pem", "edge-client.service", "signing.pub"), 0o600
    )
    files = TlsFiles(*(tmp_path / "pi" / name for name in ("ca.pem", "device.pem", "device.key")))
    assert common_name(x509.load_pem_x509_certificate(files.certificate.read_bytes())) == "pi"
    assert refusal(address_of(authority, files)) == ""


def test_the_training_data_is_set_at_enrolment_or_left_unset(authority, tmp_path):
    for name, data in (("set", "folder:/srv/photos"), ("unset", None)):
        with serving(authority):
            redeem(issue_code(authority, name, lifetime_s=HOUR_S), tmp_path / name, data=data)
        assert read_client_file(tmp_path / name / "client.toml").get("data") == data


def test_a_code_is_valid_once(authority, tmp_path):
    code = issue_code(authority, "once", lifetime_s=HOUR_S)
    with serving(authority):
        redeem(code, tmp_path / "first")
        with pytest.raises(EdgeError, match=r"not-entitled.*has been used"):
            redeem(code, tmp_path / "second")
    assert not (tmp_path / "second" / "device.pem").exists()


def test_a_device_whose_answer_was_lost_gets_the_same_certificate_again(authority, tmp_path):
    code = issue_code(authority, "again", lifetime_s=HOUR_S)
    with serving(authority):
        redeem(code, tmp_path / "again")
        # As if the first answer had been lost: the key exists, the certificate does not.
        first = (tmp_path / "again" / "device.pem").read_bytes()
        (tmp_path / "again" / "device.pem").unlink()
        (tmp_path / "again" / "device.key").rename(tmp_path / "again" / "device.key.next")
        redeem(code, tmp_path / "again")
    assert (tmp_path / "again" / "device.pem").read_bytes() == first


def test_the_authority_may_start_after_the_request(authority, tmp_path, monkeypatch):
    monkeypatch.setattr("edge_client.security.identity.enrolment.RETRY_S", 0.2)
    code = issue_code(authority, "early", lifetime_s=HOUR_S)
    waiting = threading.Thread(target=redeem, args=(code, tmp_path / "early"), daemon=True)
    waiting.start()
    with serving(authority):
        waiting.join(timeout=30)
    assert (tmp_path / "early" / "device.pem").exists()


def test_a_missing_answer_is_reported(authority, tmp_path):
    code = issue_code(authority, "alone", lifetime_s=HOUR_S)
    with pytest.raises(EdgeError, match="does `edge-server enroll --serve` run"):
        redeem(code, tmp_path / "alone", deadline_s=0.5)


def test_a_client_with_the_codes_certificate_but_not_its_secret_is_refused(authority, tmp_path):
    code = issue_code(authority, "spied", lifetime_s=HOUR_S)
    spy = code.model_copy(update={"secret": "0" * 64})
    with serving(authority), pytest.raises(EdgeError, match=r"not-entitled.*proof"):
        redeem(spy, tmp_path / "spy")
    assert find_code(authority, code.id).wrong_tries == 1


def test_a_codes_certificate_is_valid_only_for_the_enrolment_port(authority, tmp_path):
    files = code_files(issue_code(authority, "door", lifetime_s=HOUR_S), tmp_path / "door")
    assert refusal(parse_address(authority.settings.enrolment_url, files)) == ""
    reason = refusal(address_of(authority, files))
    assert "unknown ca" in reason


def test_an_expired_codes_certificate_is_refused(authority, tmp_path):
    yesterday = replace(authority, clock=lambda: time.time() - 86_400)
    files = code_files(issue_code(yesterday, "late", lifetime_s=HOUR_S), tmp_path / "late")
    reason = refusal(parse_address(authority.settings.enrolment_url, files))
    assert "expired" in reason


def test_a_client_of_the_enrolment_port_can_only_use_its_own_code(authority, tmp_path):
    from tests.edge_server.security.identity.test_access import server_files

    own, other = (issue_code(authority, "x", lifetime_s=HOUR_S) for _ in range(2))
    url = authority.settings.enrolment_url
    spy = Client(parse_address(url, code_files(own, tmp_path / "own")))
    peer = Client(parse_address(url, code_files(other, tmp_path / "other")))
    server = Client(address_of(authority, server_files(authority)))
    try:
        for client in (spy, server):
            client.subscribe("#")
        server.publish(f"fed/v1/{FEDERATION}/all/state", b"for devices", retain=True)
        late = EnrolTopic(FEDERATION, other.id, "request")
        assert not peer.publish(late.within).is_failure
        for forbidden in (
            late.within,
            f"{own.id}/answer",
            f"{other.id}/answer",
            f"devices/{own.id}/up/birth",
            str(late),
            f"fed/v1/{FEDERATION}/all/state",
            f"../../devices/{own.id}/up/birth",
        ):
            assert spy.publish(forbidden, b"forged", retain=True).getName() == "Not authorized"
        server.publish(f"fed/v1/{FEDERATION}/all/state", b"end")
        assert spy.everything_heard() == []
        assert server.hear()[1] == b"for devices"
        assert server.hear()[1] == b"end"
    finally:
        server.publish(f"fed/v1/{FEDERATION}/all/state", b"", retain=True)
        for client in (spy, peer, server):
            client.close()


def test_the_command_reports_what_it_is_waiting_for(authority, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("edge_client.security.identity.enrolment.RETRY_S", 0.1)
    code = encode_code(issue_code(authority, "patient", lifetime_s=HOUR_S))
    words = ["enroll", "--code", code, "--out", str(tmp_path / "patient"), "--deadline-s", "1"]
    assert main(words) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("connecting to mqtts://")
    assert lines[1] == "connected, waiting for the certificate"
    assert lines[2].startswith("nobody answers: does `edge-server enroll --serve` run")
    assert lines[2].endswith("s at most")
