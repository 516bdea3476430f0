"""people.sqlite: what is stored, what ends sessions, migrations."""

import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from unittest.mock import patch

import pytest

from edge_server.fleet.people import login, store
from edge_server.fleet.people.lockout import ADDRESS_RULES, USER_RULES
from edge_server.fleet.people.openid import KnownIdentity
from edge_server.fleet.people.passwords import digest_of, new_api_token
from edge_server.fleet.people.store import People
from edge_server.fleet.people.values import ApiToken, Role, SessionLengths
from tests.edge_server.fleet.people.people import HASH, NOW, PASSWORD, add

LENGTHS = SessionLengths(idle_s=600, longest_s=3600)


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    with People(tmp_path / "people.sqlite") as opened:
        yield opened


def enter(
    people: People, name: str = "ada", password: str = PASSWORD, at: float = NOW
) -> str | login.LoginRefused:
    return login.log_in(people, name, password, address="10.0.0.7", lengths=LENGTHS, now=at)


def test_a_session_lasts_while_it_is_used_and_ends_in_any_case(people: People) -> None:
    add(people)
    session = enter(people)
    assert isinstance(session, str)
    for at in range(500, 3600, 500):
        actor = login.actor_of_session(people, session, LENGTHS, NOW + at)
        assert actor is not None
        assert (actor.who, actor.role) == ("user:ada", Role.ADMIN)
    assert login.actor_of_session(people, session, LENGTHS, NOW + 3600) is None
    assert login.actor_of_session(people, session, LENGTHS, NOW + 500) is None


def test_an_idle_session_ends(people: People) -> None:
    add(people)
    session = enter(people)
    assert isinstance(session, str)
    assert login.actor_of_session(people, session, LENGTHS, NOW + 600) is None


def test_no_secret_is_in_the_file(people: People) -> None:
    add(people)
    session, token = enter(people), new_api_token()
    assert isinstance(session, str)
    people.add_token(digest_of(token), ApiToken("ci", Role.VIEWER, "", "ada", NOW, NOW + 1))
    people.close()
    written = b"".join(path.read_bytes() for path in people.path.parent.iterdir())
    for secret in (session, token, PASSWORD):
        assert secret.encode() not in written
    assert stat.S_IMODE(people.path.stat().st_mode) == 0o600


def test_a_new_role_holds_for_open_sessions(people: People) -> None:
    add(people)
    session = enter(people)
    assert isinstance(session, str)
    people.set_role("ada", Role.VIEWER)
    actor = login.actor_of_session(people, session, LENGTHS, NOW)
    assert actor is not None
    assert actor.role is Role.VIEWER


def test_a_new_password_or_no_user_ends_sessions(people: People) -> None:
    add(people)
    first, second = enter(people), enter(people)
    assert isinstance(first, str)
    assert isinstance(second, str)
    assert people.set_password("ada", HASH, keep=digest_of(second))
    assert login.actor_of_session(people, first, LENGTHS, NOW) is None
    assert login.actor_of_session(people, second, LENGTHS, NOW) is not None
    assert people.remove_user("ada")
    assert login.actor_of_session(people, second, LENGTHS, NOW) is None
    assert not people.remove_user("ada")


def test_five_wrong_passwords_lock_the_user_out_and_the_right_one_is_not_even_checked(people: People) -> None:
    add(people)
    for _ in range(5):
        assert enter(people, password="wrong password") == login.LoginRefused("user or password is wrong")
    assert enter(people) == login.LoginRefused("too many failed logins", 15)
    assert enter(people, at=NOW + 14.5) == login.LoginRefused("too many failed logins", 0.5)
    assert isinstance(enter(people, at=NOW + 15), str)
    # A success forgets the failures.
    assert enter(people, password="wrong password", at=NOW + 16) == login.LoginRefused(
        "user or password is wrong"
    )


def test_guesses_at_the_same_time_are_no_more_than_the_rules_allow(people: People) -> None:
    add(people)
    examined = []
    slow = Barrier(5, timeout=30)

    def examine(password: str, stored: str | None) -> bool:
        examined.append(password)
        slow.wait()
        return False

    with patch.object(login, "is_password", examine), ThreadPoolExecutor(25) as pool:
        outcomes = list(pool.map(lambda number: enter(people, password=f"guess {number}"), range(25)))
    assert len(examined) == 5
    waits = [outcome.wait_s for outcome in outcomes if isinstance(outcome, login.LoginRefused)]
    assert sorted(waits) == [0.0] * 5 + [15.0] * 20


def test_names_that_do_not_exist_look_like_wrong_passwords(people: People) -> None:
    for _ in range(5):
        assert enter(people, "nobody") == login.LoginRefused("user or password is wrong")
    assert enter(people, "nobody") == login.LoginRefused("too many failed logins", 15)


def test_one_address_that_tries_many_names_is_locked_out(people: People) -> None:
    add(people)
    for number in range(20):
        assert people.begin_attempt([("address", "10.0.0.7", ADDRESS_RULES)], NOW) == 0
        assert people.failures("address", "10.0.0.7").count == number + 1
    assert enter(people) == login.LoginRefused("too many failed logins", 15)
    elsewhere = login.log_in(people, "ada", PASSWORD, address="10.0.0.8", lengths=LENGTHS, now=NOW)
    assert isinstance(elsewhere, str)


def test_failures_of_endless_names_do_not_grow_the_file(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_FAILURES", 10)
    for number in range(25):
        people.begin_attempt([("user", f"name-{number}", USER_RULES)], NOW + number)
    assert people.failures("user", "name-14").count == 0
    assert people.failures("user", "name-15").count == 1


def test_a_token_has_a_role_a_selector_and_an_end(people: People) -> None:
    secret = new_api_token()
    token = ApiToken("ci", Role.OPERATOR, "site=barn", "ada", NOW, NOW + 100)
    assert people.add_token(digest_of(secret), token)
    assert not people.add_token(digest_of("other"), token)
    actor = login.actor_of_token(people, secret, NOW + 99)
    assert actor is not None
    assert (actor.who, actor.role, actor.where) == ("token:ci", Role.OPERATOR, "site=barn")
    assert people.tokens() == [replace(token, used_at=NOW + 99)]
    assert login.actor_of_token(people, secret, NOW + 100) is None
    assert login.actor_of_token(people, "edge_unknown", NOW) is None
    assert people.remove_token("ci")
    assert login.actor_of_token(people, secret, NOW) is None


def test_a_user_of_the_provider_has_the_role_of_the_last_login(people: People) -> None:
    identity = KnownIdentity("https://id.example 42", "grace", Role.OPERATOR)
    for role in (Role.OPERATOR, Role.VIEWER):
        session = login.log_in_known(people, replace(identity, role=role), lengths=LENGTHS, now=NOW)
        assert isinstance(session, str)
        actor = login.actor_of_session(people, session, LENGTHS, NOW)
        assert actor is not None
        assert (actor.who, actor.role) == ("user:grace", role)
    assert enter(people, "grace", "") == login.LoginRefused("user or password is wrong")


def test_a_user_of_the_provider_does_not_become_a_local_user_of_the_same_name(people: People) -> None:
    add(people, "grace")
    identity = KnownIdentity("https://id.example 42", "grace", Role.VIEWER)
    refused = login.log_in_known(people, identity, lengths=LENGTHS, now=NOW)
    assert isinstance(refused, login.LoginRefused)
    assert "there is another user 'grace'" in refused.why
    assert not people.set_password("nobody", HASH)
