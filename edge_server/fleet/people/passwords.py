"""Local passwords: rules, argon2id hashes, and a check whose time does not tell whether a user exists."""

import functools
import hashlib
import hmac
import secrets
import threading
import unicodedata
from typing import TYPE_CHECKING

from schemas.errors import ConfigError

# Random secrets of sessions and tokens, their stored digests, and the header value against foreign pages.

SECRET_BYTES = 32
TOKEN_PREFIX = "edge_"  # Lets scanners of repositories and logs recognise a token
_FOR_HEADER = b"edge-page change token"


def new_session_id() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def new_api_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> bytes:
    """What is stored of a secret; 256 random bits need no slow hash."""
    return hashlib.sha256(secret.encode()).digest()


def change_token_of(session_id: str) -> str:
    """The value that a page sends with every change: a foreign page can neither read nor compute it."""
    return hmac.new(session_id.encode(), _FOR_HEADER, hashlib.sha256).hexdigest()


def is_change_token(shown: str, session_id: str) -> bool:
    """Whether `shown` is the change token of this session, compared in constant time."""
    return hmac.compare_digest(shown.encode(), change_token_of(session_id).encode())


if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST, LONGEST = 10, 1024
_ONE_AT_A_TIME = threading.BoundedSemaphore(2)  # Each check takes 64 MiB: two at once bound the memory


def _normal(password: str) -> str:
    """The same text for each way in which a keyboard may compose it."""
    return unicodedata.normalize("NFKC", password)


def check_password_rules(name: str, password: str) -> None:
    """Raise `ConfigError` for a password that is too short, too long, or contains the user's name."""
    if len(password) < SHORTEST:
        raise ConfigError(
            f"the password has {len(password)} characters: at least {SHORTEST} are needed",
            remedy="`openssl rand -base64 15` makes one",
        )
    if len(password) > LONGEST:
        raise ConfigError(f"the password has {len(password)} characters: at most {LONGEST} are allowed")
    if name.lower() in password.lower() and len(password) - len(name) < SHORTEST:
        raise ConfigError("the password consists mostly of the user's name", remedy="choose another")


def hash_password(password: str) -> str:
    """The argon2id hash, with its parameters and salt."""
    with _ONE_AT_A_TIME:
        return make_hasher().hash(_normal(password))


def is_password(password: str, stored: str | None) -> bool:
    """Whether the password is that of the hash; without a hash the same work is done for nothing."""
    from argon2.exceptions import InvalidHashError, VerificationError

    if len(password) > LONGEST:
        return False
    with _ONE_AT_A_TIME:
        try:
            return make_hasher().verify(stored or hash_of_nobody(), _normal(password)) and stored is not None
        except (VerificationError, InvalidHashError):
            return False


def needs_rehash(stored: str) -> bool:
    """Whether the hash was made with weaker parameters than today's."""
    return make_hasher().check_needs_rehash(stored)


@functools.cache
def make_hasher() -> "PasswordHasher":
    from argon2 import PasswordHasher

    return PasswordHasher()


@functools.cache
def hash_of_nobody() -> str:
    return make_hasher().hash("nobody has this password")
