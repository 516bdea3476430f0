"""The files that `edge-server enroll` creates in its first and later runs."""

import json
import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from edge_client.cli.config_file import read_client_file
from edge_client.security.identity.enrolment_bundle import LAUNCHER
from edge_server.cli.main import main
from edge_server.security.identity.authority import (
    SERVICE_CERTIFICATE_S,
    make_authority,
    open_authority,
    renew_service_certificates,
)
from edge_server.security.identity.settings import AuthoritySettings, default_folder
from edge_server.security.signing_key import public_key_text
from schemas.errors import ConfigError
from schemas.security.enrolment import decode_code


@pytest.fixture
def enroll(tmp_path, capsys):
    """Run the command; returns exit code, output and errors."""

    def run(*words: str):
        code = main(
            ["enroll", "--authority", str(tmp_path / "authority"), "--out", str(tmp_path / "out"), *words]
        )
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def modes(folder: Path) -> set[tuple[bool, int]]:
    """(is a folder, mode) of the folder and everything in it."""
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (folder, *folder.rglob("*"))}


def unpacked(tmp_path: Path, device: str) -> Path:
    shutil.unpack_archive(tmp_path / "out" / f"{device}.tar", tmp_path)
    return tmp_path / device


def test_all_files_are_private_to_the_owner_with_any_umask(enroll, tmp_path):
    before = os.umask(0)
    try:
        assert enroll("pi")[0] == 0
        assert enroll("pi-2", "--code")[0] == 0
    finally:
        os.umask(before)
    (tmp_path / "authority" / "lock").unlink()
    for folder in ("authority", "out"):
        assert modes(tmp_path / folder) == {(True, 0o700), (False, 0o600)}
    with tarfile.open(tmp_path / "out" / "pi.tar") as archive:
        inside = {entry.name: entry.mode for entry in archive}
    assert inside == {
        "pi": 0o700,
        "pi/install.sh": 0o700,
        **dict.fromkeys(
            (
                f"pi/{name}"
                for name in ("ca.pem", "client.toml", "device.key", "device.pem", "edge-client.service")
            ),
            0o600,
        ),
    }


def test_the_archive_contains_everything_that_a_device_needs(enroll, tmp_path):
    trust = ("--signing-key", str(tmp_path / "signing.key"))
    code, said, _ = enroll("pi", "--host", "broker.lan", "--federation", "home", *trust)
    assert (code, f"made the signing key {tmp_path / 'signing.key'}: name it in" in said) == (0, True)
    folder = unpacked(tmp_path, "pi")
    assert read_client_file(folder / "client.toml") == {
        "broker": "mqtts://broker.lan:8883",
        "federation": "home",
        "device_id": "pi",
        "ca": folder / "ca.pem",
        "cert": folder / "device.pem",
        "key": folder / "device.key",
        "trust": folder / "signing.pub",
    }
    assert (folder / "signing.pub").read_text() == public_key_text(tmp_path / "signing.key")
    certificate = x509.load_pem_x509_certificate((folder / "device.pem").read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()))


def test_a_devices_training_data_is_only_set_by_its_owner(enroll, tmp_path):
    code, out, _ = enroll("pi")
    assert code == 0
    assert "with `data` set in pi/client.toml first" in out
    text = (unpacked(tmp_path, "pi") / "client.toml").read_text()
    assert "It must be set: without it `edge-client run` ends with exit code 2." in text
    assert enroll("pi-2", "--data", "folder:/srv/photos")[0] == 0
    assert read_client_file(unpacked(tmp_path, "pi-2") / "client.toml")["data"] == "folder:/srv/photos"
    code, _, error = enroll("pi-3", "--code", "--data", "folder:/srv/photos")
    assert (code, "edge-client enroll --data SOURCE writes it" in error) == (2, True)


def test_archive_and_code_contain_the_public_key_and_never_the_private_one(enroll, tmp_path):
    public = tmp_path / "signing.pub"
    public.write_text(public_key_text(tmp_path / "signing.key"))
    code, _, error = enroll("pi", "--trust", str(tmp_path / "signing.key"))
    assert code == 2
    assert "is a private key: give the public one" in error
    assert enroll("pi", "--trust", str(public))[0] == 0
    assert (unpacked(tmp_path, "pi") / "signing.pub").read_text() == public.read_text()
    _, out, _ = enroll("pi-2", "--code", "--trust", str(public), "--format", "json")
    assert decode_code(json.loads(out)["code"]).trust == public.read_text()


