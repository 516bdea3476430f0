"""Requirements of the systemd units, and systemd's own checks."""

import re
import shlex
import shutil
import subprocess

import pytest

from edge_client.security.identity.enrolment_bundle import LAUNCHER, UNIT, board_files
from tests.deploy.files import DEPLOY, unit, unknown_arguments, verbs

UNITS = sorted(path.name for path in (DEPLOY / "systemd").glob("*.service"))
WATCHED = [
    "edge-client.service",
    "edge-client-serve.service",
    "edge-fleet.service",
    "edge-gateway.service",
    "edge-server.service",
]
systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
LATER = ("RestartSteps", "RestartMaxDelaySec")
"""Keys of systemd 254 and later; earlier versions ignore them with a warning."""


def words(name: str) -> list[str]:
    """The unit's command with the options from its environment."""
    service = unit(name)["Service"]
    environment = dict(
        word.split("=", 1) for line in service.get("Environment", []) for word in shlex.split(line)
    )
    line = re.sub(r"\$(\w+)", lambda found: environment[found[1]], service["ExecStart"][0])
    return shlex.split(line)


def test_there_are_units_for_every_part():
    assert UNITS == [
        "edge-authority.service",
        "edge-client-record.service",
        "edge-client-serve.service",
        "edge-client.service",
        "edge-fleet.service",
        "edge-gateway.service",
        "edge-server.service",
        "edge-standby.service",
    ]


def test_the_install_script_writes_the_launchers_settings_that_are_shown_here():
    text = (DEPLOY / "systemd" / "edge-client-launcher.conf").read_text()
    script = board_files(broker="mqtts://broker:8883", federation="home", device="pi")["install.sh"]
    assert text == LAUNCHER
    assert f"<<'CONF'\n{text}CONF\n" in script
    program, *rest = shlex.split(text.rpartition("ExecStart=")[2].replace("\\\n", ""))
    assert (program, rest) == ("/var/lib/edge-client/client/launch", words("edge-client.service")[1:])


def test_the_options_in_the_recorders_unit_are_accepted():
    text = (DEPLOY / "systemd" / "edge-client-record.service").read_text()
    (stated,) = re.findall(r"^# EDGE_RECORD_OPTIONS=(.*)$", text, re.MULTILINE)
    assert unknown_arguments("edge-client", ["record", "sensors.sqlite", *shlex.split(stated)]) == []
    (source,) = re.findall(r'data = "(.*)"', text)
    assert source.startswith(f"recorded:{words('edge-client-record.service')[2]}?")


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_has_its_own_user_and_limits(name):
    service = unit(name)["Service"]
    users = (DEPLOY / "systemd" / "edge-federation.sysusers").read_text()
    assert re.search(rf"^u +{service['User'][0]} ", users, re.MULTILINE)
    assert service["User"] == service["Group"]
    for key, value in {
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
        "PrivateTmp": "yes",
        "UMask": "0077",
    }.items():
        assert service[key] == [value], key
    assert re.fullmatch(r"\d+(%|[MG])", service["MemoryMax"][0])
    assert service["StateDirectoryMode"] == ["0700"]


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_restarts_with_growing_delays_but_not_after_a_configuration_error(name):
    service = unit(name)["Service"]
    assert service["Restart"][0] in ("always", "on-failure")
    assert service["RestartPreventExitStatus"] == ["2"]
    assert {"RestartSec", *LATER} <= set(service)
    assert unit(name)["Unit"]["StartLimitIntervalSec"] == ["0"]


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_an_existing_command(name):
    program, *rest = words(name)
    command = program.rpartition("/")[2]
    assert rest[0] in verbs(command)
    assert unknown_arguments(command, rest) == []


@pytest.mark.parametrize("name", WATCHED)
def test_services_with_a_watchdog_are_notify_units(name):
    service = unit(name)["Service"]
    assert (service["Type"], service["NotifyAccess"]) == (["notify"], ["main"])
    assert re.fullmatch(r"\d+min", service["WatchdogSec"][0])


def test_the_server_is_not_restarted_after_a_requested_stop():
    assert unit("edge-server.service")["Service"]["SuccessExitStatus"] == ["130 143"]


def test_the_enrolment_bundle_contains_the_same_unit():
    text = board_files(broker="mqtts://b:8883", federation="home", device="pi")[UNIT]
    assert text == (DEPLOY / "systemd" / UNIT).read_text()


def test_key_folders_are_private():
    lines = (DEPLOY / "systemd" / "edge-federation.tmpfiles").read_text().splitlines()
    entries = [line.split() for line in lines if line and not line.startswith("#")]
    assert {entry[1]: entry[2] for entry in entries} == {
        "/etc/edge-client": "0700",
        "/etc/edge-server": "0750",
        "/etc/edge-gateway": "0700",
        "/etc/edge-server/server.key": "0640",
    }


@systemd
def test_systemd_accepts_the_units():
    """Warnings about missing programs and keys of a newer systemd are ignored."""
    paths = [str(DEPLOY / "systemd" / name) for name in UNITS]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True)
    warnings = [line for line in (done.stdout + done.stderr).splitlines() if "edge-" in line]
    assert warnings
    expected = re.compile(
        rf"Unknown key.*'({'|'.join(LATER)})'|/opt/edge-(client|server)/bin/\S+ is not executable"
    )
    assert [line for line in warnings if not expected.search(line)] == []


@systemd
def test_systemd_rates_the_exposure_below_2():
    """The scale ends at 10. Network access, which the services need, accounts for the remaining exposure."""
    for name in UNITS:
        words = ["systemd-analyze", "security", "--offline=true", str(DEPLOY / "systemd" / name)]
        done = subprocess.run(words, capture_output=True, text=True)
        if "offline" in done.stderr:
            pytest.skip("systemd-analyze before version 250 cannot rate files")
        (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
        assert float(exposure) < 2.0, name
