"""`client.toml`, and the errors of `edge-client run` for certificates that cannot work."""

import argparse
import queue
import time
from dataclasses import replace
from pathlib import Path

import pytest

from edge_client.agent.eligibility.rules import Rules
from edge_client.cli.config_file import ClientFile, read_client_file
from edge_client.cli.main import EDGE_CLIENT, main
from edge_client.security.identity.key_pair import check_files
from edge_client.transport.broker_link import LinkDown
from edge_client.transport.mqtt_client import Link
from schemas.base import kebab
from schemas.errors import ConfigError
from tests.edge_server.security.identity.conftest import DEADLINE_S, address_of, identity, new_authority

DAY = 86_400.0


def parsed(*words: str) -> argparse.Namespace:
    return EDGE_CLIENT.parse(["run", *words])


def write(folder: Path, text: str) -> Path:
    path = folder / "client.toml"
    path.write_text(text)
    return path


def test_the_files_keys_are_the_options_of_run():
    options = vars(parsed()).keys() - {"verb", "format", "execute", "parser", "config_file", "version"}
    assert {kebab(name) for name in ClientFile.model_fields} == {kebab(name) for name in options}


def test_the_file_sets_options_that_the_command_line_omits(tmp_path):
    path = write(tmp_path, 'broker = "mqtts://h"\ndevice-id = "pi"\ntier = 2\nonce = true\nca = "ca.pem"\n')
    args = parsed("--config", str(path))
    assert (args.broker, args.device_id, args.tier, args.once) == ("mqtts://h", "pi", 2, True)
    assert args.ca == tmp_path / "ca.pem"
    assert args.data is None


def test_eligibility_rules_are_a_table(tmp_path):
    text = "tier = 1\n[eligibility]\nmax-temperature-c = 70\nquiet-hours = ['22:00-07:00']\n"
    rules = parsed("--config", str(write(tmp_path, text))).eligibility
    assert rules == Rules(max_temperature_c=70, quiet_hours=("22:00-07:00",))
    assert parsed().eligibility is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "max-temperature = 70",
            r"unknown key 'eligibility.max-temperature' \(did you mean 'max-temperature-c'",
        ),
        (
            "min-battery-percent = 130",
            r"eligibility.min-battery-percent: .*less than or equal to 100, got 130",
        ),
        (
            "quiet-hours = ['ten to six']",
            r"eligibility.quiet-hours: .*expected HH:MM-HH:MM.*got 'ten to six'",
        ),
        ("metered = ['5g']", r"eligibility.metered: .*'wired', 'wifi' or 'cellular', got '5g'"),
    ],
)
def test_the_error_for_an_invalid_rule_names_key_and_reason(tmp_path, line, message):
    path = write(tmp_path, f"[eligibility]\n{line}\n")
    with pytest.raises(ConfigError, match=message):
        read_client_file(path)


@pytest.mark.parametrize("first", [True, False], ids=["file first", "file last"])
def test_the_command_line_has_priority_even_if_it_sets_the_default(tmp_path, first):
    path = write(tmp_path, 'federation = "home"\nbroker = "mqtts://h"\n')
    file, own = ["--config", str(path)], ["--federation", "federation"]
    args = parsed(*(file + own if first else own + file))
    assert (args.federation, args.broker) == ("federation", "mqtts://h")