def test_an_enrolled_device_gets_another_certificate_only_on_request(enroll, tmp_path):
    enroll("pi")
    first = (tmp_path / "out" / "pi.tar").read_bytes()
    code, _, error = enroll("pi")
    assert code == 2
    assert "pi is enrolled already: --renew gives it another certificate" in error
    assert (tmp_path / "out" / "pi.tar").read_bytes() == first
    assert enroll("pi", "--code")[0] == 2
    assert enroll("pi", "--renew")[0] == 0
    assert (tmp_path / "out" / "pi.tar").read_bytes() != first
    assert len(open_authority(tmp_path / "authority").certificates("pi")) == 2


def test_enrolling_another_device_does_not_change_authority_and_broker(enroll, tmp_path):
    def contents():
        folder = tmp_path / "authority"
        return {path: path.read_bytes() for path in (*folder.glob("*.*"), *folder.glob("[bs]*/*"))}

    enroll("one", "--host", "broker.lan")
    before = contents()
    enroll("two")
    assert contents() == before
    assert len(before) == 5 + 8 + 5 * 3 - 1


def test_the_broker_gets_a_new_certificate_for_another_host_and_before_expiry(tmp_path):
    clock = [1_800_000_000.0]
    settings = AuthoritySettings(hosts=("broker.lan", "10.0.0.7"))
    authority = make_authority(tmp_path, settings, clock=lambda: clock[0])

    def serial():
        renew_service_certificates(authority)
        return x509.load_pem_x509_certificate((authority.broker / "broker.pem").read_bytes()).serial_number

    first = serial()
    clock[0] += 0.6 * SERVICE_CERTIFICATE_S
    assert serial() == first
    clock[0] += 0.1 * SERVICE_CERTIFICATE_S
    second = serial()
    assert second != first
    object.__setattr__(authority, "settings", settings.model_copy(update={"hosts": ("other.lan",)}))
    assert serial() != second


def test_the_brokers_certificate_names_all_given_hosts(enroll, tmp_path):
    enroll("pi", "--host", "broker.lan", "--host", "10.0.0.7", "--host", "::1")
    certificate = x509.load_pem_x509_certificate(
        (tmp_path / "authority" / "broker" / "broker.pem").read_bytes()
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["broker.lan", "10.0.0.7", "::1"]


def test_without_a_host_the_brokers_certificate_names_this_machine(enroll, tmp_path):
    enroll("pi")
    certificate = x509.load_pem_x509_certificate(
        (tmp_path / "authority" / "broker" / "broker.pem").read_bytes()
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names][1:] == ["localhost", "127.0.0.1"]


def test_services_have_the_names_in_the_access_rules(enroll, tmp_path):
    enroll("pi")
    folder = tmp_path / "authority"
    services = {"server": "edge-server", "service": "edge-authority", "rollout": "edge-rollout"}
    services |= {"home": "edge-home", "sparkplug": "edge-sparkplug"}
    services |= {"home-assistant": "home-assistant", "scada-host": "scada-host"}
    for service, name in services.items():
        path = f"{service}/{service}.pem"
        certificate = x509.load_pem_x509_certificate((folder / path).read_bytes())
        assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == name
        assert f"user {name}\n" in (folder / "broker" / "acl").read_text()


def test_a_broker_on_another_machine_uses_the_given_folder(enroll, tmp_path):
    enroll("pi", "--broker-folder", "/etc/mosquitto/edge", "--port", "18883")
    conf = (tmp_path / "authority" / "broker" / "mosquitto.conf").read_text()
    assert "listener 18883\ncafile /etc/mosquitto/edge/ca.pem" in conf
    assert str(tmp_path) not in conf


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("edge-server",), "'edge-server' is the name of a part of the server"),
        (("edge-rollout",), "'edge-rollout' is the name of a part of the server"),
        (("home-assistant",), "'home-assistant' is the name of a part of the server"),
        (("edge-authority", "--code"), "'edge-authority' is the name of a part of the server"),
        (("~0123456789abcdef",), "1 to 64 letters, digits"),
        (("a/b",), "1 to 64 letters, digits"),
        ((), "which DEVICE?"),
        (("pi", "--trust", "/nowhere"), "--trust: cannot read /nowhere"),
        (("pi", "--trust", "/nowhere", "--signing-key", "x"), "--trust and --signing-key say the same"),
        (("pi", "--wheel", "/nowhere"), "--wheel: there is no file /nowhere"),
        (("pi", "--port", "0"), "--port: Input should be greater than or equal to 1"),
        (("pi", "--enrolment-port", "0"), "--enrolment-port: Input should be greater than or equal to 1"),
        (("pi", "--days", "11000"), "--days: Input should be less than or equal to 10000"),
        (("pi", "--serve"), "--serve answers every device: leave out 'pi'"),
        (("--serve",), "there is no authority in"),
    ],
)
def test_wrong_arguments_are_refused_and_leave_no_files(enroll, tmp_path, words, message):
    code, _, error = enroll(*words)
    assert code == 2
    assert message in error
    assert not (tmp_path / "out").exists()


