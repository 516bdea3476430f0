"""Certificate requests that are granted or refused, without a broker."""

import base64
import contextlib
import zlib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_client.security.identity.certificates import has_key, new_key, request_pem
from edge_client.security.identity.enrolment import check_answer, check_code
from edge_server.security.identity import service
from edge_server.security.identity.authority import Authority
from edge_server.security.identity.enrolment_codes import (
    MAX_WRONG_TRIES,
    find_code,
    issue_code,
    withdraw_codes,
)
from schemas.errors import ConfigError, EdgeError, PeerError, Reason
from schemas.messages import CertificateRequest, Death, IssuedCertificate, Refusal, encode_message
from schemas.security.enrolment import EnrolmentCode, decode_code, encode_code, proof_key, request_proof
from schemas.topics import EnrolTopic
from tests.edge_server.security.identity.conftest import FEDERATION, new_authority

ANY_REQUEST = x509.load_pem_x509_csr(request_pem(new_key(), "pi").encode()).public_bytes(
    serialization.Encoding.DER
)
NOW, HOUR_S = 1_800_000_000.0, 3600.0


class Clock:
    """A clock that changes only when it is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authority(tmp_path: Path, clock: Clock) -> Authority:
    return new_authority(tmp_path / "authority", clock=clock)


@pytest.fixture
def registration(authority: Authority) -> service.RegistrationAuthority:
    return service.RegistrationAuthority(authority)


def with_code(code: EnrolmentCode, key: ec.EllipticCurvePrivateKey, **other: str) -> CertificateRequest:
    """A request like a device's, with the fields in `other` replaced."""
    terms = {
        "federation": code.federation,
        "device": code.device,
        "csr": request_pem(key, other.get("device", code.device)),
        **{name: value for name, value in other.items() if name != "secret"},
    }
    proof = request_proof(proof_key(other.get("secret", code.secret), code.id), **terms)
    return CertificateRequest(
        federation=terms["federation"], device=terms["device"], csr=terms["csr"], proof=proof
    )


def ask(
    registration: service.RegistrationAuthority, sender: str, request: CertificateRequest
) -> IssuedCertificate | Refusal:
    topic = EnrolTopic(FEDERATION, sender, "request")
    back, answer = registration.answer(str(topic), encode_message(request))
    assert back == EnrolTopic(FEDERATION, sender, "answer")
    return answer


def refused(answer: IssuedCertificate | Refusal) -> str:
    assert isinstance(answer, Refusal)
    return f"{answer.reason}: {answer.detail}"


def certificate(answer: IssuedCertificate | Refusal) -> x509.Certificate:
    assert isinstance(answer, IssuedCertificate), answer
    return x509.load_pem_x509_certificate(answer.certificate.encode())


# --- codes ---


def test_a_code_survives_a_round_trip(authority):
    code = issue_code(authority, "pi", lifetime_s=HOUR_S)
    assert decode_code(f"  {encode_code(code)}\n") == code
    assert code.expires == NOW + 3600


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-8],
        lambda text: text[:40] + ("y" if text[40] == "x" else "x") + text[41:],
        lambda text: "edge1.",
        lambda text: "a b",
    ],
    ids=["truncated", "one letter changed", "empty", "another text"],
)
def test_a_damaged_code_is_refused(authority, spoil):
    with pytest.raises(ConfigError, match="enrolment code"):
        decode_code(spoil(encode_code(issue_code(authority, "pi", lifetime_s=HOUR_S))))


def test_a_code_gives_one_certificate_and_repeats_it_only_for_the_same_key(authority, registration):
    code, key = issue_code(authority, "pi", lifetime_s=HOUR_S), new_key()
    first = ask(registration, code.id, with_code(code, key))
    request = with_code(code, key)
    again = ask(registration, code.id, request)
    assert certificate(first) == certificate(again)
    assert has_key(certificate(first), key)
    assert isinstance(again, IssuedCertificate)
    check_answer(code, request, again)
    assert "has been used" in refused(ask(registration, code.id, with_code(code, new_key())))


def test_a_forged_answer_is_refused(authority, registration, tmp_path):
    """The attacker reads the exchange, has another authority or replays an earlier answer."""
    code, key = issue_code(authority, "pi", lifetime_s=HOUR_S), new_key()
    request = with_code(code, key)
    answer = ask(registration, code.id, request)
    assert isinstance(answer, IssuedCertificate)
    other = issue_code(new_authority(tmp_path / "other"), "pi", lifetime_s=HOUR_S)
    for forged in (
        answer.model_copy(update={"proof": None}),
        answer.model_copy(update={"authority": other.authority}),
        answer.model_copy(update={"certificate": other.certificate}),
    ):
        with pytest.raises(PeerError, match="not from the server that issued"):
            check_answer(code, request, forged)
    with pytest.raises(PeerError, match="not from the server that issued"):
        check_answer(code, with_code(code, key), answer)


