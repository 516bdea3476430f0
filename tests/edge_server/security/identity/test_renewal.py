"""Certificate renewal: when it is requested, how it is stored and when it is used."""

import queue
import stat
import time
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from edge_client.security.identity.certificate_renewer import Due, Renewal, make_renewer
from edge_client.security.identity.key_pair import CertificateFiles
from edge_client.security.identity.validity import Validity, needs_renewal
from edge_client.transport.broker_link import Arrived, LinkDown, LinkUp
from edge_client.transport.mqtt_client import Link
from edge_server.security.identity.revocation import reload_broker
from schemas.errors import PeerError
from schemas.messages import Reason, Refusal, decode_message, encode_message
from tests.edge_server.security.identity import conftest

# 90 days from 0: a third of them, 30 days, is left on day 60.
DAY = 86_400.0
NINETY = Validity(0, 90 * DAY)


@pytest.mark.parametrize(
    ("day", "needed"), [(0, False), (59.9, False), (60, False), (60.1, True), (89, True), (91, True)]
)
def test_a_certificate_is_renewed_when_less_than_a_third_of_its_life_is_left(day, needed):
    assert needs_renewal(NINETY, day * DAY) is needed
    due = Renewal(NINETY).due(day * DAY, connected=True, idle=False)
    assert due is (Due.ASK if needed else Due.NOTHING)


def test_nothing_is_due_without_a_connection():
    for renewal in (Renewal(NINETY), Renewal(NINETY, waiting=True)):
        assert renewal.due(80 * DAY, connected=False, idle=True) is Due.NOTHING


def test_an_unanswered_request_is_repeated_after_an_hour():
    """A hundredth of 90 days would be 21.6 hours; the maximum is an hour."""
    requested = Renewal(NINETY).with_request(70 * DAY)
    assert requested.retry_s == 3600
    assert requested.due(70 * DAY + 3599, connected=True, idle=True) is Due.NOTHING
    assert requested.due(70 * DAY + 3600, connected=True, idle=True) is Due.ASK
    # A clock that was set back does not prevent further requests.
    assert requested.due(65 * DAY, connected=True, idle=True) is Due.ASK


def test_requests_for_a_short_lived_certificate_are_repeated_sooner():
    assert Renewal(Validity(0, 600)).retry_s == 6
    assert Renewal(Validity(0, 10)).retry_s == 1


def test_a_new_certificate_is_used_at_once_when_idle_and_never_during_a_task():
    renewed = Renewal(NINETY).with_request(70 * DAY).with_new_certificate(Validity(70 * DAY, 160 * DAY))
    assert renewed.due(70 * DAY, connected=True, idle=False) is Due.NOTHING
    assert renewed.due(70 * DAY, connected=True, idle=True) is Due.RECONNECT
    assert renewed.with_connection().due(70 * DAY, connected=True, idle=True) is Due.NOTHING


def test_a_reconnection_for_another_reason_is_sufficient():
    renewed = Renewal(NINETY).with_new_certificate(Validity(70 * DAY, 160 * DAY)).with_connection()
    assert renewed.due(71 * DAY, connected=True, idle=True) is Due.NOTHING


# --- on disk ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return conftest.new_authority(tmp_path_factory.mktemp("authority") / "home")


@pytest.fixture
def files(authority, tmp_path):
    return conftest.identity(authority, "pi", tmp_path / "pi")


@pytest.fixture
def pair(files):
    return CertificateFiles(files.certificate, files.key)


def issued(authority, pair):
    """A certificate from the authority for the pair's next key."""
    return authority.issue("pi", pair.next_key().public_key()).public_bytes(Encoding.PEM).decode()


def replace_pair(authority, pair, certificate):
    return pair.replace(certificate, name="pi", authorities=authority.ca_pem)