def test_an_authority_belongs_to_one_federation(enroll):
    enroll("pi", "--federation", "home")
    code, _, error = enroll("pi-2", "--federation", "office")
    assert code == 2
    assert "is of federation 'home', not 'office'" in error


def test_a_damaged_authority_is_not_replaced_by_a_new_one(enroll, tmp_path):
    """A new authority would exclude every device that trusts the old one."""
    enroll("pi")
    (tmp_path / "authority" / "ca.key").write_text("damaged")
    code, _, error = enroll("pi-2")
    assert code == 2
    assert "the authority's files are damaged" in error
    (tmp_path / "authority" / "authority.toml").write_text("hosts = 3\n")
    with pytest.raises(ConfigError, match=r"authority.toml: \[hosts\] must be a list"):
        open_authority(tmp_path / "authority")


def test_the_default_folder_is_in_the_users_data_folder(monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_folder("home") == Path("/data/edge-federation/authority/home")


def test_a_code_can_be_printed_as_json(enroll, tmp_path):
    code, out, _ = enroll("pi", "--code", "--hours", "2", "--format", "json")
    assert code == 0
    document = json.loads(out)
    assert decode_code(document["code"]).device == "pi"
    assert Path(document["file"]).read_text() == f"{document['code']}\n"


# --- the files for the board ---


def test_the_install_script_is_plain_sh(enroll, tmp_path):
    enroll("pi")
    script = unpacked(tmp_path, "pi") / "install.sh"
    done = subprocess.run(["sh", "-n", str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_installation_keeps_the_boards_own_files(enroll, tmp_path):
    enroll("pi")
    folder, root, home = unpacked(tmp_path, "pi"), tmp_path / "root", tmp_path / "opt"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "edge-client").touch(mode=0o755)
    environment = {**os.environ, "DESTDIR": str(root), "EDGE_CLIENT_HOME": str(home)}

    def install(**more: str) -> str:
        words = ["sh", str(folder / "install.sh")]
        done = subprocess.run(words, capture_output=True, text=True, env={**environment, **more})
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "installed; start it with: systemctl enable --now edge-client" in install()
    config = root / "etc" / "edge-client"
    assert {path.name for path in config.iterdir()} == {"ca.pem", "client.toml", "device.key", "device.pem"}
    assert modes(config) == {(True, 0o700), (False, 0o600)}
    (config / "client.toml").write_text('data = "folder:/srv/photos"\n')
    assert f"keeping {config}/client.toml, which differs" in install()
    assert (config / "client.toml").read_text() == 'data = "folder:/srv/photos"\n'
    install(FORCE="1")
    assert (config / "client.toml").read_bytes() == (folder / "client.toml").read_bytes()


def test_updates_need_the_key_of_releases_and_are_started_by_the_launcher(enroll, tmp_path):
    enroll("pi")
    folder, root, home = unpacked(tmp_path, "pi"), tmp_path / "root", tmp_path / "opt"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "edge-client"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    program.chmod(0o755)
    environment = {**os.environ, "DESTDIR": str(root), "EDGE_CLIENT_HOME": str(home), "UPDATES": "1"}
    words = ["sh", str(folder / "install.sh")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert (done.returncode, "enrol this board with --signing-key" in done.stderr) == (1, True)
    (folder / "signing.pub").write_text("a key")
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked").read_text() == f"install --root {root}/var/lib/edge-client/client\n"
    settings = root / "etc/systemd/system/edge-client.service.d/launcher.conf"
    assert settings.read_text() == LAUNCHER


@pytest.mark.parametrize(
    ("missing", "message"),
    [("client.toml", "client.toml is not in the folder of this script"), ("", "give this script the wheel")],
)
def test_the_install_script_reports_what_is_missing(enroll, tmp_path, missing, message):
    enroll("pi")
    folder = unpacked(tmp_path, "pi")
    if missing:
        (folder / missing).unlink()
    environment = {**os.environ, "DESTDIR": str(tmp_path / "root"), "EDGE_CLIENT_HOME": str(tmp_path / "opt")}
    done = subprocess.run(["sh", str(folder / "install.sh")], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "root").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(enroll, tmp_path):
    """Warnings about the program, which is not installed, and keys of a newer systemd are ignored."""
    enroll("pi")
    unit = unpacked(tmp_path, "pi") / "edge-client.service"
    unit.chmod(0o644)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    warnings = [line for line in (done.stdout + done.stderr).splitlines() if "edge-client.service" in line]
    expected = ("/opt/edge-client/bin/edge-client", "'RestartSteps'", "'RestartMaxDelaySec'")
    assert [line for line in warnings if not any(text in line for text in expected)] == []