def test_the_loser_of_a_race_for_a_code_is_told_so(authority, registration):
    code = issue_code(authority, "pi", lifetime_s=HOUR_S)
    lost = with_code(code, new_key())
    # Both clients of a code read the same topic, so the loser reads the winner's certificate.
    won = ask(registration, code.id, with_code(code, new_key()))
    with pytest.raises(EdgeError, match="another client has used this code for pi") as told:
        check_answer(code, lost, won)
    assert not isinstance(told.value, PeerError)


def test_an_expired_code_is_refused_on_both_sides(authority, registration, clock):
    code = issue_code(authority, "pi", lifetime_s=HOUR_S)
    clock.now = NOW + 3600
    assert "expired" in refused(ask(registration, code.id, with_code(code, new_key())))
    with pytest.raises(ConfigError, match="expired on 2027-01-15 09:00 UTC"):
        check_code(code, clock.now)
    check_code(code, clock.now - 1)


def test_a_code_of_an_unexpected_authority_is_refused(authority):
    code = issue_code(authority, "pi", lifetime_s=HOUR_S)
    own = authority.root.certificate.fingerprint(hashes.SHA256()).hex(":").upper()
    check_code(code, NOW, trusted=own)
    with pytest.raises(ConfigError, match="fingerprint"):
        check_code(code, NOW, trusted=own[::-1])


def test_a_code_is_locked_after_a_few_wrong_tries_even_for_its_owner(authority, registration):
    code = issue_code(authority, "pi", lifetime_s=HOUR_S)
    for _ in range(MAX_WRONG_TRIES):
        wrong = with_code(code, new_key(), secret="0" * 64)
        assert "the proof is wrong" in refused(ask(registration, code.id, wrong))
    assert "too many wrong tries" in refused(ask(registration, code.id, with_code(code, new_key())))


def test_a_code_is_valid_for_one_device(authority, registration):
    code = issue_code(authority, "pi", lifetime_s=HOUR_S)
    assert "the code is for pi" in refused(
        ask(registration, code.id, with_code(code, new_key(), device="other"))
    )


def test_a_proof_is_valid_for_one_key(authority, registration):
    code = issue_code(authority, "pi", lifetime_s=HOUR_S)
    request = with_code(code, new_key())
    swapped = request.model_copy(update={"csr": request_pem(new_key(), "pi")})
    assert "the proof is wrong" in refused(ask(registration, code.id, swapped))


def test_a_request_without_a_proof_is_refused(authority, registration):
    code = issue_code(authority, "pi", lifetime_s=HOUR_S)
    request = with_code(code, new_key()).model_copy(update={"proof": None})
    assert "the proof is wrong" in refused(ask(registration, code.id, request))


def test_an_unknown_code_is_refused(authority, registration):
    code = issue_code(authority, "pi", lifetime_s=HOUR_S)
    assert withdraw_codes(authority, "pi") == 1
    assert refused(ask(registration, code.id, with_code(code, new_key()))).startswith(Reason.NOT_ENTITLED)


def test_expired_codes_are_deleted(authority, clock):
    old = issue_code(authority, "old", lifetime_s=HOUR_S)
    clock.now += HOUR_S
    new = issue_code(authority, "new", lifetime_s=HOUR_S)
    assert withdraw_codes(authority) == 1
    assert find_code(authority, new.id).device == "new"
    with pytest.raises(PeerError):
        find_code(authority, old.id)


def test_the_authority_does_not_store_the_secret(authority):
    code = issue_code(authority, "pi", lifetime_s=HOUR_S)
    stored = [path.read_text() for path in authority.folder.rglob("*.json")]
    assert len(stored) == 1
    assert code.secret not in stored[0]


# --- renewal ---


def renewal(device: str, key: ec.EllipticCurvePrivateKey | None = None) -> CertificateRequest:
    return CertificateRequest(federation=FEDERATION, device=device, csr=request_pem(key or new_key(), device))


def test_an_enrolled_device_gets_its_next_certificate(authority, registration):
    authority.issue("pi", new_key().public_key())
    key = new_key()
    first, again = (ask(registration, "pi", renewal("pi", key)) for _ in range(2))
    assert certificate(first) == certificate(again)
    assert has_key(certificate(first), key)


@pytest.mark.parametrize("ended", ["revoked", "expired", "unknown"])
def test_a_device_without_a_valid_certificate_gets_no_renewal(authority, registration, clock, ended):
    if ended != "unknown":
        authority.issue("pi", new_key().public_key())
    if ended == "revoked":
        authority.revoke("pi")
    if ended == "expired":
        clock.now += 366 * 86_400
    assert "revoked or unknown" in refused(ask(registration, "pi", renewal("pi")))


def test_a_device_cannot_request_a_certificate_for_another(authority, registration):
    for name in ("pi", "other"):
        authority.issue(name, new_key().public_key())
    assert refused(ask(registration, "pi", renewal("other"))).startswith(Reason.WRONG_SENDER)


def test_the_number_of_valid_certificates_per_device_is_limited(authority, registration):
    authority.issue("pi", new_key().public_key())
    for _ in range(service.MAX_VALID - 1):
        certificate(ask(registration, "pi", renewal("pi")))
    assert refused(ask(registration, "pi", renewal("pi"))).startswith(Reason.TOO_MANY_REQUESTS)


