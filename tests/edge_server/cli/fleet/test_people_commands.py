"""`edge-server users`, `tokens` and `audit` on a folder; passwords come from standard input."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_server.cli.commands.fleet import audit
from edge_server.cli.main import EDGE_SERVER
from edge_server.fleet.people.passwords import is_password
from edge_server.fleet.people.store import People
from tests.edge_server.fleet.people.people import PASSWORD, fast_passwords

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command on the folder with a line of standard input; returns exit code, output and errors."""

    def command(line: str, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        code = EDGE_SERVER.run([*line.split(), "--service", str(tmp_path)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    with fast_passwords():
        yield command


def test_a_user_is_added_listed_changed_and_removed(run: Run, tmp_path: Path) -> None:
    assert run("users add ada --role admin", PASSWORD + "\n")[0] == 0
    assert run("users role ada operator")[0] == 0
    assert json.loads(run("users list --format json")[1]) == {
        "users": [{"user": "ada", "role": "operator", "kind": "local"}]
    }
    assert run("users password ada", "another password\n")[0] == 0
    with People(tmp_path / "people.sqlite") as people:
        user = people.user("ada")
    assert user is not None
    assert is_password("another password", user.password_hash)
    assert run("users unlock ada")[0] == 0
    assert run("users remove ada")[0] == 0
    entries = json.loads(run("audit --format json")[1])["entries"]
    assert [entry["what"] for entry in entries] == [
        "users.add",
        "users.role",
        "users.password",
        "users.unlock",
        "users.remove",
    ]
    assert {entry["who"].partition(":")[0] for entry in entries} == {"local"}


def test_a_token_goes_to_standard_output_alone(run: Run) -> None:
    code, out, err = run("tokens make ci --role viewer --where site=barn --days 3")
    assert code == 0
    assert out.startswith("edge_")
    assert out.count("\n") == 1
    assert "shown once" in err
    listed = run("tokens list")[1]
    assert "site=barn" in listed
    assert out.strip() not in listed
    assert run("tokens revoke ci")[0] == 0
    assert json.loads(run("tokens list --format json")[1]) == {"tokens": []}


@pytest.mark.parametrize(
    ("line", "typed", "message"),
    [
        ("users add ada", "short\n", "at least 10"),
        ("users add ada", "", "standard input has no password: pipe one"),
        ("users add a/b", PASSWORD, "1 to 64 letters"),
        ("users add ada --role king", PASSWORD, "invalid choice: 'king'"),
        ("users role ada admin", "", "there is no user 'ada'"),
        ("users remove ada", "", "there is no user 'ada'"),
        ("tokens make ci --where si!te", "", "not a condition on a label"),
        ("tokens make ci --days 0", "", "--days"),
        ("tokens make ci --days 99999", "", "at most 3650"),
        ("tokens revoke ci", "", "there is no token 'ci'"),
        ("audit --since yesterday", "", "neither a date such as"),
    ],
)
def test_a_slip_is_one_line_and_changes_nothing(run: Run, line: str, typed: str, message: str) -> None:
    code, out, err = run(line, typed)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert json.loads(run("audit --format json")[1]) == {"entries": []}


def test_a_folder_that_does_not_exist_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert EDGE_SERVER.run(["users", "list", "--service", str(tmp_path / "nowhere")]) == 2
    assert "there is no service folder" in capsys.readouterr().err


def test_the_audit_log_is_filtered_and_its_chain_is_checked(run: Run, tmp_path: Path) -> None:
    for name in ("ada", "otto"):
        run(f"users add {name}", PASSWORD)
    assert run("audit --what otto")[1].count("users.add") == 1
    assert run("audit --who nobody")[1].count("users.add") == 0
    assert run("audit --since 1h")[1].count("users.add") == 2
    code, out, _ = run("audit --verify")
    assert code == 0
    assert "2 entries" in out
    path = tmp_path / "audit.jsonl"
    path.write_text(path.read_text().replace('"target":"ada"', '"target":"eve"'))
    code, out, err = run("audit --verify")
    assert (code, out) == (2, "")
    assert "line 2: the line before it was changed or removed" in err


def test_a_moment_is_a_date_or_an_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    assert audit.moment("7d") == 1_000_000 - 7 * 86_400
    assert audit.moment("1.5h") == 1_000_000 - 5400
    assert audit.moment("2026-11-01T12:00+00:00") == 1_793_534_400