def test_key_and_certificate_are_replaced_together_and_private_to_the_owner(authority, pair, files):
    before = files.key.read_bytes()
    certificate = issued(authority, pair)
    assert files.key.read_bytes() == before
    replace_pair(authority, pair, certificate)
    assert files.certificate.read_text() == certificate
    assert files.key.read_bytes() != before
    assert make_renewer(files, federation=conftest.FEDERATION, device="pi") is not None
    assert {path.name for path in files.key.parent.iterdir()} == {"ca.pem", "device.pem", "device.key"}
    for path in (files.certificate, files.key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("done", [0, 1, 2])
def test_an_interrupted_replacement_is_completed_at_the_next_start(authority, pair, files, monkeypatch, done):
    """Power fails after `done` of the two renames that follow the new certificate's own."""
    renames = []

    def fail_after(temporary, path, **options):
        if len(renames) == done + 1:
            raise KeyboardInterrupt
        renames.append(path)
        temporary.replace(path)

    certificate = issued(authority, pair)
    monkeypatch.setattr("edge_client.security.identity.key_pair.put_in_place", fail_after)
    monkeypatch.setattr("edge_client.security.identity.private_files.put_in_place", fail_after)
    if done < 2:
        with pytest.raises(KeyboardInterrupt):
            replace_pair(authority, pair, certificate)
    else:
        replace_pair(authority, pair, certificate)
    monkeypatch.undo()
    make_renewer(files, federation=conftest.FEDERATION, device="pi")
    assert files.certificate.read_text() == certificate
    Link(conftest.address_of(authority, files), queue.SimpleQueue(), client_id="pi", filters=())


def test_the_same_key_is_used_until_a_certificate_is_issued(pair):
    first = pair.next_key().private_numbers()
    assert pair.next_key().private_numbers() == first


def test_a_certificate_that_was_not_requested_changes_nothing(authority, pair, files, tmp_path):
    before = files.certificate.read_bytes()
    foreign = authority.certificates("pi")[0].public_bytes(Encoding.PEM).decode()
    of_other_name = authority.issue("other", pair.next_key().public_key()).public_bytes(Encoding.PEM).decode()
    other = conftest.new_authority(tmp_path / "other")
    of_other_authority = issued(other, pair)
    for wrong in (
        foreign,
        of_other_name,
        of_other_authority,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ):
        with pytest.raises(PeerError, match="certificate"):
            replace_pair(authority, pair, wrong)
    assert files.certificate.read_bytes() == before


def test_a_refusal_is_logged(files, caplog):
    renewer = make_renewer(files, federation=conftest.FEDERATION, device="pi")
    renewer.take(
        Refusal(
            federation=conftest.FEDERATION, device="pi", reason=Reason.NOT_ENTITLED, detail="pi is revoked"
        )
    )
    assert "no new certificate (not-entitled): pi is revoked" in caplog.text


# --- over a broker ---


def test_a_new_certificate_arrives_on_the_devices_topic_and_is_used_for_the_next_connection(
    authority, mosquitto, tmp_path
):
    """The old certificate is revoked before the device reconnects, so only the new one can be accepted."""
    aged = replace(authority, clock=lambda: time.time() - 0.7 * 365 * DAY)
    files = conftest.identity(aged, "old", tmp_path / "old")
    renewer, inbox = make_renewer(files, federation=conftest.FEDERATION, device="old"), queue.SimpleQueue()
    link = Link(conftest.address_of(authority, files), inbox, client_id="old", filters=renewer.filters)
    link.open()
    try:
        with conftest.serving(authority):
            assert isinstance(inbox.get(timeout=conftest.DEADLINE_S), LinkUp)
            assert renewer.due(time.time(), connected=True, idle=True) is Due.ASK
            answer = request_certificate(link, renewer, inbox)
        renewer.take(decode_message(answer.payload))
        assert renewer.due(time.time(), connected=True, idle=True) is Due.RECONNECT
        revoke_all_but_the_newest(authority, "old")
        reload_broker(mosquitto.pid)
        link.reconnect()
        ends = []
        while not isinstance(event := inbox.get(timeout=conftest.DEADLINE_S), LinkUp):
            ends += [event] if isinstance(event, LinkDown) else []
        assert len(ends) == 1
        assert event.session == 2
        renewer.on_connected()
        assert renewer.due(time.time(), connected=True, idle=True) is Due.NOTHING
    finally:
        link.close()


def request_certificate(link, renewer, inbox):
    """Send requests until the service, which may have to connect first, answers."""
    until = time.monotonic() + conftest.DEADLINE_S
    while time.monotonic() < until:
        link.publish(renewer.topic, encode_message(renewer.request(time.time())))
        try:
            while not isinstance(event := inbox.get(timeout=0.5), Arrived):
                pass
        except queue.Empty:
            continue
        return event
    raise AssertionError("no answer")


def revoke_all_but_the_newest(authority, device):
    for certificate in authority.certificates(device)[1:]:
        (authority.folder / "revoked" / f"{certificate.serial_number:x}").write_text(str(time.time()))
    authority.write_revocation_list()
