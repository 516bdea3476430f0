"""Actions: one table for roles, commands and the audit log; what each changes, and what is refused."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_client.security.identity.certificates import new_key
from edge_server.cli.main import EDGE_SERVER
from edge_server.fleet.actions.action import Change, Desk, fill_words
from edge_server.fleet.actions.table import ACTIONS, perform
from edge_server.fleet.people.login import actor_of_token, log_in
from edge_server.fleet.people.passwords import digest_of
from edge_server.fleet.people.store import People
from edge_server.fleet.people.values import MIN_ROLES, Actor, NotAllowed, Role, SessionLengths
from edge_server.fleet.settings.service import ServedFederation, ServiceSettings
from edge_server.security.identity.authority import make_authority
from edge_server.security.identity.settings import AuthoritySettings
from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import ConfigError
from tests.edge_server.fleet.page.service_pages import fill_inventory
from tests.edge_server.fleet.people.people import NOW, PASSWORD, add, fast_passwords

ADMIN = Actor("user:ada", Role.ADMIN)
PI = {"federation": "home", "device": "pi-1"}
SAMPLES = {
    "federation": "home",
    "device": "pi-1",
    "labels": "role=camera site-",
    "note": "by the door's left side",
    "user": "eve",
    "role": "operator",
    "password": "a long password",
    "old_password": PASSWORD,
    "token": "ci",
    "where": "site in (barn,field)",
    "days": "7",
    "job": "nightly",
    "version": "home-1",
    "lasts": "2h",
    "reason": "new router",
    "number": "3",
    "rule": "silent for 2 h",
    "kind": "job",
    "name": "nightly",
    "words": "home.toml rounds=2",
    "cron": "0 2 * * SUN",
    "every": "",
    "zone": "Europe/Berlin",
    "min_eligible": "2",
}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    folder = ServiceFolder(tmp_path)
    fill_inventory(folder, {"pi-1": "barn", "pi-2": "field"})
    with fast_passwords(), People(folder.people) as people:
        for name, role in (("ada", Role.ADMIN), ("otto", Role.OPERATOR)):
            add(people, name, role)
        yield Desk(folder, ServiceSettings(), people)


def do(desk: Desk, name: str, args: dict[str, str], actor: Actor = ADMIN, now: float = NOW) -> Change:
    return perform(desk, name, args, actor, now)


def is_let_in(desk: Desk, user: str, password: str) -> bool:
    entered = log_in(desk.people, user, password, address="10.0.0.7", lengths=SessionLengths(), now=NOW)
    return isinstance(entered, str)


def labels(desk: Desk, device: str = "pi-1") -> dict[str, str]:
    inventory = Inventory(desk.folder.inventory)
    known = inventory.device("home", device)
    inventory.close()
    assert known is not None
    return dict(known.own_labels)


def test_every_change_has_a_least_role_and_every_role_an_action() -> None:
    changes = {name for name in MIN_ROLES if not name.endswith(".read")}
    assert changes == set(ACTIONS)


@pytest.mark.parametrize("name", ACTIONS)
def test_the_command_of_an_action_is_one_that_there_is(name: str, tmp_path: Path) -> None:
    action = ACTIONS[name]
    args = {"user": "ada", **{field.name: SAMPLES[field.name] for field in action.fields}}
    command = shlex.split(action.command(args, ServiceFolder(tmp_path)))
    assert command[0] == "edge-server"
    parsed = EDGE_SERVER.parse(command[1:])
    assert parsed.service == tmp_path
    for secret in ("password", "old_password"):
        assert SAMPLES[secret] not in command


def test_an_option_without_its_argument_is_left_out() -> None:
    words = ("make", "{name}", "--where", "{where}", "--days", "{days}", "{more...}")
    assert fill_words(words, {"name": "a b", "where": "", "days": "3", "more": " x  y "}) == [
        *("make", "a b", "--days", "3", "x", "y")
    ]


def test_a_change_goes_to_the_audit_log_with_who_what_before_and_after(desk: Desk) -> None:
    do(desk, "devices.label", {**PI, "labels": "role=camera, floor=2"})
    do(desk, "devices.label", {**PI, "labels": "role=scale floor-"}, Actor("token:ci", Role.OPERATOR))
    assert labels(desk) == {"role": "scale"}
    entries = list(audit_log.read_entries(desk.folder.audit))
    assert [(entry.who, entry.what, entry.target) for entry in entries] == [
        ("user:ada", "label", "home/pi-1"),
        ("token:ci", "label", "home/pi-1"),
    ]
    assert (entries[1].before, entries[1].after) == (
        {"labels": {"role": "camera", "floor": "2"}},
        {"labels": {"role": "scale"}},
    )
    assert audit_log.verify(desk.folder.audit) is None


def test_no_secret_goes_to_the_audit_log(desk: Desk) -> None:
    do(desk, "users.add", {"user": "eve", "role": "viewer", "password": "a long password"})
    do(desk, "users.password", {"user": "eve", "password": "another password"})
    made = do(desk, "tokens.make", {"token": "ci", "role": "viewer"})
    written = desk.folder.audit.read_text()
    for secret in ("a long password", "another password", made.secret, "argon2"):
        assert secret is not None
        assert secret not in written
    assert [json.loads(line)["what"] for line in written.splitlines()] == [
        "users.add",
        "users.password",
        "tokens.make",
    ]


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("devices.explode", {}, "there is no action 'devices.explode'"),
        ("devices.label", {**PI, "labels": ""}, "'labels' is missing"),
        ("devices.label", {**PI, "labels": "Role=x"}, "label 'Role'"),
        ("devices.label", {**PI, "labels": "role"}, "a label is KEY=VALUE"),
        ("devices.label", {**PI, "labels": "a=b", "more": "x"}, "there is no argument 'more'"),
        ("devices.label", {**PI, "device": "pi-9", "labels": "a=b"}, "there is no device 'pi-9'"),
        ("devices.note", {**PI, "note": "a\nb"}, "control characters"),
        ("devices.note", {**PI, "note": "x" * 5000}, "too long"),
        ("devices.note", {**PI, "note": 7}, "must be a text"),
        ("devices.revoke", PI, "service.toml names no federation"),
        ("users.add", {"user": "ada", "role": "admin", "password": PASSWORD}, "there is a user 'ada'"),
        ("users.add", {"user": "a b", "role": "admin", "password": PASSWORD}, "1 to 64 letters"),
        ("users.add", {"user": "eve", "role": "root", "password": PASSWORD}, "'root' is not a role"),
        ("users.add", {"user": "eve", "role": "viewer", "password": "short"}, "at least 10"),
        ("users.role", {"user": "otta", "role": "viewer"}, "did you mean 'otto'"),
        ("users.role", {"user": "ada", "role": "viewer"}, "you cannot change the role of yourself"),
        ("users.remove", {"user": "ada"}, "you cannot remove yourself"),
        ("own.password", {"old_password": "wrong", "password": "a long password"}, "old password is wrong"),
        ("tokens.make", {"token": "ci", "role": "viewer", "days": "-1"}, "not a number of days"),
        ("tokens.make", {"token": "ci", "role": "viewer", "days": "nan"}, "not a number of days"),
        ("tokens.make", {"token": "ci", "role": "viewer", "where": "site in (a"}, "not a condition"),
        ("tokens.revoke", {"token": "ci"}, "there is no token 'ci'"),
    ],
)
def test_wrong_arguments_are_one_line_and_change_nothing(
    desk: Desk, name: str, args: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        do(desk, name, args)
    assert "\n" not in str(raised.value)
    assert not desk.folder.audit.exists()
    assert labels(desk) == {}
    roles = {user.name: user.role for user in desk.people.users()}
    assert roles == {"ada": "admin", "otto": "operator"}
    assert desk.people.tokens() == []


def test_a_token_with_a_selector_changes_its_devices_alone(desk: Desk) -> None:
    token = Actor("token:ci", Role.ADMIN, "site=barn")
    do(desk, "devices.note", {**PI, "note": "by the door"}, token)
    with pytest.raises(NotAllowed, match="'pi-2' is none"):
        do(desk, "devices.note", {**PI, "device": "pi-2", "note": "x"}, token)
    with pytest.raises(NotAllowed, match="is not about one"):
        do(desk, "tokens.make", {"token": "more", "role": "admin"}, token)


def test_a_user_changes_the_own_password_and_is_locked_out_after_wrong_ones(desk: Desk) -> None:
    otto = Actor("user:otto", Role.OPERATOR)
    do(desk, "own.password", {"old_password": PASSWORD, "password": "another password"}, otto)
    assert is_let_in(desk, "otto", "another password")
    for _ in range(5):
        with pytest.raises(ConfigError, match="old password is wrong"):
            do(desk, "own.password", {"old_password": "wrong", "password": "a third password"}, otto)
    with pytest.raises(ConfigError, match="try again in 15 s"):
        do(desk, "own.password", {"old_password": "another password", "password": "a third password"}, otto)
    do(desk, "users.unlock", {"user": "otto"})
    assert is_let_in(desk, "otto", "another password")


def test_a_token_is_made_shown_once_and_revoked(desk: Desk) -> None:
    made = do(desk, "tokens.make", {"token": "ci", "role": "operator", "where": "site = barn", "days": "2"})
    assert made.secret is not None
    actor = actor_of_token(desk.people, made.secret, NOW + 2 * 86_400 - 1)
    assert actor == Actor("token:ci", Role.OPERATOR, "site=barn")
    assert actor_of_token(desk.people, made.secret, NOW + 2 * 86_400) is None
    assert desk.people.token(digest_of(made.secret)) is not None
    do(desk, "tokens.revoke", {"token": "ci"})
    assert actor_of_token(desk.people, made.secret, NOW) is None


def test_revoking_a_device_revokes_its_certificates_and_marks_it(desk: Desk, tmp_path: Path) -> None:
    settings = AuthoritySettings(federation="home", hosts=("localhost",))
    authority = make_authority(tmp_path / "authority", settings)
    authority.issue("pi-1", new_key().public_key())
    served = ServedFederation(name="home", authority=tmp_path / "authority")
    desk = Desk(desk.folder, ServiceSettings(federations=(served,)), desk.people)
    change = do(desk, "devices.revoke", PI)
    assert (change.before, change.after) == ({"certificates": 1}, {"certificates": 0})
    assert "let in until Mosquitto has read" in change.said
    assert authority.certificates("pi-1") == []
    inventory = Inventory(desk.folder.inventory)
    known = inventory.device("home", "pi-1")
    inventory.close()
    assert known is not None
    assert known.revoked_at == NOW
    with pytest.raises(ConfigError, match="no device 'pi-2' was enrolled"):
        do(desk, "devices.revoke", {**PI, "device": "pi-2"})


def test_the_command_that_a_revocation_shows_takes_the_authority_from_the_service(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = AuthoritySettings(federation="home", hosts=("localhost",))
    authority = make_authority(tmp_path / "authority", settings)
    authority.issue("pi-1", new_key().public_key())
    folder = json.dumps(str(tmp_path / "authority"))
    desk.folder.settings.write_text(f'[[federations]]\nname = "home"\nauthority = {folder}\n')
    command = shlex.split(ACTIONS["devices.revoke"].command(PI, desk.folder))
    assert EDGE_SERVER.run(command[1:]) == 0
    assert "1 certificate revoked" in capsys.readouterr().out
    assert authority.certificates("pi-1") == []
    (entry,) = audit_log.read_entries(desk.folder.audit)
    assert (entry.who[:6], entry.what, entry.target) == ("local:", "revoke", "home/pi-1")
    assert (entry.before, entry.after) == ({"certificates": 1}, {"certificates": 0})
