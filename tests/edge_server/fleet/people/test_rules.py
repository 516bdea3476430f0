"""Roles, lockout, sessions, origins, claims and passwords: decisions without a clock or a file."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_server.fleet.people import lockout, passwords, values
from edge_server.fleet.people.passwords import make_hasher
from schemas.errors import ConfigError, InvariantError
from tests.edge_server.fleet.people.people import HASH, NOW, PASSWORD


def test_each_role_may_do_what_lesser_roles_may_and_an_unknown_action_nobody() -> None:
    for action in values.MIN_ROLES:
        allowed = [values.may(role, action) for role in values.Role]
        assert allowed == sorted(allowed)
        assert values.may(values.Role.ADMIN, action)
    assert not values.may(values.Role.ADMIN, "devices.explode")
    with pytest.raises(InvariantError):
        values.least_role("devices.explode")


@pytest.mark.parametrize(
    ("role", "action", "allowed"),
    [
        (values.Role.VIEWER, "devices.read", True),
        (values.Role.VIEWER, "devices.label", False),
        (values.Role.VIEWER, "jobs.stop", False),
        (values.Role.OPERATOR, "jobs.stop", True),
        (values.Role.OPERATOR, "devices.revoke", False),
        (values.Role.OPERATOR, "users.read", False),
        (values.Role.ADMIN, "devices.revoke", True),
    ],
)
def test_who_may_do_what(role: values.Role, action: str, allowed: bool) -> None:
    assert values.may(role, action) is allowed


def test_the_wait_after_failed_logins_doubles_up_to_its_limit_and_is_forgotten() -> None:
    failures, waits = lockout.Failures(), []
    for _ in range(14):
        failures = lockout.with_failure(failures, NOW)
        waits.append(lockout.wait_s(failures, lockout.USER_RULES, NOW))
    assert waits == [0, 0, 0, 0, 15, 30, 60, 120, 240, 480, 900, 900, 900, 900]
    assert lockout.wait_s(failures, lockout.USER_RULES, NOW + 899) == 1
    assert lockout.wait_s(failures, lockout.USER_RULES, NOW + 900) == 0
    assert lockout.wait_s(lockout.with_failure(failures, NOW + 900), lockout.USER_RULES, NOW + 901) == 899
    assert lockout.with_failure(failures, NOW + 86_400) == lockout.Failures(1, NOW + 86_400)


@given(st.integers(0, 10**9), st.floats(0, 1e12))
def test_a_wait_is_never_longer_than_the_rule_allows(count: int, later: float) -> None:
    for rules in (lockout.USER_RULES, lockout.ADDRESS_RULES):
        assert 0 <= lockout.wait_s(lockout.Failures(count, NOW), rules, NOW + later) <= rules.longest_s


def test_a_session_ends_when_idle_and_at_the_latest_after_its_longest_time() -> None:
    lengths = values.SessionLengths(idle_s=60, longest_s=600)
    assert lengths.is_alive(values.Session("ada", NOW, NOW), NOW + 59)
    assert not lengths.is_alive(values.Session("ada", NOW, NOW), NOW + 60)
    assert lengths.is_alive(values.Session("ada", NOW, NOW + 590), NOW + 599)
    assert not lengths.is_alive(values.Session("ada", NOW, NOW + 590), NOW + 600)
    assert not lengths.is_alive(values.Session("ada", NOW, NOW), NOW - 86_400)


@pytest.mark.parametrize(
    ("origin", "fetch_site", "url", "cookie", "refused"),
    [
        ("http://127.0.0.1:8270", "same-origin", None, True, False),
        ("http://127.0.0.1:8270", "", None, True, False),
        ("https://fleet.example", "same-origin", "https://fleet.example", True, False),
        ("https://fleet.example:443", "", "https://fleet.example", True, False),
        (None, "", None, False, False),
        (None, "", None, True, True),
        ("null", "", None, True, True),
        ("http://evil.example", "", None, True, True),
        ("http://evil.example", "", None, False, True),
        ("http://127.0.0.1:9999", "same-site", None, True, True),
        ("http://127.0.0.1:8270", "cross-site", None, True, True),
        ("http://127.0.0.1:8270", "", "https://fleet.example", True, True),
        ("http://[::1", "", None, True, True),
    ],
)
def test_a_change_from_another_origin_is_refused(
    origin: str | None, fetch_site: str, url: str | None, cookie: bool, refused: bool
) -> None:
    why = lockout.foreign_because(
        origin=origin, host="127.0.0.1:8270", fetch_site=fetch_site, url=url, cookie=cookie
    )
    assert bool(why) is refused


def test_the_change_token_belongs_to_one_session() -> None:
    one, other = passwords.new_session_id(), passwords.new_session_id()
    assert len(one) >= 43
    assert passwords.is_change_token(passwords.change_token_of(one), one)
    assert not passwords.is_change_token(passwords.change_token_of(one), other)
    assert not passwords.is_change_token("", one)
    assert not passwords.is_change_token("é", one)


def test_the_role_is_the_highest_that_a_claim_is_mapped_to() -> None:
    roles = {"staff": values.Role.VIEWER, "ops": values.Role.OPERATOR}
    assert values.role_of_claims({"groups": ["staff", "ops", "x"]}, "groups", roles) is values.Role.OPERATOR
    assert values.role_of_claims({"groups": "staff"}, "groups", roles) is values.Role.VIEWER
    assert (
        values.role_of_claims({"realm_access": {"roles": ["ops"]}}, "realm_access.roles", roles)
        is values.Role.OPERATOR
    )
    for claims in (
        {},
        {"groups": []},
        {"groups": ["x"]},
        {"groups": {"ops": True}},
        {"groups": [["ops"], 1]},
    ):
        assert values.role_of_claims(claims, "groups", roles) is None


def test_a_name_of_the_provider_is_a_name_here() -> None:
    assert values.name_of_claims({"email": "ada@example.org"}, "email") == "ada.at.example.org"
    for name in ("", "../x", "a b", 7, None, "x" * 65):
        assert values.name_of_claims({"email": name}, "email") is None


def test_a_password_is_known_by_its_hash_alone() -> None:
    assert HASH.startswith("$argon2id$")
    assert passwords.is_password(PASSWORD, HASH)
    assert not passwords.is_password(PASSWORD + " ", HASH)
    # Without a user even the right guess of the hash that is checked instead is refused.
    assert not passwords.is_password(PASSWORD, None)
    assert not passwords.is_password(PASSWORD, "$argon2id$damaged")
    assert not passwords.is_password("x" * 2000, HASH)
    # An accented letter as one character or as two.
    assert passwords.is_password("cafe\u0301 society", passwords.hash_password("caf\u00e9 society"))
    assert not passwords.needs_rehash(HASH)


def test_passwords_are_hashed_with_64_mib() -> None:
    make_hasher.cache_clear()
    with patch.object(passwords, "make_hasher", make_hasher):
        assert passwords.needs_rehash(HASH)
        assert "m=65536" in passwords.hash_password(PASSWORD)


@pytest.mark.parametrize(
    ("password", "message"),
    [("short", "at least 10"), ("x" * 1025, "at most 1024"), ("adalovelace1", "the user's name")],
)
def test_a_weak_password_is_refused(password: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        passwords.check_password_rules("adalovelace", password)
    passwords.check_password_rules("ada", PASSWORD)
