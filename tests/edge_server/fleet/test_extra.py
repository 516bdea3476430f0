"""Without the extra `fleet` the verbs that need it name it in one line, and the rest of the server works."""

from pathlib import Path

import pytest

from tests.slow import slow
from tests.without_packages import run_without

PACKAGES = ("argon2", "authlib", "cronsim", "joserfc")
VERB = """
import sys
from edge_server.cli.main import main
sys.stderr = sys.stdout
print("exit code", main(sys.argv[1:]))
"""
IMPORTS = """
import edge_server.coordinator.gateway.gateway
import edge_server.coordinator.launch
import edge_server.fleet.settings.service
import edge_server.releases.rollout.service
from edge_server.coordinator.standby.takeover import preload
preload()
print("imported")
"""
RUN = ("simulate", "fedavg", "num-clients=2", "rounds=1", "workers=1", "data.source=digits", "--out")


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("cronsim", ("jobs", "list", "--service")),
        slow("cronsim", ("users", "unlock", "ada", "--service")),
        # The standard input is empty: the package is missed before the password.
        ("cronsim", ("users", "add", "ada", "--service")),
        (PACKAGES[0], ("serve",)),
        *(slow(package, ("serve",)) for package in PACKAGES[1:]),
    ],
)
def test_a_verb_names_the_extra(missing: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    shown, _ = run_without([missing], tmp_path / "blocked", VERB, *words, tmp_path / "service")
    assert shown.splitlines()[-2:] == [
        f"edge-server: this needs {missing}, which is not installed: pip install 'edge-federation[fleet]'",
        "exit code 2",
    ]


def test_server_gateway_standby_and_rollout_are_imported_and_a_run_is_simulated(tmp_path: Path) -> None:
    # In one process, which takes seconds to import all of it.
    shown, _ = run_without(PACKAGES, tmp_path / "blocked", IMPORTS + VERB, *RUN, tmp_path / "run")
    assert shown.startswith("imported\n")
    assert shown.endswith("exit code 0\n"), shown