def test_a_file_does_not_affect_the_next_parsing(tmp_path):
    parsed("--config", str(write(tmp_path, 'federation = "home"\n')))
    assert parsed().federation == "federation"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('devise-id = "pi"', "unknown key 'devise-id' (did you mean 'device-id'?)"),
        ('device_id = "pi"', "unknown key 'device_id' (did you mean 'device-id'?)"),
        ('tier = "two"', "tier: input should be a valid integer"),
        ("tier = 0", "tier: input should be greater than or equal to 1, got 0"),
        ("tier = ", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_key_and_reason(tmp_path, capsys, text, message):
    path = write(tmp_path, text)
    assert main(["run", "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert str(path) in error


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        read_client_file(tmp_path / "client.toml")


# --- certificates ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return new_authority(tmp_path_factory.mktemp("authority") / "home")


@pytest.fixture
def files(authority, tmp_path):
    return identity(authority, "pi", tmp_path / "pi")


def words(authority, files, **other):
    """The options of `run` for these files."""
    options = {
        "broker": authority.settings.broker,
        "ca": files.ca,
        "cert": files.certificate,
        "key": files.key,
        "device-id": "pi",
        **other,
    }
    return ["run", *(str(word) for key, value in options.items() for word in (f"--{key}", value))]


def test_a_missing_key_file_is_named(authority, files, capsys):
    files.key.unlink()
    assert main(words(authority, files)) == 2
    assert f"there is no file {files.key} (--ca, --cert, --key)" in capsys.readouterr().err


def test_an_expired_certificate_is_named_with_the_remedy(authority, tmp_path, capsys):
    # Issued on 2020-01-01 for 365 days in a leap year, it expires on 2020-12-31.
    aged = replace(authority, clock=lambda: 1_577_836_800.0)
    files = identity(aged, "pi", tmp_path / "pi")
    assert main(words(authority, files)) == 2
    error = capsys.readouterr().err
    assert f"{files.certificate} expired on 2020-12-31 00:00 UTC" in error
    assert "`edge-server enroll pi --renew --out DIR` makes a new one" in error


def test_a_wrong_clock_is_distinguished_from_a_wrong_certificate(files):
    with pytest.raises(ConfigError, match="this machine's clock says 1970-01-02 00:00 UTC: set the clock"):
        check_files(files, "pi", DAY)


def test_a_certificate_of_another_device_is_refused_before_connecting(authority, files, capsys):
    assert main(words(authority, files, **{"device-id": "other"})) == 2
    assert "is for 'pi', but the device is 'other'" in capsys.readouterr().err


def test_a_key_that_others_may_read_causes_a_warning(files, caplog):
    check_files(files, "pi", time.time())
    assert caplog.text == ""
    files.key.chmod(0o640)
    check_files(files, "pi", time.time())
    assert f"others may read the private key {files.key}: chmod 600 {files.key}" in caplog.text


def test_a_key_of_another_certificate_is_refused(authority, files, tmp_path):
    other = identity(authority, "pi", tmp_path / "other")
    mixed = replace(files, key=other.key)
    with pytest.raises(ConfigError, match="no certificate with its own key"):
        Link(address_of(authority, mixed), queue.SimpleQueue(), client_id="pi", filters=())


def test_an_invalid_certificate_is_refused(authority, files):
    files.ca.write_text("nothing\n")
    with pytest.raises(ConfigError, match="no certificate can be read there"):
        Link(address_of(authority, files), queue.SimpleQueue(), client_id="pi", filters=())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("ca", "is not signed by the authority in {ca}: that is the wrong file (--ca), or the wrong broker"),
        ("host", "`edge-server enroll DEVICE --host 127.0.0.2` on the server makes one that is"),
        ("pair", "the broker does not know the authority that signed {cert}"),
        ("none", "the broker requires a certificate: name one with --cert and --key"),
    ],
)
def test_the_reason_for_a_failed_connection_is_reported(
    authority, mosquitto, files, tmp_path, wrong, message
):
    other = identity(new_authority(tmp_path / "authority"), "pi", tmp_path / "other")
    used = {
        "ca": replace(files, ca=other.ca),
        "host": files,
        "pair": replace(other, ca=files.ca),
        "none": replace(files, certificate=None, key=None),
    }[wrong]
    address = address_of(authority, used)
    if wrong == "host":
        address = replace(address, host="127.0.0.2")
    inbox = queue.SimpleQueue()
    link = Link(address, inbox, client_id="pi", filters=())
    link.open()
    try:
        event = inbox.get(timeout=DEADLINE_S)
    finally:
        link.close()
    assert isinstance(event, LinkDown)
    assert message.format(ca=used.ca, cert=used.certificate) in event.reason