def test_a_device_with_too_many_requests_has_to_wait(authority, registration, clock):
    for _ in range(int(service.MAX_REQUESTS)):
        assert refused(ask(registration, "pi", renewal("pi"))).startswith(Reason.NOT_ENTITLED)
    assert refused(ask(registration, "pi", renewal("pi"))).startswith(Reason.TOO_MANY_REQUESTS)
    assert refused(ask(registration, "other", renewal("other"))).startswith(Reason.NOT_ENTITLED)
    clock.now += service.REFILL_S
    assert refused(ask(registration, "pi", renewal("pi"))).startswith(Reason.NOT_ENTITLED)


def test_an_allowance_refills_up_to_its_limit():
    allowance = service.RequestAllowance()
    for _ in range(int(service.MAX_REQUESTS)):
        allowance = allowance.spend("pi", 100.0)
        assert allowance is not None
    assert allowance.spend("pi", 100.0 + service.REFILL_S - 0.1) is None
    # Enough time for two requests, but not for a third.
    later = 100.0 + 2 * service.REFILL_S
    twice = allowance.spend("pi", later).spend("pi", later)
    assert twice.spend("pi", later) is None
    full = twice.spend("pi", later + 1e6)
    assert full.left["pi"][0] == service.MAX_REQUESTS - 1


# --- requests ---


def signed(key: object, *names: str) -> str:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    "csr",
    [
        lambda: signed(ec.generate_private_key(ec.SECP384R1()), "pi"),
        lambda: signed(rsa.generate_private_key(65537, 1024), "pi"),
        lambda: signed(new_key(), "other"),
        lambda: signed(new_key(), "pi", "edge-server"),
        lambda: signed(new_key()),
        lambda: "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
    ],
    ids=["P-384", "RSA", "another name", "two names", "no name", "not a request"],
)
def test_an_invalid_request_is_refused(authority, registration, csr):
    authority.issue("pi", new_key().public_key())
    request = CertificateRequest(federation=FEDERATION, device="pi", csr=csr())
    assert refused(ask(registration, "pi", request)).startswith(Reason.MALFORMED)


def test_a_request_not_signed_by_its_key_is_refused(authority, registration):
    """Otherwise a device could have another's public key certified under its own name."""
    authority.issue("pi", new_key().public_key())
    made = x509.load_pem_x509_csr(request_pem(new_key(), "pi").encode())
    raw = bytearray(made.public_bytes(serialization.Encoding.DER))
    raw[-1] ^= 1
    broken = x509.load_der_x509_csr(bytes(raw)).public_bytes(serialization.Encoding.PEM).decode()
    request = CertificateRequest(federation=FEDERATION, device="pi", csr=broken)
    assert refused(ask(registration, "pi", request)).startswith(Reason.MALFORMED)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4), st.integers(1, 300)
)
def test_any_bytes_are_parsed_as_a_request_or_refused(changes, length):
    raw = bytearray(ANY_REQUEST[:length])
    for place, value in changes:
        raw[place % len(raw)] = value
    text = base64.b64encode(raw).decode()
    pem = f"-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n"
    with contextlib.suppress(PeerError):
        service.requested_key(CertificateRequest(federation=FEDERATION, device="pi", csr=pem))


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_text_is_refused_as_a_code(data):
    for text in (data, zlib.compress(data), b"edge1." + data):
        with pytest.raises(ConfigError, match="enrolment code"):
            decode_code(f"edge1.{base64.urlsafe_b64encode(text).decode()}")
        with pytest.raises(ConfigError, match="enrolment code"):
            decode_code(text.decode(errors="replace"))


def test_a_decompression_bomb_is_refused():
    bomb = base64.urlsafe_b64encode(zlib.compress(bytes(10_000_000))).decode()
    assert len(bomb) < 16_384
    with pytest.raises(ConfigError, match="damaged"):
        decode_code(f"edge1.{bomb}")


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        (f"fed/v1/{FEDERATION}/enrol/pi/answer", encode_message(renewal("pi"))),
        (f"fed/v1/{FEDERATION}/devices/pi/up/control", encode_message(renewal("pi"))),
        (f"fed/v1/{FEDERATION}/enrol/pi/request", b"no message"),
        (
            f"fed/v1/{FEDERATION}/enrol/pi/request",
            encode_message(Death(federation=FEDERATION, device="pi", session=1)),
        ),
    ],
    ids=["an answer", "another topic", "not a message", "another message"],
)
def test_other_messages_are_not_answered(registration, topic, payload):
    with pytest.raises(PeerError):
        registration.answer(topic, payload)


def test_a_certificate_is_limited_to_the_device_as_a_client(authority):
    """The certificate cannot be used to impersonate the broker or to sign certificates."""
    made = authority.issue("pi", new_key().public_key())
    assert made.subject.rfc4514_string() == "CN=pi"
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [use.dotted_string for use in usage] == ["1.3.6.1.5.5.7.3.2"]
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not made.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
