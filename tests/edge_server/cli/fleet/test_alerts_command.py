"""`edge-server alerts`: what it prints, what it writes to the audit log, and its errors in one line."""

import json
import time
from contextlib import closing

import pytest

from edge_server.cli.main import main
from edge_server.fleet.alerts.store import AlertStore
from edge_server.storage import audit_log
from edge_server.storage.service_folder import ServiceFolder
from edge_server.transport.broker.launch import running_broker
from schemas.values import BoardState
from tests.edge_server.fleet.alerts.boards import FEDERATION, board, make_plan, make_rule, run
from tests.edge_server.fleet.alerts.receivers import running_hook


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGE_SERVICE", str(tmp_path))
    return ServiceFolder(tmp_path)


def alerts(capsys, *words: str) -> str:
    """The output of a command that succeeds."""
    assert main(["alerts", *words]) == 0
    return capsys.readouterr().out


def refusal(capsys, *words: str) -> str:
    """The one line with which a command ends."""
    assert main(["alerts", *words]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_list_has_alerts_silences_and_what_waits(folder, capsys):
    assert alerts(capsys, "list") == "no alerts\n"
    now = time.time()
    hot = board("pi-7", site="barn", board=BoardState(celsius=91.5))
    fired = run({}, make_plan(make_rule("temperature-above", 80)), now, hot)
    with closing(AlertStore(folder.alerts)) as store:
        store.save({}, fired.alerts, fired.notifications, now=now)
        store.note_failure(store.waiting()[0].number, "http://ops: cannot be reached", due_at=now + 5)
    text = alerts(capsys, "list")
    assert "pi-7     barn  warning   temperature-above  firing" in text
    assert "edge-server doctor --where device=pi-7" in text
    assert "waits for hook: temperature-above: http://ops: cannot be reached" in text
    document = json.loads(alerts(capsys, "list", "--format", "json"))
    assert document["alerts"][0]["text"] == "has a temperature of 91.5 °C"
    assert document["waiting"][0]["attempts"] == 1


def test_a_silence_that_ends_after_the_last_date_is_refused_and_does_not_break_the_list(folder, capsys):
    words = ("silence", "--where", "site=barn", "--for", "99999999999999999d", "--reason", "for good")
    assert "is too long: at most 11574d" in refusal(capsys, *words)
    assert alerts(capsys, "list") == "no alerts\n"
    # As an earlier version wrote it.
    with closing(AlertStore(folder.alerts)) as store:
        store.silence("site=barn", "for good", "ann", now=time.time(), until=1e22)
    assert "silence 1: site=barn until 9999-12-31 23:59 UTC: for good" in alerts(capsys, "list")


def test_texts_of_others_cannot_steer_the_terminal(folder, capsys):
    reason = "new router\x9b2J\x1b]0;x\x07\u202e \u2066"
    alerts(capsys, "silence", "--where", "site=barn", "--for", "2h", "--reason", reason)
    shown = alerts(capsys, "list")
    assert main(["audit"]) == 0
    for text in (shown, capsys.readouterr().out):
        assert "new router" in text
        assert "u202e" in text
        assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_an_error_that_quotes_a_text_cannot_steer_the_terminal(folder, capsys):
    assert r"'2h\x9b\u202e'" in refusal(
        capsys, "silence", "--where", "site=barn", "--for", "2h\x9b\u202e", "--reason", "x"
    )


def test_an_acknowledged_alert_is_listed_with_who_and_is_in_the_audit_log(folder, capsys):
    hot = board("pi-7", board=BoardState(celsius=91.5))
    fired = run({}, make_plan(make_rule("temperature-above", 80)), 1.0, hot)
    with closing(AlertStore(folder.alerts)) as store:
        store.save({}, fired.alerts, (), now=1.0)
        words = ("acknowledge", "temperature-above", "pi-7", "--federation", FEDERATION)
        assert alerts(capsys, *words) == "temperature-above of pi-7 is acknowledged\n"
        assert "acknowledged" in alerts(capsys, "list")
        (found,) = json.loads(alerts(capsys, "list", "--format", "json"))["alerts"]
        (entry,) = audit_log.read_entries(folder.audit)
        assert found["acknowledged"]["who"] == entry.who
        assert (entry.what, entry.target) == ("acknowledge alert", f"{FEDERATION}/pi-7")
        assert "there is no alert 'silent'" in refusal(capsys, "acknowledge", "silent", *words[2:])
        # The next alert of that name is a new one.
        store.save(fired.alerts, {}, (), now=2.0)
        store.save({}, fired.alerts, (), now=3.0)
    assert "acknowledged" not in alerts(capsys, "list")


def test_a_silence_is_listed_ends_and_is_in_the_audit_log(folder, capsys):
    alerts(capsys, "silence", "--where", "site = barn", "--for", "2h", "--reason", "new router")
    assert "silence 1: site=barn until " in alerts(capsys, "list")
    assert alerts(capsys, "silence", "--end", "1") == "silence 1: ended\n"
    assert alerts(capsys, "list") == "no alerts\n"
    begun, ended = audit_log.read_entries(folder.audit)
    assert (begun.what, begun.target, begun.after["reason"]) == ("silence alerts", "site=barn", "new router")
    assert (ended.what, ended.target) == ("end silence of alerts", "1")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["silence", "--where", "site=barn"], "name --where SELECTOR, --for TIME and --reason"),
        (["silence", "--where", "site=", "--for", "2h", "--reason", "x"], "is not a condition on a label"),
        (["silence", "--where", "gpu", "--for", "2", "--reason", "x"], "'2' is not a duration such as"),
        (["silence", "--end", "9"], "there is no silence 9 now"),
        (["test", "ops"], "there is no receiver 'ops': name it in a table [alerts.receivers.NAME]"),
    ],
)
def test_a_wrong_command_says_what_to_do_and_changes_nothing(folder, capsys, words, says):
    assert says in refusal(capsys, *words)
    assert not folder.audit.exists()


def write_settings(folder: ServiceFolder, hook: str, broker: str = "mqtt://127.0.0.1:1") -> None:
    folder.settings.write_text(
        f'[[federations]]\nname = "farm"\nbroker = "{broker}"\n'
        f'[alerts.receivers.ops]\nkind = "webhook"\nurl = "{hook}"\n'
        '[alerts.receivers.home]\nkind = "home-assistant"\n'
    )


def test_a_test_is_delivered_or_the_receiver_says_why_not(folder, capsys):
    with running_hook(200, 500) as hook, running_broker("embedded", folder.path / "broker") as broker:
        write_settings(folder, hook.url, f"mqtt://{broker.host}:{broker.port}")
        assert alerts(capsys, "test", "ops") == "ops: took the test\n"
        assert json.loads(hook.next().content)["test"] is True
        assert "answered 500" in refusal(capsys, "test", "ops")
        assert alerts(capsys, "test", "home") == "home: took the test\n"
        assert "(did you mean 'home'?)" in refusal(capsys, "test", "hom")
    assert "cannot be reached" in refusal(capsys, "test", "ops")
    assert "check [[federations]] broker" in refusal(capsys, "test", "home")


def test_settings_with_an_unknown_kind_of_rule_are_refused(folder, capsys):
    folder.settings.write_text('[[alerts.rules]]\nwhen = "silent"\n')
    line = refusal(capsys, "test", "ops")
    assert "service.toml: [alerts] rules.0.when: there is no kind of rule 'silent'" in line
