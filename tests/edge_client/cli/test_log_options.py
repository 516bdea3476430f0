"""The log options in real processes, by their standard error output."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_client.cli.config_file import read_client_file
from edge_client.cli.main import EDGE_CLIENT
from edge_server.cli.main import EDGE_SERVER

PROGRAM = """
import argparse, logging, sys, warnings
from edge_client.cli.options import log_options
from edge_client.system.logging.formatters import about
from edge_client.system.logging.setup import begin_log
parser = argparse.ArgumentParser()
for option in log_options("info"):
    option.add_to(parser)
begin_log(parser.parse_args(), level=logging.INFO, federation="home")
about(round=2)
log = logging.getLogger("x")
log.debug("small")
log.info("it begins")
log.warning("late", extra={"device": "pi"})
warnings.warn("old")
"""


def errors(*words: str, **environment: str) -> list[str]:
    """The standard error lines of a process that sets up its log with these arguments."""
    variables = {key: value for key, value in os.environ.items() if key != "EDGE_LOG_FORMAT"} | environment
    run = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(run, capture_output=True, text=True, env=variables).stderr.splitlines()


def test_json_format_applies_to_library_warnings() -> None:
    reported = [json.loads(line) for line in errors("--log-format", "json")]
    assert [line["level"] for line in reported] == ["info", "warning", "warning"]
    assert reported[1]["device"] == "pi"
    assert "old" in reported[2]["message"]
    assert all((line["federation"], line["round"]) == ("home", 2) for line in reported)


def test_the_environment_sets_the_format_and_the_option_the_level() -> None:
    reported = [json.loads(line) for line in errors("--log-level", "debug", EDGE_LOG_FORMAT="json")]
    assert [line["message"] for line in reported[:3]] == ["small", "it begins", "late"]


def test_text_is_the_default_format() -> None:
    first = errors()[0]
    assert first.partition(" ")[2] == "INFO it begins [federation=home round=2]"


def test_an_unknown_format_in_the_environment_suggests_the_nearest() -> None:
    assert "EDGE_LOG_FORMAT=jsn: human or json (did you mean 'json'?)" in errors(EDGE_LOG_FORMAT="jsn")[-1]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (EDGE_SERVER, ["run", "f.toml"]),
        (EDGE_SERVER, ["simulate", "fedavg"]),
        (EDGE_SERVER, ["demo"]),
        (EDGE_SERVER, ["compare", "fedavg"]),
        (EDGE_SERVER, ["rollout", "v"]),
        (EDGE_SERVER, ["object-store", "x", "--secret", "s"]),
        (EDGE_SERVER, ["enroll", "--serve"]),
        (EDGE_CLIENT, ["run"]),
        (EDGE_CLIENT, ["serve", "m.onnx"]),
    ],
)
def test_every_long_running_command_accepts_the_options(command, words) -> None:
    args = command.parser().parse_args([*words, "--log-format", "json", "--log-level", "debug"])
    assert (args.log_format, args.log_level) == ("json", "debug")


def test_a_device_file_may_set_the_log_options(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text('log-format = "json"\nlog-level = "debug"\n')
    assert read_client_file(path) == {"log_format": "json", "log_level": "debug"}
